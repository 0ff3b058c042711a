"""Elementwise ops move in front of Reshapes; values are equal bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dims import sym
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.move.shape import Reshape
from braze.ops.pointwise.activation import PRelu, Relu
from braze.ops.product.matmul import MatMul
from braze.passes.base import PassContext
from braze.passes.shapes.simplify_shapes import simplify_shapes
from braze.passes.shapes.sink_reshapes import sink_reshapes
from tests.passes.rule_checks import Net, ops

N = sym("n")


def product(g: Net, *shape: object) -> Value:
    """A matrix product of shape [n, 12] under another shape."""
    y = g.add1(MatMul(), g.tensor("x", N, 5), g.random(5, 12))
    return g.add1(Reshape(shape), y)  # type: ignore[arg-type]


def check(g: Net, y: Value, expected: list[str]) -> Graph:
    graph = g.finish([("y", y)])
    ctx = PassContext()
    after = simplify_shapes(sink_reshapes(simplify_shapes(graph, ctx), ctx), ctx)
    verify(after, graph)
    assert ops(after) == expected
    rng = np.random.default_rng(2)
    feeds = {
        v.name: rng.standard_normal([d if isinstance(d, int) else 4 for d in v.shape]).astype("f4")
        for v in graph.inputs
    }
    want, got = evaluate(graph, feeds)["y"], evaluate(after, feeds)["y"]
    assert want.shape == got.shape
    np.testing.assert_array_equal(got, want)
    return after


@pytest.mark.parametrize("bias", [(12,), (1, 12), (1, 1, 12), (), (1,), (1, 1, 1, 1)])
def test_unit_axis(bias: tuple[int, ...]) -> None:
    g = Net()
    y = product(g, 1, N, 12)
    if len(bias) > 3:
        y = g.add1(Reshape((1, 1, N, 12)), y)
    y = g.add1(Relu(), g.op2("add", g.random(*bias), y))
    check(g, y, ["MatMul", "Add", "Relu", "Reshape"])


def test_residual_of_the_same_shape() -> None:
    g = Net()
    r = g.tensor("r", N, 3, 4)
    y = g.op2("mul", g.op2("add", product(g, N, 3, 4), r), r)
    after = check(g, y, ["MatMul", "Reshape", "Add", "Reshape", "Mul", "Reshape"])
    assert after.nodes[2].output.shape == (N, 12)


def test_two_reshapes_of_one_value() -> None:
    g = Net()
    y = product(g, N, 3, 4)
    y = g.op2("mul", y, g.op1("tanh", y))
    check(g, y, ["MatMul", "Tanh", "Mul", "Reshape"])


@pytest.mark.parametrize("shape", [(4,), (3, 1), (1, 3, 1)])
def test_operand_that_broadcasts_inside_a_group(shape: tuple[int, ...]) -> None:
    g = Net()
    check(g, g.op2("add", product(g, N, 3, 4), g.random(*shape)), ["MatMul", "Reshape", "Add"])


def test_operand_that_enlarges_the_result() -> None:
    g = Net()
    y = g.op2("add", product(g, N, 1, 12), g.random(2, 12))
    check(g, y, ["MatMul", "Reshape", "Add"])


def test_dynamic_operand_along_a_whole_group() -> None:
    g = Net()
    y = g.op2("add", product(g, N, 3, 4), g.tensor("r", N, 1, 1))
    check(g, y, ["MatMul", "Reshape", "Add", "Reshape"])


def test_constant_under_a_symbolic_shape() -> None:
    # [n, 12] is only taken to be [1, 12] (a guard): the constant has no shape [n, 12]
    g = Net()
    x = g.add1(Relu(), g.tensor("x", N, 12))
    y = g.op2("add", g.add1(Reshape((3, 4)), x), g.random(3, 4))
    graph = g.finish([("y", y)])
    after = sink_reshapes(graph, PassContext())
    verify(after, graph)
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(1, 12)}
    np.testing.assert_array_equal(evaluate(after, feeds)["y"], evaluate(graph, feeds)["y"])


def test_op_that_broadcasts_one_way() -> None:
    g = Net()
    y = g.add1(PRelu(), product(g, N, 1, 12), g.random(1, 12))
    check(g, y, ["MatMul", "PRelu", "Reshape"])


def test_reshape_of_an_input_stays() -> None:
    g = Net()
    y = g.add1(Relu(), g.add1(Reshape((N, 3, 4)), g.tensor("x", N, 12)))
    check(g, y, ["Reshape", "Relu"])
