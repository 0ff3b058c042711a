"""Ops with a constant move to the pieces of a Concat, where every element stays what it was."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import BOOL
from braze.core.trace import Trace
from braze.fusion.partition import lower_nodes, partition
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.move.concat_split import Concat
from braze.ops.product.matmul import MatMul
from braze.passes.base import PassContext
from braze.passes.shapes.enter_concats import enter_concats
from tests.passes.rule_checks import Net, ops

N = sym("n")


def check(g: Net, *outputs: Value) -> Graph:
    graph = g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])
    after = enter_concats(graph, PassContext())
    verify(after, graph)
    rng = np.random.default_rng(0)
    feed = {}
    for v in graph.inputs:
        shape = [d if isinstance(d, int) else 3 for d in v.shape]
        feed[v.name] = rng.standard_normal(shape).astype(v.dtype.numpy)
    want, got = evaluate(graph, feed), evaluate(after, feed)
    for name, w in want.items():
        np.testing.assert_array_equal(got[name], w)
    assert kernels(after) <= kernels(graph)
    return after


def kernels(graph: Graph) -> int:
    return len(partition(graph, lower_nodes(graph), Trace()).regions)


def joined(g: Net, axis: int = 1) -> Value:
    shapes = {0: ((1, 6), (4, 6)), 1: ((N, 2), (N, 3), (N, 1))}[axis]
    return g.add1(Concat(axis), *(g.tensor(f"x{i}", *s) for i, s in enumerate(shapes)))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(6,), (1, 6), (1, 1), (), (5, 1), (5, 6)])
@pytest.mark.parametrize("turned", [False, True])
def test_constants_of_every_shape(shape: tuple[int, ...], axis: int, turned: bool) -> None:
    if shape[:1] == (5,) and axis:
        shape = (1, *shape[1:])
    g = Net()
    x, c = joined(g, axis), g.random(*shape)
    after = check(g, g.op2("sub", c, x) if turned else g.op2("sub", x, c))
    assert ops(after)[-1] == "Concat"


def test_a_product_takes_its_part() -> None:
    g = Net()
    product = g.add1(MatMul(), g.tensor("x", N, 4, 5), g.random(5, 6))
    y = g.op2("add", g.add1(Concat(1), g.tensor("first", N, 1, 6), product), g.random(5, 6))
    assert kernels(check(g, y)) == 2


def _read_twice(g: Net) -> list[Value]:
    x = joined(g)
    return [g.op2("add", x, g.random(6)), g.op1("neg", x)]


def _output(g: Net) -> list[Value]:
    x = joined(g)
    return [g.op2("add", x, g.random(6)), x]


def _grows(g: Net) -> list[Value]:
    return [g.op2("add", joined(g), g.random(2, 1, 6))]


def _no_constant(g: Net) -> list[Value]:
    return [g.op2("add", joined(g), g.tensor("c", 6))]


def _dynamic(g: Net) -> list[Value]:
    return [g.op2("add", g.add1(Concat(0), g.tensor("a", N, 6), g.tensor("b", N, 6)), g.random(6))]


MISSES = (_read_twice, _output, _grows, _no_constant, _dynamic)


@pytest.mark.parametrize("case", MISSES, ids=lambda f: f.__name__.strip("_"))
def test_near_misses(case: Callable[[Net], list[Value]]) -> None:
    g = Net()
    outputs = case(g)
    before = [n.op.name for n in g.nodes]
    assert ops(check(g, *outputs)) == before


def test_no_numbers_at_all() -> None:
    g = Net()
    x = g.add1(Concat(1), g.tensor("a", N, 2, dtype=BOOL), g.tensor("b", N, 4, dtype=BOOL))
    assert ops(check(g, g.op2("and", x, g.const([True, False] * 3, "bool")))) == [
        "And", "And", "Concat",
    ]  # fmt: skip
