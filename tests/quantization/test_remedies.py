"""SmoothQuant, equalization and bias correction, each on a case where it must help."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.quantization.equalize import equalize
from braze.quantization.layers import layers_of
from braze.quantization.network import Network
from braze.quantization.options import Options
from braze.quantization.placement import place
from tests.quantized.networks import Net

Array = np.ndarray[Any, Any]


def run(model: onnx.ModelProto, x: Array) -> Array:
    engine = braze.build(model, shapes={"x": x.shape}, optimization_level=1, threads=1)
    return np.asarray(engine({"x": x})["y"], np.float64)


def errors(
    model: onnx.ModelProto, x: Array, *ways: dict[str, Any], **common: Any
) -> list[tuple[float, float]]:
    """(relative error, largest mean error of a channel) in each way."""
    want, found = run(model, x), []
    for way in ways:
        got = run(braze.quantize(model, [x[:4], x[4:]], **common, **way).model, x)
        off = got - want
        bias = np.abs(off.mean(axis=tuple(a for a in range(off.ndim) if a != 1))).max()
        found.append((float(np.linalg.norm(off) / np.linalg.norm(want)), float(bias)))
    return found


@pytest.mark.parametrize("behind_a_norm", [True, False])
def test_smoothing_helps_where_channels_are_outliers(behind_a_norm: bool) -> None:
    """Three of 64 channels are a hundred times larger: their grid drowns all others."""
    n = Net(4)
    gain = np.ones(64, np.float32)
    gain[[3, 20, 41]] = 100
    if behind_a_norm:
        x = n.add("LayerNormalization", "x", n.const(gain), n.const(gain * 0.1))
    else:
        x = n.add("Mul", "x", n.const(gain))
    a = n.add("MatMul", x, n.weight(64, 48, scale=0.1))
    b = n.add("MatMul", x, n.weight(64, 48, scale=0.1))
    w = n.const(np.float32(0.01))
    n.add("Add", n.add("Mul", a, w), n.add("Mul", b, w), name="y")
    model = n.model(["n", 6, 64], ["n", 6, 48])
    # the weights of large channels are small, as training makes them
    for t in model.graph.initializer:
        if t.dims == [64, 48]:
            held = onnx.numpy_helper.to_array(t) / gain[:, None]
            t.CopyFrom(onnx.numpy_helper.from_array(held.astype(np.float32), t.name))
    x = np.random.default_rng(0).normal(size=(8, 6, 64)).astype(np.float32)
    plain, smoothed = errors(model, x, {}, {"smooth": 0.5}, method="minmax")
    assert plain[0] > 0.1 and smoothed[0] < plain[0] / 5
    q = braze.quantize(model, [x], smooth=0.5)
    inserted = sum(node.op_type == "Mul" for node in q.model.graph.node)
    assert inserted == sum(node.op_type == "Mul" for node in model.graph.node) + (not behind_a_norm)


def chain(depthwise: bool = False) -> onnx.ModelProto:
    """Two convolutions, or three with a depthwise one, whose channels differ a hundredfold."""
    n = Net(6)
    spread = np.geomspace(0.1, 10, 16).astype(np.float32)
    first = n.rng.normal(0, 0.3, (16, 3, 3, 3)).astype(np.float32) * spread[:, None, None, None]
    last = n.rng.normal(0, 0.3, (8, 16, 1, 1)).astype(np.float32) / spread[None, :, None, None]
    x = n.add("Conv", "x", n.const(first), n.const(0.1 * spread), pads=[1] * 4)
    x = n.add("Relu", x)
    if depthwise:
        x = n.add("Conv", x, n.weight(16, 1, 3, 3, scale=0.3), group=16, pads=[1] * 4)
        x = n.add("LeakyRelu", x, alpha=0.2)
    n.add("Conv", x, n.const(last), name="y")
    return n.model(["n", 3, 10, 10], ["n", 8, 10, 10])


@pytest.mark.parametrize("depthwise", [False, True])
def test_equalization_helps_where_channels_differ(depthwise: bool) -> None:
    model = chain(depthwise)
    x = np.random.default_rng(1).normal(size=(8, 3, 10, 10)).astype(np.float32)
    plain, equalized = errors(model, x, {}, {"equalize": True}, method="minmax", per_channel=False)
    assert equalized[0] < plain[0] / 3


@pytest.mark.parametrize("depthwise", [False, True])
def test_equalization_changes_no_result(depthwise: bool) -> None:
    model = chain(depthwise)
    net = Network(model)
    assert equalize(net, layers_of(net, place(net, Options()).layers)) == 1 + depthwise
    x = np.random.default_rng(2).normal(size=(2, 3, 10, 10)).astype(np.float32)
    # to the rounding of float32
    assert run(net.model, x) == pytest.approx(run(model, x), rel=1e-4, abs=1e-4)


def test_equalization_stops_where_something_else_reads() -> None:
    model = chain()
    model.graph.output.append(onnx.ValueInfoProto(name="t1"))
    net = Network(model)
    assert equalize(net, layers_of(net, place(net, Options()).layers)) == 0


@pytest.mark.parametrize("kind", ["Conv", "grouped", "Gemm", "MatMul", "MatMul with Add"])
def test_bias_correction_takes_off_the_mean(kind: str) -> None:
    """Data whose mean is far from zero turns the error of weights into an error of means."""
    n = Net(7)
    w = n.rng.normal(0, 0.05, (16, 24)).astype(np.float32)
    w[:, 0] = 3.0  # a large weight makes the grid coarse
    if kind in ("Conv", "grouped"):
        group = 2 if kind == "grouped" else 1
        held = n.const(w[:, : 24 // group].reshape(16, -1, 1, 1))
        n.add("Conv", "x", held, group=group, name="y")
        model = n.model(["n", 24, 5, 5], ["n", 16, 5, 5])
        shape: tuple[int, ...] = (8, 24, 5, 5)
    else:
        if kind == "Gemm":
            n.add("Gemm", "x", n.const(w), transB=1, name="y")
        elif kind == "MatMul":
            n.add("MatMul", "x", n.const(np.ascontiguousarray(w.T)), name="y")
        else:
            n.add("Add", n.weight(16), n.add("MatMul", "x", n.const(np.ascontiguousarray(w.T))),
                  name="y")  # fmt: skip
        model = n.model(["n", 24], ["n", 16])
        shape = (8, 24)
    x = np.random.default_rng(3).normal(5, 0.5, shape).astype(np.float32)
    plain, corrected = errors(model, x, {}, {"correct_bias": True}, method="minmax")
    assert corrected[1] < plain[1] / 2
