"""Quantize, dequantize and dynamic quantize against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import braze.tensorrt as trt
from braze.tensorrt.dtypes import array_type
from tests.tensorrt.networks import check, floats, new_network, plan_of


def constant(network: Any, array: Any) -> Any:
    return network.add_constant(array.shape, array).get_output(0)


def quantized(x: Any, scale: Any) -> Any:
    return np.clip(np.rint(x / scale), -128, 127).astype(np.int8)


def test_quantize_and_dequantize() -> None:
    x = floats(2, 4, 6)
    one, each = np.float32(0.03), np.array([0.01, 0.02, 0.05, 0.1], np.float32)

    def make(network: Any, inputs: Any) -> Any:
        scale = network.add_constant((), np.array([one])).get_output(0)
        scales = constant(network, each)
        q = network.add_quantize(inputs["x"], scale)
        assert q.to_type is trt.int8 and q.get_output(0).dtype is trt.int8
        d = network.add_dequantize(q.get_output(0), scale)
        channels = network.add_quantize(inputs["x"], scales, trt.int8)
        channels.axis = 1
        back = network.add_dequantize(channels.get_output(0), scales, trt.float16)
        back.axis = 1
        assert back.get_output(0).dtype is trt.float16
        return {
            "q": q.get_output(0), "d": d.get_output(0),
            "channels": channels.get_output(0), "back": back.get_output(0),
        }  # fmt: skip

    columns = each.reshape(1, 4, 1)
    q, channels = quantized(x, one), quantized(x, columns)
    expected = {
        "q": q, "d": q * one, "channels": channels,
        "back": channels.astype(np.float16) * columns.astype(np.float16),
    }  # fmt: skip
    check(make, {"x": x}, expected, atol=1e-3)  # half: steps of 2^-11 below 1


def test_weights_in_blocks() -> None:
    x = floats(3, 8)
    w = np.random.default_rng(1).integers(-8, 8, (8, 4)).astype(np.int8)
    scales = np.abs(floats(2, 4, seed=2)) + 0.1
    packed = (w & 15).astype(np.uint8).reshape(-1, 2)
    nibbles = np.ascontiguousarray(packed[:, 0] | packed[:, 1] << 4)

    def make(network: Any, inputs: Any) -> Any:
        weights = trt.Weights(trt.int4, nibbles.ctypes.data, w.size)
        assert (weights.size, weights.nbytes) == (32, 16)
        layer = network.add_constant(w.shape, weights)
        d = network.add_dequantize(layer.get_output(0), constant(network, scales))
        none = trt.MatrixOperation.NONE
        product = network.add_matrix_multiply(inputs["x"], none, d.get_output(0), none)
        return {"y": product.get_output(0)}

    wanted = x @ (w * scales.repeat(4, 0))
    check(make, {"x": x}, {"y": wanted.astype(np.float32)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [trt.fp4, trt.fp8], ids=lambda k: k.name)
@pytest.mark.parametrize("powers", [False, True])
def test_narrow_floats_as_weights(kind: Any, powers: bool) -> None:
    """In blocks of 4 rows, with scales of float32 or of powers of two."""
    x, narrow = floats(3, 8), array_type(kind)
    w = floats(8, 4, seed=1).astype(narrow)
    codes = w.view(np.uint8).reshape(-1)
    packed = codes[::2] | codes[1::2] << 4 if kind is trt.fp4 else codes
    packed = np.ascontiguousarray(packed)
    scales = np.array([[0.5, 1, 2, 4], [1, 0.25, 2, 1]], np.float32)
    exponents = scales.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)

    def make(network: Any, inputs: Any) -> Any:
        weights = network.add_constant(w.shape, trt.Weights(kind, packed.ctypes.data, w.size))
        own = trt.Weights(trt.e8m0, exponents.ctypes.data, scales.size) if powers else scales
        scale = network.add_constant(scales.shape, own).get_output(0)
        d = network.add_dequantize(weights.get_output(0), scale)
        none = trt.MatrixOperation.NONE
        product = network.add_matrix_multiply(inputs["x"], none, d.get_output(0), none)
        return {"y": product.get_output(0)}

    wanted = x @ (w.astype(np.float32) * scales.repeat(4, 0))
    check(make, {"x": x}, {"y": wanted}, rtol=1e-5, atol=1e-5)


def test_float8() -> None:
    x = floats(2, 5)

    def make(network: Any, inputs: Any) -> Any:
        scale = network.add_constant((), np.array([0.25], np.float32)).get_output(0)
        q = network.add_quantize(inputs["x"], scale, trt.fp8)
        assert q.get_output(0).dtype is trt.fp8
        return {"y": network.add_dequantize(q.get_output(0), scale).get_output(0)}

    stored = (x / np.float32(0.25)).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    check(make, {"x": x}, {"y": stored * np.float32(0.25)})


def test_scales_that_the_run_finds() -> None:
    x = floats(2, 32) * 4

    def make(network: Any, inputs: Any) -> Any:
        layer = network.add_dynamic_quantize(inputs["x"], 1, 16, trt.fp8, trt.float32)
        assert (layer.axis, layer.block_size, layer.num_outputs) == (1, 16, 2)
        d = network.add_dequantize(layer.get_output(0), layer.get_output(1))
        second = network.add_dynamic_quantize_v2(inputs["x"], (1, 16), trt.fp8, trt.float32)
        return {
            "y": d.get_output(0),
            "scales": layer.get_output(1),
            "again": second.get_output(1),
        }

    blocks = x.reshape(2, 2, 16)
    scales = np.abs(blocks).max(2, keepdims=True) / np.float32(448)
    stored = (blocks / scales).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    flat = scales[..., 0]
    expected = {"y": (stored * scales).reshape(2, 32), "scales": flat, "again": flat}
    check(make, {"x": x}, expected)


def test_what_is_refused() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 4))
    scale = constant(network, np.ones(3, np.float32))
    assert network.add_quantize(x, scale, trt.float32) is None
    assert network.add_dequantize(x, scale, trt.int8) is None
    assert network.add_dynamic_quantize(x, 1, 2, trt.int32, trt.float32) is None
    assert network.add_dynamic_quantize_v2(x, (2, 2), trt.fp8, trt.float32) is None
    assert len(log.errors) == 4
    layer = network.add_quantize(x, scale)
    layer.axis = 1
    network.mark_output(layer.get_output(0))
    assert plan_of(network) is None and layer.name in log.errors[-1]


@pytest.mark.parametrize("value", [-1, 0, np.nan])
def test_scales_are_positive(value: float) -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 4))
    scale = constant(network, np.array([1, 2, value, 3], np.float32))
    layer = network.add_quantize(x, scale)
    layer.axis = 1
    network.mark_output(layer.get_output(0))
    assert plan_of(network) is None
    assert "not all above 0" in log.errors[-1] and layer.name in log.errors[-1]
