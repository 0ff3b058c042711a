"""Convolutions that cut a picture into patches are products of them; others stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.target import Preferences
from braze.ir.graph import Graph
from braze.ir.verify import verify
from braze.ops.abilities import Unlimited
from braze.ops.evaluator import evaluate
from braze.ops.product.conv import Conv
from braze.passes.base import PassContext
from braze.passes.rules.cut_patches import cut_patches
from tests.passes.rule_checks import Net, ops

N = sym("n")
LIKES = PassContext(backend=Unlimited(Preferences(patch_products=True)))


def check(
    x: tuple[Any, ...], w: tuple[int, ...], context: PassContext = LIKES, **changed: Any
) -> Graph:
    """The graph of a convolution of those shapes after the pass."""
    g, count = Net(), len(w) - 2
    window = {"strides": w[2:], "dilations": (1,) * count, "pads": (0,) * (2 * count)}
    y = g.add1(Conv(**{**window, **changed}), g.tensor("x", *x), g.random(*w))
    graph = g.finish([("y", y)])
    after = cut_patches(graph, context)
    verify(after, graph)
    shape = [d if isinstance(d, int) else 2 for d in x]
    feed = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    want, got = evaluate(graph, feed)["y"], evaluate(after, feed)["y"]
    # sums of up to 768 products of normal values, in another order
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    return after


@pytest.mark.parametrize(
    ("x", "w"),
    [
        ((N, 3, 32, 48), (8, 3, 16, 16)),
        ((2, 1, 24, 32), (5, 1, 12, 16)),
        ((N, 4, 64), (6, 4, 32)),
        ((1, 3, 8, 12, 6), (7, 3, 4, 4, 3)),
    ],
)
def test_products_of_patches(x: tuple[Any, ...], w: tuple[int, ...]) -> None:
    after = check(x, w)
    assert "Conv" not in ops(after) and ops(after).count("MatMul") == 1


@pytest.mark.parametrize(
    ("x", "w", "changed"),
    [
        ((1, 3, 32, 48), (8, 3, 16, 16), {"strides": (8, 16)}),
        ((1, 3, 32, 48), (8, 3, 16, 16), {"pads": (0, 0, 16, 0)}),
        ((1, 3, 64, 64), (8, 3, 16, 16), {"dilations": (2, 2)}),
        ((1, 4, 32, 48), (8, 2, 16, 16), {"groups": 2}),
        ((1, 3, 33, 48), (8, 3, 16, 16), {}),  # a rest that no window sees
        ((1, 8, 32, 48), (8, 8, 16, 16), {}),  # channels enough to read
        ((1, 3, 32, 48), (8, 3, 4, 4), {}),  # short sums
        ((1, 3, N, 48), (8, 3, 16, 16), {}),
    ],
)
def test_near_misses(x: tuple[Any, ...], w: tuple[int, ...], changed: dict[str, Any]) -> None:
    if N in x[2:]:
        g = Net()
        conv = Conv((16, 16), (1, 1), (0,) * 4)
        graph = g.finish([("y", g.add1(conv, g.tensor("x", 1, 3, N * 16, 48), g.random(*w)))])
        assert cut_patches(graph, LIKES) is graph
        return
    assert ops(check(x, w, **changed)) == ["Conv"]


def test_it_is_asked_for() -> None:
    assert ops(check((1, 3, 32, 48), (8, 3, 16, 16), PassContext())) == ["Conv"]
