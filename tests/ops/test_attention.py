"""FusedAttention and Attention-23/24."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
from braze.core.dims import sym
from braze.core.dtypes import F16, F32
from braze.core.errors import ShapeError, UnsupportedOpError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.evaluator import evaluate
from braze.ops.lowering import Anchor, AttentionSpec, Decompose
from braze.ops.product.attention import LAYOUTS, FusedAttention
from tests.ops.harness import check, import_node, ramp
from tests.ops.lowering import run_lowered
from tests.ops.one_node import one_node


def _plain(q: Any, k: Any, v: Any, scale: float, mask: Any, causal: bool) -> np.ndarray:
    """One query at a time, in float64; a query that sees no key gives zeros."""
    batch, heads, rows, _ = q.shape
    columns = k.shape[2]
    out = np.zeros((batch, heads, rows, v.shape[3]))
    full = np.zeros((batch, heads, rows, columns)) + (0 if mask is None else mask.astype("f8"))
    for b, h, i in np.ndindex(batch, heads, rows):
        s = scale * (k[b, h].astype("f8") @ q[b, h, i].astype("f8")) + full[b, h, i]
        if causal:
            s[max(0, i + columns - rows + 1) :] = -np.inf
        if np.isfinite(s.max()):
            w = np.exp(s - s.max())
            out[b, h, i] = w @ v[b, h].astype("f8") / w.sum()
    return out


def _graph(op: FusedAttention, arrays: list[np.ndarray | None]) -> Any:
    g = GraphBuilder()
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    types = {np.dtype("float32"): F32, np.dtype("float16"): F16}
    values = [
        None if a is None else g.input(f"x{i}", TensorType(types[a.dtype], a.shape))
        for i, a in enumerate(arrays)
    ]
    return g.finish([("y", g.add1(op, *values))]), feeds


def _inverse(layout: str) -> list[int]:
    return [LAYOUTS[layout].index(i) for i in range(4)]


@pytest.mark.parametrize("q_layout", ["BHSD", "BSHD"])
@pytest.mark.parametrize("k_layout", ["BHSD", "BSHD", "BHDS"])
@pytest.mark.parametrize("out_layout", ["BHSD", "BSHD"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, (3, 5), (2, 1, 1, 5), (1, 4, 3, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_fused_attention(
    q_layout: str, k_layout: str, out_layout: str, causal: bool, mask: Any, dtype: str
) -> None:
    q, k, v = ramp(2, 4, 3, 8), ramp(2, 4, 5, 8)[::-1], ramp(2, 4, 5, 6)
    m = None if mask is None else ramp(*mask)
    if m is not None:
        m.reshape(-1)[::3] = -np.inf
    q, k, v = (a.astype(dtype) for a in (q, k, v))
    m = None if m is None else m.astype(dtype)
    want = _plain(q, k, v, 0.3, m, causal).transpose(LAYOUTS[out_layout])
    op = FusedAttention(0.3, causal, q_layout, k_layout, q_layout, out_layout)
    arrays = [
        np.ascontiguousarray(a.transpose(_inverse(layout)))
        for a, layout in ((q, q_layout), (k, k_layout), (v, q_layout))
    ]
    graph, feeds = _graph(op, [*arrays, m])
    tolerance = 1e-5 if dtype == "float32" else 1e-2  # float16: every step of Decompose rounds
    for got in (evaluate(graph, feeds)["y"], run_lowered(graph, feeds)["y"]):
        assert got.dtype == np.dtype(dtype)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_masked_rows_give_zeros() -> None:
    """Not NaN, not the mean of v."""
    q, k, v = ramp(1, 1, 2, 4), ramp(1, 1, 3, 4), ramp(1, 1, 3, 4)
    mask = np.array([[-np.inf] * 3, [0.0] * 3], np.float32)
    graph, feeds = _graph(FusedAttention(1.0), [q, k, v, mask])
    for got in (evaluate(graph, feeds)["y"], run_lowered(graph, feeds)["y"]):
        assert (got[0, 0, 0] == 0).all() and (got[0, 0, 1] != 0).any()


def test_lowering_kind() -> None:
    q = TensorType(F32, (sym("b"), 4, sym("s"), 8))
    low = FusedAttention(0.5).lower([q, q, q, None], [q])
    assert isinstance(low, Anchor) and isinstance(low.spec, AttentionSpec)
    assert low.spec.kv_len == sym("s") and low.spec.mask is None
    half = TensorType(F16, (1, 4, 3, 8))
    other = FusedAttention(0.5).lower([half] * 3, [half])
    assert isinstance(other, Anchor) and isinstance(other.fallback, Decompose)
    with pytest.raises(ShapeError):
        FusedAttention(0.5).infer([half, half, TensorType(F16, (1, 4, 2, 8))], GraphBuilder())


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", [None, "float", "bool"])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("past", [0, 2])
def test_attention(rank: int, causal: int, mask: str | None, kv_heads: int, past: int) -> None:
    batch, heads, seq, size = 2, 4, 3, 8
    if rank == 3:
        q, k = ramp(batch, seq, heads * size), ramp(batch, seq, kv_heads * size)
        v = ramp(batch, seq, kv_heads * 6)
        attrs = {"q_num_heads": heads, "kv_num_heads": kv_heads}
    else:
        q, k = ramp(batch, heads, seq, size), ramp(batch, kv_heads, seq, size)
        v, attrs = ramp(batch, kv_heads, seq, 6), {}
    m = None
    if mask == "float":
        m = ramp(seq, seq + past)
    elif mask == "bool":
        m = ramp(batch, 1, seq, seq + past) > -1
    olds = [ramp(batch, kv_heads, past, d) for d in (size, 6)] if past else [None, None]
    check(
        "Attention",
        [q, k, v, m, *olds],
        opset=23,
        num_outputs=3 if past else 1,
        is_causal=causal,
        rtol=1e-4,
        atol=1e-5,
        **attrs,
    )


def test_attention_that_does_not_fuse_is_left_to_the_function() -> None:
    """Upper-left causal masks of unequal lengths and softcap have no fused form."""
    q, k = ramp(1, 1, 1, 4), ramp(1, 1, 3, 4)
    with pytest.raises(UnsupportedOpError, match="lengths"):
        import_node("Attention", [q, k, k], opset=23, is_causal=1)
    with pytest.raises(UnsupportedOpError, match="softcap"):
        import_node("Attention", [q, k, k], opset=23, softcap=2.0)


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size, width", [(0, 4), (4, 0), (0, 0)])
def test_heads_without_elements(size: int, width: int, causal: bool, level: int) -> None:
    """Scores that are sums of nothing weigh all keys alike; of no size there is no root."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.random((2, 2, 3, n), np.float32) for n in (size, size, width))
    options = {"opset": 23, "attributes": {"is_causal": int(causal)}}
    model = one_node("Attention", [q, k, v], **options)
    got = braze.build(model, optimization_level=level)({"x0": q, "x1": k, "x2": v})["y0"]
    scale = 1 / np.sqrt(max(size, 1))
    np.testing.assert_allclose(got, _plain(q, k, v, scale, None, causal), rtol=1e-6)
