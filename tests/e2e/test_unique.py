"""Unique against numpy.unique: elements and slices, sorted or in the order of their first place."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import braze
from braze.core.errors import UnsupportedOpError
from tests.pairs import pairwise

Array = np.ndarray[Any, Any]
KINDS = {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64,
    "int8": TensorProto.INT8,
}  # fmt: skip


def model(kind: str, shape: list[Any], axis: int | None, is_sorted: int) -> onnx.ModelProto:
    given = {} if axis is None else {"axis": axis}
    node = helper.make_node("Unique", ["x"], ["y", "i", "v", "c"], "u", sorted=is_sorted, **given)
    outputs = [helper.make_tensor_value_info("y", KINDS[kind], None)]
    outputs += [helper.make_tensor_value_info(n, TensorProto.INT64, None) for n in "ivc"]
    x = helper.make_tensor_value_info("x", KINDS[kind], shape)
    graph = helper.make_graph([node], "g", [x], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(x: Array, axis: int | None, is_sorted: int) -> tuple[Array, ...]:
    y, first, inverse, counts = np.unique(x, True, True, True, axis)
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        y = np.take(y, order, axis or 0)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return y, first, inverse, counts


def data(kind: str, shape: tuple[int, ...], axis: int | None) -> Array:
    """Few different numbers; floats with NaN and both zeros where no slices are compared."""
    x = np.random.default_rng(len(shape)).integers(0, 3, shape).astype(kind)
    if kind.startswith("float") and axis is None and x.size > 3:
        x.flat[1], x.flat[2], x.flat[3] = np.nan, -0.0, np.nan
    return x


SHAPES: list[tuple[tuple[int, ...], int | None]] = [
    ((3, 4), None), ((5, 2, 3), 0), ((3, 7), 1), ((2, 6, 2), -2), ((6,), 0), ((1,), None),
    ((0,), None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "kind", "is_sorted", "target"),
    pairwise(SHAPES, list(KINDS), [0, 1], ["cpu", "reference"]),
)
def test_as_numpy(
    form: tuple[tuple[int, ...], int | None], kind: str, is_sorted: int, target: str
) -> None:
    shape, axis = form
    x = data(kind, shape, axis)
    free = axis in (None, 0)
    m = model(kind, ["n", *shape[1:]] if free else list(shape), axis, is_sorted)
    level = 2 if kind == "float32" else 1
    got = braze.build(m, target=target, optimization_level=level)({"x": x})
    for name, want in zip("yivc", expected(x, axis, is_sorted), strict=True):
        np.testing.assert_array_equal(got[name], want)


def test_only_what_is_asked_for() -> None:
    m = model("int64", [6], None, 1)
    del m.graph.output[1:]
    x = np.array([4, 1, 4, 4, 0, 1])
    np.testing.assert_array_equal(braze.build(m)({"x": x})["y"], [0, 1, 4])


def test_long_slices_are_refused() -> None:
    with pytest.raises(UnsupportedOpError, match=r"slices of 65 elements are not"):
        braze.build(model("float32", [4, 65], 0, 1))
