"""Heads that share keys and values become rows of one head, and give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.target import Preferences
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.abilities import Unlimited
from braze.ops.evaluator import evaluate
from braze.ops.move.shape import Expand, Reshape
from braze.ops.product.attention import LAYOUTS, FusedAttention
from braze.passes.base import PassContext
from braze.passes.rules.group_queries import group_queries
from tests.passes.rule_checks import Net, ops

LIKES = PassContext(backend=Unlimited(Preferences(grouped_queries=True)))
B, G, R, S, D, V = sym("n"), 2, 3, 5, 4, 6


def placed(logical: tuple[Any, ...], layout: str) -> tuple[Any, ...]:
    """Batch, heads, sequence, head size in the order of a layout."""
    shape: list[Any] = [0] * 4
    for axis, size in zip(LAYOUTS[layout], logical, strict=True):
        shape[axis] = size
    return tuple(shape)


def repeated(g: Net, name: str, size: int, layout: str, groups: int, after: int = 1) -> Value:
    """Keys or values, each head R times in a row; after: at which place behind the heads."""
    few = placed((B, groups, S, size), layout)
    heads = LAYOUTS[layout][1]
    at = heads + after
    x = g.add1(Reshape((*few[:at], 1, *few[at:])), g.tensor(name, *few))
    wide = (*few[:at], R, *few[at:])
    merged = list(few)
    merged[heads] = groups * R
    return g.add1(Reshape(tuple(merged)), g.add1(Expand(wide), x))


def check(g: Net, y: Value, context: PassContext = LIKES) -> Graph:
    graph = g.finish([("y", y)])
    after = group_queries(graph, context)
    verify(after, graph)
    rng = np.random.default_rng(5)
    feeds = {}
    for v in graph.inputs:
        shape = [d if isinstance(d, int) else 2 for d in v.shape]
        feeds[v.name] = rng.standard_normal(shape).astype(np.float32)
    want, got = evaluate(graph, feeds)["y"], evaluate(after, feeds)["y"]
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)
    return after


def net(
    k_layout: str = "BHSD", v_layout: str = "BHSD", q_layout: str = "BHSD", rows: int = 1,
    mask: bool = False, after: int = 1, causal: bool = False,
) -> tuple[Net, Value]:  # fmt: skip
    g = Net()
    q = g.tensor("q", *placed((B, G * R, rows, D), q_layout))
    k = repeated(g, "k", D, k_layout, G, after)
    v = repeated(g, "v", V, v_layout, G)
    extra = (g.random(rows, S),) if mask else ()
    op = FusedAttention(0.5, causal, q_layout, k_layout, v_layout, "BSHD")
    return g, g.add1(op, q, k, v, *extra)


@pytest.mark.parametrize("q_layout", ["BHSD", "BSHD"])
@pytest.mark.parametrize(
    ("k_layout", "v_layout"), [("BHSD", "BHSD"), ("BSHD", "BHSD"), ("BHDS", "BSHD")]
)
@pytest.mark.parametrize("causal", [False, True])
def test_heads_become_rows(q_layout: str, k_layout: str, v_layout: str, causal: bool) -> None:
    """The last query sees every key, so that a causal attention of one is a plain one."""
    after = check(*net(k_layout, v_layout, q_layout, causal=causal))
    assert "Expand" not in ops(after)
    (attention,) = [n for n in after.nodes if isinstance(n.op, FusedAttention)]
    assert attention.inputs[0] is not None and attention.inputs[0].shape == (B, G, R, D)
    assert not attention.op.causal


@pytest.mark.parametrize("changed", [{"rows": 2}, {"mask": True}])
def test_near_misses(changed: dict[str, Any]) -> None:
    assert ops(check(*net(**changed))).count("Expand") == 2


def test_heads_that_are_repeated_as_a_whole_stay() -> None:
    """0 1 0 1 is no 0 0 1 1."""
    g = Net()
    q = g.tensor("q", B, G * R, 1, D)
    whole = []
    for name, size in (("k", D), ("v", V)):
        x = g.add1(Reshape((B, 1, G, S, size)), g.tensor(name, B, G, S, size))
        whole.append(g.add1(Reshape((B, G * R, S, size)), g.add1(Expand((B, R, G, S, size)), x)))
    assert ops(check(g, g.add1(FusedAttention(0.5), q, *whole))).count("Expand") == 2


def test_only_where_it_pays() -> None:
    assert ops(check(*net(), PassContext())).count("Expand") == 2
