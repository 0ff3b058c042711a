"""Joint projections are split only in front of an attention; sums are the same to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dims import sym
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.move.shape import Reshape
from braze.ops.move.slice_pad import Slice
from braze.ops.product.attention import FusedAttention
from braze.ops.product.matmul import MatMul
from braze.passes.base import PassContext
from braze.passes.rules.split_projections import split_projections
from tests.passes.rule_checks import Net, ops

N, S, H, D = sym("n"), 3, 2, 16
E = H * D


def projection(g: Net, bias: bool) -> Value:
    y = g.add1(MatMul(), g.tensor("x", N, S, 8), g.random(8, 3 * E))
    return g.op2("add", g.random(3 * E), y) if bias else y


def part(g: Net, y: Value, i: int, split_heads: bool) -> Value:
    if split_heads:
        wide = g.add1(Reshape((N, S, 3, H, D)), y) if y.type.rank == 3 else y
        s = g.add1(Slice((0, 0, i, 0, 0), (N, S, 1, H, D), (1,) * 5), wide)
    else:
        s = g.add1(Slice((0, 0, i * E), (N, S, E), (1,) * 3), y)
    return g.add1(Reshape((N, S, H, D)), s)


def attend(g: Net, q: Value, k: Value, v: Value) -> Value:
    return g.add1(FusedAttention(0.25, False, *["BSHD"] * 4), q, k, v)


def check(g: Net, *outputs: Value) -> Graph:
    graph = g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])
    after = split_projections(graph, PassContext())
    verify(after, graph)
    feed = {"x": np.random.default_rng(0).standard_normal((2, S, 8)).astype(np.float32)}
    want, got = evaluate(graph, feed), evaluate(after, feed)
    for name, w in want.items():
        # numpy's own product may add in another order for another width
        np.testing.assert_allclose(got[name], w, rtol=1e-5, atol=1e-6)
    return after


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("split_heads", [False, True])
def test_split(bias: bool, split_heads: bool) -> None:
    g = Net()
    y = projection(g, bias)
    if split_heads:
        y = g.add1(Reshape((N, S, 3, H, D)), y)
    after = check(g, attend(g, *(part(g, y, i, split_heads) for i in range(3))))
    assert ops(after).count("MatMul") == 3 and "Slice" not in ops(after)
    assert ops(after).count("Add") == (3 if bias else 0)
    assert sorted(v.shape for v in after.constants if v.type.rank == 2) == [(8, E)] * 3


@pytest.mark.parametrize("case", ["output", "other user", "pointwise", "rows", "narrow"])
def test_near_misses(case: str) -> None:
    g = Net()
    y = projection(g, True)
    q, k, v = (part(g, y, i, False) for i in range(3))
    extra: list[Value] = []
    if case == "output":
        extra = [y]
    if case == "other user":
        extra = [g.op1("neg", y)]
    if case == "pointwise":
        q = g.op1("neg", q)
    if case == "rows":
        rows = g.add1(Slice((0, 1, 0), (N, 1, 3 * E), (1,) * 3), y)
        extra = [g.add1(Reshape((N, 3 * E)), rows)]
    if case == "narrow":
        extra = [g.add1(Slice((0, 0, 0), (N, S, 4), (1,) * 3), y)]
    graph_ops = ops(check(g, attend(g, q, k, v), *extra))
    assert graph_ops.count("MatMul") == 1
