"""Projections become one product only in front of one attention; sums are the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.target import Preferences
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.abilities import Unlimited
from braze.ops.evaluator import evaluate
from braze.ops.move.shape import Reshape
from braze.ops.product.attention import FusedAttention
from braze.ops.product.matmul import MatMul
from braze.passes.base import PassContext
from braze.passes.rules.merge_projections import merge_projections
from tests.passes.rule_checks import Net, ops

N, S, H, D = sym("n"), 3, 2, 4
E = H * D
LIKES = PassContext(backend=Unlimited(Preferences(joint_projections=True)))


def projection(g: Net, x: Value, bias: str = "") -> Value:
    y = g.add1(MatMul(), x, g.random(6, E))
    if bias:
        b = g.random(E)
        y = g.op2("add", b, y) if bias == "left" else g.op2("add", y, b)
    return y


def heads(g: Net, y: Value) -> Value:
    return g.add1(Reshape((N, S, H, D)), y)


def attend(g: Net, *operands: Value, layout: str = "BSHD") -> Value:
    op = FusedAttention(0.5, False, *["BSHD"] * 2, layout, "BSHD")
    return g.add1(op, *operands)


def check(g: Net, *outputs: Value, context: PassContext = LIKES) -> Graph:
    graph = g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])
    after = merge_projections(graph, context)
    verify(after, graph)
    rng = np.random.default_rng(0)
    feed = {}
    for v in graph.inputs:
        shape = [d if isinstance(d, int) else 2 for d in v.shape]
        feed[v.name] = rng.standard_normal(shape).astype(np.float32)
    want, got = evaluate(graph, feed), evaluate(after, feed)
    for name, w in want.items():
        # numpy's own product may add in another order for another width
        np.testing.assert_allclose(got[name], w, rtol=1e-5, atol=1e-6)
    return after


@pytest.mark.parametrize("bias", ["", "left", "right"])
@pytest.mark.parametrize("masked", [False, True])
def test_one_product(bias: str, masked: bool) -> None:
    g = Net()
    x = g.tensor("x", N, S, 6)
    mask = [g.tensor("mask", 1, 1, S, S)] if masked else []
    y = attend(g, *(heads(g, projection(g, x, bias)) for _ in range(3)), *mask)
    after = check(g, y)
    assert ops(after).count("MatMul") == 1
    (attention,) = [n for n in after.nodes if n.op.name == "FusedAttention"]
    assert attention.op.packed and len(attention.inputs) == 1 + masked


MISSES = (
    "not wanted", "other input", "second user", "biased apart", "one tensor twice", "no constant",
    "an output", "other size",
)  # fmt: skip


@pytest.mark.parametrize("case", MISSES)
def test_near_misses(case: str) -> None:
    g = Net()
    x = g.tensor("x", N, S, 6)
    other = g.tensor("z", N, S, 6) if case == "other input" else x
    projections = [
        projection(g, x, "left"),
        projection(g, other, "" if case == "biased apart" else "left"),
        projection(g, x, "left"),
    ]
    if case == "no constant":
        projections[2] = g.add1(MatMul(), x, g.tensor("w", 6, E))
    q, k, v = (heads(g, p) for p in projections)
    if case == "one tensor twice":
        v = k
    if case == "other size":
        v = g.add1(Reshape((N, S, H, 2)), g.add1(MatMul(), x, g.random(6, 2 * H)))
    extra = {
        "second user": [g.op1("neg", projections[0])] if case == "second user" else [],
        "an output": [projections[1]],
    }.get(case, [])
    y = attend(g, q, k, v)
    context = PassContext() if case == "not wanted" else LIKES
    after = check(g, y, *extra, context=context)
    assert not any(n.op.packed for n in after.nodes if n.op.name == "FusedAttention")
