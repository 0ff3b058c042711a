"""Codes that are rounded, stored and read again on the card, beside kernels of other widths."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import braze
from tests.meta import small_models

SHAPES = [(6, 7), (64,), (3, 5, 9), (1000,), (4, 128)]


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_codes_and_back(shape: tuple[int, ...], kind: str, axis: int | None, level: int) -> None:
    """The codes' numbers are the reference backend's, bit by bit, also where Triton moves them
    between threads: integers and one product each."""
    rng = np.random.default_rng(0)
    size = () if axis is None else (shape[axis],)
    scale = rng.uniform(0.02, 0.3, size).astype(np.float32)
    zero = rng.integers(0, 9, size).astype(kind)
    make, given = onnx.helper.make_node, {} if axis is None else {"axis": axis}
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["q"], **given),
        make("DequantizeLinear", ["q", "s", "z"], ["y"], **given),
        make("BitwiseNot", ["i"], ["j"]),
    ]
    inputs = {"x": (onnx.TensorProto.FLOAT, shape), "i": (onnx.TensorProto.INT64, [576])}
    model = small_models.model(nodes, inputs, ["y", "j"], {"s": scale, "z": zero})
    model.opset_import[0].version, model.ir_version = 23, 10
    feed = {"x": rng.standard_normal(shape).astype(np.float32), "i": np.arange(-288, 288)}
    got = braze.build(model, target="cuda", optimization_level=level)(feed)
    want = braze.build(model, target="reference", optimization_level=level)(feed)
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array)
