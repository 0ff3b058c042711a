"""Attention in the spellings of exporters, and where it must stay as it is.

Tolerance 2e-6 of the largest result: float32 sums of at most 8 products and a softmax, with the
scale applied at another place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import BF16, BOOL, F16, F32, I64, DType
from braze.expr.loops import TensorSpec
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.abilities import Unlimited
from braze.ops.evaluator import evaluate
from braze.ops.lowering import AnchorSpec
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.move.slice_pad import Slice
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.compare import IsNaN, Where
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.softmax import Softmax
from braze.passes.base import PassContext, run_passes
from braze.passes.pipeline import ATTENTION
from braze.passes.rules.fuse_attention import fuse_attention
from tests.passes.rule_checks import Net, ops, refusals

RTOL = 2e-6
N, S, H, D = sym("n"), 5, 2, 4


def check(g: Net, y: Value, *more: Value, rtol: float = RTOL) -> tuple[Graph, PassContext]:
    graph = g.finish([(f"y{i}", v) for i, v in enumerate((y, *more))])
    ctx = PassContext()
    after = run_passes(graph, ATTENTION, ctx)
    verify(after, graph)
    rng = np.random.default_rng(5)
    feeds = {}
    for v in graph.inputs:
        shape = [d if isinstance(d, int) else 3 for d in v.shape]
        content = rng.standard_normal(shape) * 2
        feeds[v.name] = (content > 0 if v.dtype in (BOOL, I64) else content).astype(v.dtype.numpy)
    want, got = evaluate(graph, feeds), evaluate(after, feeds)
    for name, w in want.items():
        assert np.isfinite(w).all()
        top = float(np.abs(w).max())
        np.testing.assert_allclose(got[name], w, rtol=0, atol=rtol * top)
    return after, ctx


def heads(g: Net, name: str, *perm: int) -> Value:
    x = g.add1(Reshape((N, S, H, D)), g.tensor(name, N, S, H * D))
    return g.add1(Transpose(perm), x)


def operands(g: Net) -> tuple[Value, Value, Value]:
    return heads(g, "q", 0, 2, 1, 3), heads(g, "k", 0, 2, 3, 1), heads(g, "v", 0, 2, 1, 3)


def finish(g: Net, scores: Value, v: Value, guard: bool = False) -> Value:
    p = g.add1(Softmax(3), scores)
    if guard:
        p = g.add1(Where(), g.add1(IsNaN(), p), g.const(0.0), p)
    y = g.add1(Transpose((0, 2, 1, 3)), g.add1(MatMul(), p, v))
    return g.add1(Reshape((N, S, H * D)), y)


def fused(after: Graph) -> object:
    assert set(ops(after)) <= {"Reshape", "FusedAttention", "Add", "Where", "Cast", "Sub", "Mul"}
    (op,) = [n.op for n in after.nodes if n.op.name == "FusedAttention"]
    assert op.q_layout == op.k_layout == op.v_layout == op.out_layout == "BSHD"
    return op


@pytest.mark.parametrize("where", ["none", "scores", "divided", "q", "k", "both", "k divided"])
def test_scales(where: str) -> None:
    g = Net()
    q, k, v = operands(g)
    if where in ("q", "both"):
        q = g.op2("mul", 0.5, q)
    if where in ("k", "both"):
        k = g.op2("mul", k, 0.5)
    if where == "k divided":
        k = g.op2("div", k, 4.0)
    scores = g.add1(MatMul(), q, k)
    if where == "scores":
        scores = g.op2("mul", scores, 0.25)
    if where == "divided":
        scores = g.op2("div", scores, 2.0)
    after, _ = check(g, finish(g, scores, v))
    expected = {"none": 1, "scores": 0.25, "divided": 0.5, "q": 0.5, "k": 0.5, "both": 0.25,
                "k divided": 0.25}  # fmt: skip
    assert fused(after).scale == expected[where]


@pytest.mark.parametrize("shape", [(S, S), (1, H, S, S), (1, 1, 1, S), (S,), (1, 1, S, 1), ()])
def test_constant_masks(shape: tuple[int, ...]) -> None:
    g = Net()
    q, k, v = operands(g)
    scores = g.op2("add", g.random(*shape), g.op2("mul", g.add1(MatMul(), q, k), 0.5))
    fused(check(g, finish(g, scores, v))[0])


@pytest.mark.parametrize("low", [-np.inf, -3.4e38])
def test_causal_masks(low: float) -> None:
    g = Net()
    q, k, v = operands(g)
    mask = np.where(np.tri(S, dtype=bool), 0, low)[None, None]
    after, _ = check(g, finish(g, g.op2("add", g.add1(MatMul(), q, k), g.const(mask)), v))
    assert fused(after).causal
    assert all(len(n.inputs) == 3 for n in after.nodes if n.op.name == "FusedAttention")


def test_masks_that_are_not_quite_causal() -> None:
    for change in ((0, 0), (0, 1), (3, 1)):
        g = Net()
        q, k, v = operands(g)
        mask = np.where(np.tri(S, dtype=bool), 0, -3e38)
        mask[change] = -1.0
        after, _ = check(g, finish(g, g.op2("add", g.add1(MatMul(), q, k), g.const(mask)), v))
        assert not fused(after).causal


def test_mask_computed_from_integers() -> None:
    """(1 - mask) * lowest float, as BERT exports have it."""
    g = Net()
    q, k, v = operands(g)
    wide = g.add1(Reshape((N, 1, 1, S)), g.tensor("mask", N, S, dtype=I64))
    mask = g.op2("mul", g.op2("sub", 1.0, g.add1(Cast(F32), wide)), -3e38)
    fused(check(g, finish(g, g.op2("add", g.add1(MatMul(), q, k), mask), v))[0])


@pytest.mark.parametrize("low", [-np.inf, -3.4e38])
@pytest.mark.parametrize("guard", [True, False])
def test_masks_by_selection(low: float, guard: bool) -> None:
    g = Net()
    q, k, v = operands(g)
    visible = g.tensor("visible", N, 1, S, S, dtype=BOOL)
    scores = g.add1(Where(), visible, g.add1(MatMul(), q, k), g.const(low))
    y = finish(g, scores, v, guard)
    graph = g.finish([("y", y)])
    ctx = PassContext()
    after = run_passes(graph, ATTENTION, ctx)
    rng = np.random.default_rng(1)
    feeds = {n: rng.standard_normal((3, S, H * D)).astype(np.float32) for n in "qkv"}
    feeds["visible"] = rng.standard_normal((3, 1, S, S)) > 0
    feeds["visible"][1, 0, 2] = False
    want, got = evaluate(graph, feeds)["y"], evaluate(after, feeds)["y"]
    np.testing.assert_allclose(got, want, rtol=0, atol=RTOL * np.nanmax(np.abs(want)))
    if np.isinf(low) and not guard:
        assert np.isnan(want).any() and after is graph
        assert any("without keys" in r for r in refusals(ctx))
    else:
        fused(after)


def test_relative_position_bias_and_mask() -> None:
    g = Net()
    q, k, v = operands(g)
    scores = g.op2("add", g.op2("mul", g.add1(MatMul(), q, k), 0.5), g.random(1, H, S, S))
    scores = g.op2("add", scores, g.const(np.where(np.eye(S), 0.0, -100.0)))
    fused(check(g, finish(g, scores, v))[0])


def test_key_transposed_inside_reshapes() -> None:
    g = Net()
    q, v = heads(g, "q", 0, 2, 1, 3), heads(g, "v", 0, 2, 1, 3)
    k = g.add1(Reshape((N * H, S, D)), heads(g, "k", 0, 2, 1, 3))
    k = g.add1(Reshape((N, H, D, S)), g.add1(Transpose((0, 2, 1)), k))
    scores = g.add1(MatMul(), g.op2("mul", q, 0.5), g.op2("mul", k, 0.5))
    assert fused(check(g, finish(g, scores, v))[0]).scale == 0.25


def test_query_key_and_value_transposed_as_one_tensor() -> None:
    g = Net()
    x = g.add1(Reshape((N, S, 3, H, D)), g.tensor("x", N, S, 3 * H * D))
    x = g.add1(Transpose((2, 0, 3, 1, 4)), x)
    parts = []
    for i in range(3):
        part = g.add1(Slice((i, 0, 0, 0, 0), (1, N, H, S, D), (1,) * 5), x)
        parts.append(g.add1(Reshape((N, H, S, D)), part))
    q, k, v = parts
    scores = g.add1(MatMul(), q, g.add1(Transpose((0, 1, 3, 2)), k))
    after, _ = check(g, finish(g, scores, v))
    assert "Transpose" not in ops(after)
    (op,) = [n.op for n in after.nodes if n.op.name == "FusedAttention"]
    assert op.q_layout == op.k_layout == op.v_layout == "BSHD"


def test_key_that_comes_as_head_size_by_length() -> None:
    g = Net()
    q, v = heads(g, "q", 0, 2, 1, 3), heads(g, "v", 0, 2, 1, 3)
    k = g.tensor("k", N, H, D, S)
    after, _ = check(g, finish(g, g.add1(MatMul(), q, k), v))
    (op,) = [n.op for n in after.nodes if n.op.name == "FusedAttention"]
    assert op.k_layout == "BHDS"


def test_batch_and_heads_in_one_axis() -> None:
    """Multi-head attention over [length, batch * heads, head size], as older exports have it."""
    g = Net()
    q, k, v = (g.add1(Reshape((S, N * H, D)), g.tensor(name, S, N, H * D)) for name in "qkv")
    q, v = (g.add1(Transpose((1, 0, 2)), x) for x in (g.op2("mul", q, 0.5), v))
    scores = g.add1(MatMul(), q, g.add1(Transpose((1, 2, 0)), k))
    scores = g.op2("add", scores, g.random(1, S, S))
    y = g.add1(MatMul(), g.add1(Softmax(2), scores), v)
    y = g.add1(Reshape((S, N, H * D)), g.add1(Transpose((1, 0, 2)), y))
    after, _ = check(g, y)
    assert set(ops(after)) <= {"Reshape", "FusedAttention"}
    (op,) = [n.op for n in after.nodes if n.op.name == "FusedAttention"]
    assert op.scale == 0.5
    assert op.q_layout == op.k_layout == op.v_layout == op.out_layout == "BSHD"


@dataclass(frozen=True)
class Wide(Unlimited):
    """A backend whose attention is for float32 alone."""

    def supports(
        self, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        return None if inputs[0].dtype is F32 else "a template for float32"


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("masked", [False, True])
def test_half_types_are_fused_where_there_is_a_template(dtype: DType, masked: bool) -> None:
    """The steps round scores and weights (2**-11 of them, 2**-8 in bfloat16); the fused op does
    not, so the two differ by a few roundings."""
    g = Net()
    q, k, v = (g.tensor(n, N, H, S, D, dtype=dtype) for n in "qkv")
    scores = g.add1(MatMul(), q, g.add1(Transpose((0, 1, 3, 2)), k))
    scores = g.op2("mul", scores, g.const(0.5, dtype.numpy))
    if masked:
        hidden = np.where(np.tri(S, dtype=bool), 0, -60000.0)
        scores = g.op2("add", scores, g.const(hidden, dtype.numpy))
    y = g.add1(MatMul(), g.add1(Softmax(3), scores), v)
    after, _ = check(g, y, rtol=8 * (2**-11 if dtype is F16 else 2**-8))
    assert "FusedAttention" in ops(after)
    assert "FusedAttention" not in ops(run_passes(g.finish([("y", y)]), ATTENTION, NARROW))


NARROW = PassContext(backend=Wide())
MISSES = {
    "half": "rounded",
    "other softmax axis": "not over the keys",
    "unsafe mask": "-inf throughout",
    "row of -inf": "-inf throughout",
    "mask of larger batch": "larger shape",
    "one key head": "broadcast",
    "second user": "another user",
    "scores are an output": "graph output",
    "vector scale": None,
    "infinite scale": None,
    "divisor of zero": None,
}


@pytest.mark.parametrize("case", MISSES)
def test_near_misses(case: str) -> None:
    g = Net()
    dtype = F16 if case == "half" else F32
    q, v = (g.tensor(n, 1, H, S, D, dtype=dtype) for n in "qv")
    k = g.tensor("k", 1, 1 if case == "one key head" else H, D, S, dtype=dtype)
    scores = g.add1(MatMul(), q, k)
    if case == "unsafe mask":
        scores = g.op2("add", scores, g.tensor("mask", 1, 1, 1, S))
    if case == "row of -inf":
        mask = np.zeros((S, S))
        mask[2] = -np.inf
        scores = g.op2("add", scores, g.const(mask))
    if case == "mask of larger batch":
        scores = g.op2("add", scores, g.random(3, 1, S, S))
    if case == "vector scale":
        scores = g.op2("mul", scores, g.random(S))
    if case == "infinite scale":
        scores = g.op2("mul", scores, np.inf)
    if case == "divisor of zero":
        scores = g.op2("div", scores, 0.0)
    p = g.add1(Softmax(2 if case == "other softmax axis" else 3), scores)
    y = g.add1(MatMul(), p, v)
    extra = {"second user": [g.op1("neg", p)] if case == "second user" else [],
             "scores are an output": [scores]}.get(case, [])  # fmt: skip
    graph = g.finish([(f"y{i}", o) for i, o in enumerate((y, *extra))])
    ctx = PassContext(backend=Wide())
    assert fuse_attention(graph, ctx) is graph
    reason = MISSES[case]
    assert reason is None or any(reason in r for r in refusals(ctx)), refusals(ctx)
