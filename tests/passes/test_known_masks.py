"""Masks that are made of constants and hide later keys become causal attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dtypes import F16, F32
from braze.core.target import Preferences
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.abilities import Unlimited
from braze.ops.evaluator import evaluate
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.product.attention import FusedAttention
from braze.passes.base import PassContext
from braze.passes.rules.known_masks import known_masks
from tests.passes.rule_checks import Net

LIKES = PassContext(backend=Unlimited(Preferences(lowest_hides=True)))
B, H, S, D = 2, 3, 5, 4


def check(g: Net, y: Value, context: PassContext = LIKES) -> list[FusedAttention]:
    graph = g.finish([("y", y)])
    after: Graph = known_masks(graph, context)
    verify(after, graph)
    rng = np.random.default_rng(5)
    feeds: dict[str, Any] = {
        v.name: rng.standard_normal([int(str(d)) for d in v.shape]).astype(v.dtype.numpy)
        for v in graph.inputs
    }
    want, got = evaluate(graph, feeds)["y"], evaluate(after, feeds)["y"]
    # a rounding of float16, or of sums of float32
    tolerance = 2e-3 if want.dtype == np.float16 else 2e-6
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=tolerance, atol=tolerance)
    return [n.op for n in after.nodes if isinstance(n.op, FusedAttention)]


def compared(g: Net, low: float, images: int, op: str, dtype: str) -> Value:
    """Where(key op query, 0, low), one plane for every image, computed from constants."""
    place = np.arange(S, dtype=np.int64)
    query = g.const(np.broadcast_to(place[:, None], (images, 1, S, 1)), "int64")
    key = g.const(np.broadcast_to(place, (images, 1, 1, S)), "int64")
    sees = g.add1(Compare(op), key, query)
    return g.add1(Where(), sees, g.const(0, dtype), g.const(low, dtype))


def attention(dtype: Any, low: float, images: int = B, op: str = "le", mask: Any = None) -> Any:
    g = Net()
    q, k, v = (g.tensor(name, B, H, S, D, dtype=dtype) for name in "qkv")
    extra = compared(g, low, images, op, dtype.name) if mask is None else g.const(mask, dtype.name)
    return g, g.add1(FusedAttention(0.5), q, k, v, extra)


@pytest.mark.parametrize("images", [1, B])
@pytest.mark.parametrize(("dtype", "low"), [(F16, -65504.0), (F32, -3e38), (F16, -np.inf)])
def test_masks_of_constants_become_causal(dtype: Any, low: float, images: int) -> None:
    (op,) = check(*attention(dtype, low, images))
    assert op.causal


@pytest.mark.parametrize(
    "made",
    [
        attention(F16, -60000.0),
        attention(F32, -65504.0),
        attention(F16, -65504.0, op="lt"),
        attention(F16, -65504.0, mask=np.where(np.tri(S), 1.0, -65504.0)),
        attention(F16, -65504.0, mask=np.zeros((1, S))),
    ],
    ids=["not the lowest", "float32", "other keys", "biased", "no plane"],
)
def test_near_misses(made: Any) -> None:
    (op,) = check(*made)
    assert not op.causal


def test_a_mask_that_data_decides_stays() -> None:
    g = Net()
    q, k, v = (g.tensor(name, B, H, S, D) for name in "qkv")
    (op,) = check(g, g.add1(FusedAttention(0.5), q, k, v, g.tensor("mask", S, S)))
    assert not op.causal


def test_only_where_it_pays() -> None:
    (op,) = check(*attention(F16, -65504.0), PassContext())
    assert not op.causal
