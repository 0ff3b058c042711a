"""Ops that only move elements: merged, dropped, and never at the cost of one wrong element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32, F64, I32
from braze.ir.graph import Value
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat, Split
from braze.ops.move.shape import Expand, Reshape, Tile, Transpose
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.reduce.softmax import Softmax
from braze.passes.base import PassContext
from braze.passes.shapes.simplify_shapes import simplify_shapes
from tests.passes.rule_checks import Net, ops

N = sym("n")
Build = Callable[[Net, Value], Value]


def window(g: Net, x: Value, start: int, size: int, step: int = 1) -> Value:
    return g.add1(Slice((0, start, 0), (N, size, 4), (1, step, 1)), x)


def move(g: Net, x: Value, *perm: int) -> Value:
    return g.add1(Transpose(perm), x)


# x is [n, 6, 4]
def _mask(g: Net, shape: tuple[object, ...]) -> Value:
    """A number for each row, repeated; before it is, the builder computes it."""
    wide = g.add1(Expand(shape), g.const([[True], [False]] * 3, "bool"))  # type: ignore[arg-type]
    low = g.add1(Where(), wide, g.const(0, "float64"), g.const(5, "float64"))
    return g.add1(Cast(F32), g.op1("neg", low))


CASES: dict[str, tuple[Build, list[str]]] = {
    "reshape to the same": (lambda g, x: g.add1(Reshape((N, 6, 4)), x), []),
    "reshape of reshape": (
        lambda g, x: g.add1(Reshape((N, 24)), g.add1(Reshape((N, 4, 6)), x)),
        ["Reshape"],
    ),
    "reshape there and back": (
        lambda g, x: g.add1(Reshape((N, 6, 4)), g.add1(Reshape((N * 24,)), x)),
        [],
    ),
    "identity transpose": (lambda g, x: move(g, x, 0, 1, 2), []),
    "transpose there and back": (lambda g, x: move(g, move(g, x, 1, 2, 0), 2, 0, 1), []),
    "transpose of transpose": (lambda g, x: move(g, move(g, x, 1, 0, 2), 0, 2, 1), ["Transpose"]),
    "transpose of a unit axis": (
        lambda g, x: move(g, g.add1(Reshape((N, 1, 24)), x), 0, 2, 1),
        ["Reshape"],
    ),
    "transpose of two axes": (lambda g, x: move(g, x, 0, 2, 1), ["Transpose"]),
    "expand to the same": (lambda g, x: g.add1(Expand((N, 6, 4)), x), []),
    "expand of expand": (
        lambda g, x: g.add1(
            Expand((2, N, 6, 4)), g.add1(Expand((2, N, 6, 4)), g.add1(Reshape((1, N, 6, 4)), x))
        ),
        ["Reshape", "Expand"],
    ),
    "tile once": (lambda g, x: g.add1(Tile((1, 1, 1)), x), []),
    "tile a unit axis": (
        lambda g, x: g.add1(Tile((1, 3, 1)), g.add1(Reshape((N, 1, 24)), x)),
        ["Reshape", "Expand"],
    ),
    "tile": (lambda g, x: g.add1(Tile((1, 2, 1)), x), ["Tile"]),
    "slice all": (lambda g, x: window(g, x, 0, 6), []),
    "slice backwards": (lambda g, x: window(g, x, 5, 6, -1), ["Slice"]),
    "slice of slice": (lambda g, x: window(g, window(g, x, 1, 5), 3, 2, -2), ["Slice"]),
    "slice backwards twice": (lambda g, x: window(g, window(g, x, 5, 6, -1), 5, 6, -1), []),
    "pad nothing": (lambda g, x: g.add1(Pad("edge", (0, 0, 0), (0, 0, 0)), x), []),
    "concat of one": (lambda g, x: g.add1(Concat(1), x), []),
    "concat of concat": (
        lambda g, x: g.add1(Concat(1), x, g.add1(Concat(1), x, g.op1("neg", x))),
        ["Neg", "Concat"],
    ),
    "concat along another axis": (
        lambda g, x: g.add1(
            Concat(1), g.add1(Concat(2), x, x), g.add1(Concat(2), g.op1("neg", x), x)
        ),
        ["Concat", "Neg", "Concat", "Concat"],
    ),
    "concat with nothing": (lambda g, x: g.add1(Concat(1), window(g, x, 2, 0), x), []),
    "split into one": (lambda g, x: g.add1(Split(1, (6,)), x), []),
    "cast to the same": (lambda g, x: g.add1(Cast(F32), x), []),
    "cast there and back": (lambda g, x: g.add1(Cast(F32), g.add1(Cast(F64), x)), []),
    "cast through a larger type": (
        lambda g, x: g.add1(Cast(F16), g.add1(Cast(F64), x)),
        ["Cast"],
    ),
    "cast through a smaller type": (
        lambda g, x: g.add1(Cast(F32), g.add1(Cast(BF16), x)),
        ["Cast", "Cast"],
    ),
    "cast through integers": (
        lambda g, x: g.add1(Cast(F32), g.add1(Cast(I32), x)),
        ["Cast", "Cast"],
    ),
    "operand that broadcasts anyway": (
        lambda g, x: g.op2("add", g.add1(Expand((N, 6, 4)), g.random(4)), x),
        ["Add"],
    ),
    "operand that gives a size": (
        lambda g, x: g.op2("add", g.add1(Expand((3, N, 6, 4)), g.random(4)), x),
        ["Expand", "Add"],
    ),
    "mask that an op broadcasts": (
        lambda g, x: g.op2("add", _mask(g, (N, 6, 4)), x),
        ["Add"],
    ),
    "mask that gives a size": (
        lambda g, x: g.op2("add", _mask(g, (3, N, 6, 4)), x),
        ["Expand", "Add"],
    ),
    "mask that is read as a whole": (
        lambda g, x: g.op2(
            "add", g.add1(Softmax(2), g.op2("mul", _mask(g, (N, 6, 4)), _mask(g, (N, 6, 4)))), x
        ),
        ["Expand", "Mul", "Softmax", "Add"],
    ),
    "compared operand": (
        lambda g, x: g.add1(Compare("lt"), g.add1(Expand((N, 6, 4)), g.random(6, 1)), x),
        ["Less"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_case(case: str) -> None:
    build, expected = CASES[case]
    g = Net()
    y = build(g, g.tensor("x", N, 6, 4))
    graph = g.finish([("y", y)])
    after = simplify_shapes(graph, PassContext())
    verify(after, graph)
    assert ops(after) == expected
    if not expected:
        assert after.outputs[0][1] is after.inputs[0]
    feed = {"x": np.random.default_rng(0).standard_normal((3, 6, 4)).astype(np.float32)}
    want, got = evaluate(graph, feed)["y"], evaluate(after, feed)["y"]
    assert want.dtype == got.dtype and want.shape == got.shape
    np.testing.assert_array_equal(got, want)


def test_inner_ops_with_other_users_stay_but_are_read_through() -> None:
    g = Net()
    x = g.tensor("x", N, 6, 4)
    inner = move(g, x, 0, 2, 1)
    graph = g.finish([("a", inner), ("b", move(g, inner, 0, 2, 1))])
    after = simplify_shapes(graph, PassContext())
    assert ops(after) == ["Transpose"] and after.outputs[1][1] is after.inputs[0]


def test_empty_tensor_reshape_keeps_its_shape() -> None:
    """X[0,8,2] -> [4,2,0] -> [0,0,4]: the sizes in between do not matter, the last ones do."""
    g = Net()
    x = g.tensor("x", 0, 8, 2)
    y = g.add1(Reshape((0, 0, 4)), g.add1(Reshape((4, 2, 0)), x))
    after = simplify_shapes(g.finish([("y", y)]), PassContext())
    assert ops(after) == ["Reshape"] and after.outputs[0][1].shape == (0, 0, 4)


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        (1, ["Slice", "Reshape"]),
        (-1, ["Slice", "Reshape"]),
        ([2], ["Slice"]),
        ([1, 2, 3], ["Slice"]),
        ([5, 3, 1], ["Slice"]),
        ([0, 1, 3], ["Gather"]),
        ([1, 2, 2], ["Gather"]),
        ([[3, 1], [0, 2]], ["Gather"]),
        ([1, 1], ["Slice", "Expand"]),
        ([[-1, 5], [5, 5]], ["Slice", "Reshape", "Expand"]),
        ([[0], [1]], ["Slice", "Reshape"]),
    ],
)
def test_constant_indices(indices: object, expected: list[str]) -> None:
    g = Net()
    y = g.add1(Gather(1), g.tensor("x", N, 6, 4), g.const(indices, "int64"))
    graph = g.finish([("y", y)])
    after = simplify_shapes(graph, PassContext())
    verify(after, graph)
    assert ops(after) == expected
    feed = {"x": np.random.default_rng(0).standard_normal((3, 6, 4)).astype(np.float32)}
    np.testing.assert_array_equal(evaluate(after, feed)["y"], evaluate(graph, feed)["y"])


def test_index_out_of_range_is_left_for_run_time() -> None:
    g = Net()
    y = g.add1(Gather(1), g.tensor("x", N, 6, 4), g.const(6, "int64"))
    graph = g.finish([("y", y)])
    assert simplify_shapes(graph, PassContext()) is graph
