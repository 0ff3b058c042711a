"""Loops that stack slices whose size only an iteration knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze

Array = np.ndarray[Any, Any]
WAYS = [("cpu", level) for level in range(4)] + [("reference", 1)]
ZERO = numpy_helper.from_array(np.float32(0), "zero")
ONE = numpy_helper.from_array(np.array([1], np.float32), "one")
PIECES = {
    # of a mask from outside, of what an iteration counts itself, and of twice that and one more
    "outside": [("Compress", ["row", "mask"], "s", {"axis": 0})],
    "inside": [("Greater", ["row", "zero"], "m", {}), ("Compress", ["row", "m"], "s", {"axis": 0})],
    "more": [("Greater", ["row", "zero"], "m", {}), ("Compress", ["row", "m"], "p", {"axis": 0}),
             ("Concat", ["p", "p", "one"], "s", {"axis": 0})],
}  # fmt: skip


def info(name: str, dtype: int, shape: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def nodes(kind: str) -> list[onnx.NodeProto]:
    return [helper.make_node(op, i, [o], **given) for op, i, o, given in PIECES[kind]]


def model(loop: onnx.NodeProto, *inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    graph = helper.make_graph(
        [loop, helper.make_node("ReduceSum", ["ys"], ["total"], keepdims=0)],
        "g",
        [info("x", TensorProto.FLOAT, ["R", "C"]), info("mask", TensorProto.BOOL, ["C"]), *inputs],
        [info("ys", TensorProto.FLOAT, None), info("total", TensorProto.FLOAT, None)],
        [ZERO, ONE],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def loop_model(kind: str) -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["row"], axis=0), *nodes(kind),
         helper.make_node("Identity", ["c"], ["c2"])],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, [])],
        [info("c2", TensorProto.BOOL, []), info("s", TensorProto.FLOAT, None)],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["n", ""], ["ys"], body=body)
    return model(loop, info("n", TensorProto.INT64, []))


def scan_model(kind: str) -> onnx.ModelProto:
    body = helper.make_graph(
        nodes(kind), "body", [info("row", TensorProto.FLOAT, None)],
        [info("s", TensorProto.FLOAT, None)],
    )  # fmt: skip
    return model(helper.make_node("Scan", ["x"], ["ys"], body=body, num_scan_inputs=1))


def data(rows: int, columns: int) -> dict[str, Array]:
    """Rows of as many positive numbers, at other places."""
    rng = np.random.default_rng([rows, columns])
    signs = np.where(np.arange(columns) < columns // 2 + 1, 1, -1)
    x = np.abs(rng.standard_normal((rows, columns))) * rng.permuted(
        np.broadcast_to(signs, (rows, columns)), axis=1
    )
    return {"x": x.astype(np.float32), "mask": rng.random(columns) < 0.5}


def wanted(kind: str, x: Array, mask: Array, trips: int) -> Array:
    def piece(row: Array) -> Array:
        part = row[mask] if kind == "outside" else row[row > 0]
        return np.concatenate([part, part, [1]]) if kind == "more" else part

    return np.array([piece(row) for row in x[:trips]], np.float32)


@pytest.mark.parametrize(("target", "level"), WAYS)
@pytest.mark.parametrize("kind", PIECES)
def test_loops_and_scans_stack_them(kind: str, target: str, level: int) -> None:
    loop, scan = (
        braze.build(m, target=target, optimization_level=level)
        for m in (loop_model(kind), scan_model(kind))
    )
    for rows, columns, trips in ((3, 5, 3), (4, 6, 2), (1, 1, 1), (5, 7, 5), (2, 5, 2)):
        feed = data(rows, columns)
        for engine, count in ((loop, trips), (scan, rows)):
            more = {"n": np.array(trips)} if engine is loop else {}
            got, want = engine(feed | more), wanted(kind, feed["x"], feed["mask"], count)
            np.testing.assert_array_equal(got["ys"], want)
            np.testing.assert_allclose(got["total"], want.sum(), rtol=1e-5)


@pytest.mark.parametrize(("target", "level"), WAYS)
def test_a_loop_without_iterations_has_slices_without_elements(target: str, level: int) -> None:
    engine = braze.build(loop_model("inside"), target=target, optimization_level=level)
    got = engine(data(3, 5) | {"n": np.array(0)})
    assert got["ys"].shape == (0, 0) and got["total"] == 0
    scan = braze.build(scan_model("inside"), target=target, optimization_level=level)
    assert scan(data(0, 5))["ys"].shape == (0, 0)


@pytest.mark.parametrize(("target", "level"), WAYS)
@pytest.mark.parametrize("rows", [[[1, -1, 1], [1, 1, 1]], [[-1, -1, -1], [1, -1, -1]],
                                  [[1, 1, 1], [1, 1, 1], [-1, -1, -1]]])  # fmt: skip
def test_slices_of_different_sizes_are_an_error(
    rows: list[list[int]], target: str, level: int
) -> None:
    """One with elements behind one without and the other way round too; the next run is right."""
    x, mask = np.array(rows, np.float32), np.ones(3, bool)
    for m, more in ((loop_model("inside"), {"n": np.array(len(x))}), (scan_model("inside"), {})):
        engine = braze.build(m, target=target, optimization_level=level)
        with pytest.raises(braze.BrazeError, match="axis 0 of 's' must be as long in all iter"):
            engine({"x": x, "mask": mask, **more})
        first = {"n": np.array(1)} if more else {}
        got = engine({"x": x[:1], "mask": mask, **first})["ys"]
        np.testing.assert_array_equal(got, wanted("inside", x, mask, 1))


@pytest.mark.parametrize(("target", "level"), WAYS)
def test_chunks_of_a_long_axis_are_stacked(target: str, level: int) -> None:
    """x[2i : 2i + 2] of as many rows as only the run knows."""
    two = numpy_helper.from_array(np.array([2], np.int64), "two")
    first = numpy_helper.from_array(np.array([0], np.int64), "first")
    body = helper.make_graph(
        [helper.make_node("Mul", ["i", "two"], ["start"]),
         helper.make_node("Add", ["start", "two"], ["end"]),
         helper.make_node("Slice", ["x", "start", "end", "first"], ["s"]),
         helper.make_node("Identity", ["c"], ["c2"])],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, [])],
        [info("c2", TensorProto.BOOL, []), info("s", TensorProto.FLOAT, None)],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", ""], ["ys"], body=body)], "g",
        [info("x", TensorProto.FLOAT, ["T", 3]), info("n", TensorProto.INT64, [])],
        [info("ys", TensorProto.FLOAT, None)], [two, first],
    )  # fmt: skip
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    engine = braze.build(m, target=target, optimization_level=level)
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    for trips in (4, 1, 3):
        got = engine({"x": x, "n": np.array(trips)})["ys"]
        np.testing.assert_array_equal(got, x[: 2 * trips].reshape(trips, 2, 3))
    with pytest.raises(braze.BrazeError, match="axis 0 of 's' must be as long in all iterations"):
        engine({"x": x[:7], "n": np.array(4)})
