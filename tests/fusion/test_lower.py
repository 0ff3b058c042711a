"""Kernels of fused regions, run by the numpy backend, equal the graph run op by op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F32, I64
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.evaluator import evaluate
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import Expand, Reshape, Transpose
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.pointwise.activation import Gelu, Relu, Sigmoid
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.reduce import Reduce
from braze.ops.reduce.softmax import Softmax
from tests.fusion.run import run_kernels

# both sides compute in float32; only the order of a sum may differ
TOLERANCE = 1e-5


def check(g: GraphBuilder, outputs: list[Value], inputs: dict[str, Any]) -> None:
    graph = g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])
    want = evaluate(graph, inputs)
    for options in ({}, {"fallback": True}, {"fuse": False}):
        got = run_kernels(graph, inputs, **options)
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=TOLERANCE, atol=TOLERANCE)


def rand(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def builder(*shape: Any) -> tuple[GraphBuilder, Value]:
    g = GraphBuilder()
    return g, g.input("x", TensorType(F32, shape))


def test_matmul_epilogue_with_batched_rows() -> None:
    g, x = builder(2, 5, 8)
    w, b = g.constant(rand(8, 6)), g.constant(rand(6, seed=1))
    position = g.constant(rand(1, 5, 6, seed=2))
    residual = g.input("r", TensorType(F32, (2, 5, 6)))
    h = g.add1(Binary("add"), g.add1(MatMul(), x, w), b)
    y = g.add1(Binary("add"), g.add1(Binary("add"), g.add1(Gelu(), h), residual), position)
    check(g, [y], {"x": rand(2, 5, 8), "r": rand(2, 5, 6, seed=5)})


def test_matmul_epilogue_behind_a_reshape() -> None:
    g, x = builder(sym("b"), 6)
    m = g.add1(Reshape((sym("b"), 2, 4)), g.add1(MatMul(), x, g.constant(rand(6, 8))))
    y = g.add1(Binary("mul"), m, g.constant(rand(2, 1, seed=3)))
    check(g, [y], {"x": rand(3, 6)})


@pytest.mark.parametrize(
    "shapes", [((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 3)), ((2, 3, 4), (2, 4, 5))]
)
def test_matmul_ranks(shapes: Any) -> None:
    g, x = builder(*shapes[0])
    y = g.add1(Relu(), g.add1(MatMul(), x, g.constant(rand(*shapes[1], seed=1))))
    check(g, [y], {"x": rand(*shapes[0])})


def test_softmax_with_mask_and_scale() -> None:
    g, x = builder(2, 3, 7)
    mask = g.constant(rand(1, 1, 7, seed=1))
    s = g.add1(Binary("add"), g.add1(Binary("mul"), x, g.constant(np.float32(0.3))), mask)
    y = g.add1(Binary("mul"), g.add1(Softmax(2, False), s), g.constant(rand(3, 1, seed=2)))
    check(g, [y], {"x": rand(2, 3, 7)})


def test_reduction_with_prologue_and_epilogue() -> None:
    g, x = builder(4, sym("n"), 5)
    r = g.add1(Reduce("mean", (1,), True), g.add1(Binary("mul"), x, x))
    check(g, [g.add1(Unary("sqrt"), r), g.add1(Sigmoid(), x)], {"x": rand(4, 6, 5)})


def test_views_inside_pointwise_kernels() -> None:
    g, x = builder(4, 6)
    sliced = g.add1(Slice((1, 0), (2, 3), (1, 2)), g.add1(Unary("exp"), x))
    padded = g.add1(Pad("constant", (0, 1), (0, 0), 7.0), sliced)
    wide = g.add1(Expand((3, 2, 4)), padded)
    y = g.add1(Binary("add"), wide, g.add1(Transpose((0, 2, 1)), g.constant(rand(3, 4, 2))))
    check(g, [y], {"x": rand(4, 6)})


def test_gather_range_check_survives_fusion() -> None:
    g, x = builder(4, 6)
    ids = g.input("i", TensorType(I64, (3,)))
    y = g.add1(Relu(), g.add1(Gather(0), g.add1(Unary("exp"), x), ids))
    check(g, [y], {"x": rand(4, 6), "i": np.array([3, -1, 0])})
    graph = g.finish([("y", y)])
    with pytest.raises(Exception, match="range"):
        run_kernels(graph, {"x": rand(4, 6), "i": np.array([0, 4, 0])})


def test_concat_of_computed_parts() -> None:
    g, x = builder(2, 3, 4)
    parts = [g.add1(Unary("exp"), x), g.add1(Relu(), x), x]
    y = g.add1(Binary("add"), g.add1(Concat(1), *parts), g.constant(rand(9, 1)))
    check(g, [y, parts[0]], {"x": rand(2, 3, 4)})


def test_value_with_two_homes_is_computed_for_both() -> None:
    g, x = builder(4, 6)
    small = g.add1(Unary("neg"), x)
    a = g.add1(Reduce("sum", (1,), False), small)
    b = g.add1(Binary("mul"), g.add1(MatMul(), x, g.constant(rand(6, 6))), small)
    check(g, [a, b], {"x": rand(4, 6)})
