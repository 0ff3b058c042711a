"""Makers of com.microsoft's attention ops."""

from __future__ import annotations

from tests.fuzz.case import Fill
from tests.fuzz.make_anchors import MOST_ROWS, weight
from tests.fuzz.make_contributed import DOMAIN
from tests.fuzz.make_pointwise import symbol_or_size
from tests.fuzz.make_views import size
from tests.fuzz.sketch import Ref, Sketch, static


def _row(s: Sketch, x: Ref) -> int:
    """The width of [batch, rows, width] of float32."""
    s.need(x.rank == 3 and x.dtype.name == "float32" and all(d != 0 for d in x.shape))
    s.need(static(x.shape[2]) and x.sample.shape[1] <= MOST_ROWS)
    s.last_weight = None
    return size(x, 2)


def attention(s: Sketch, x: Ref) -> Ref:
    """Projected inside; causal, or with a mask of the number of keys."""
    k = _row(s, x)
    heads, wide = s.r.choice([1, 2]), s.r.choice([2, 4])
    w = weight(s, x, (k, 3 * heads * wide), k)
    bias = s.constant("float32", (3 * heads * wide,)) if s.r.random() < 0.6 else None
    mask = None
    if static(x.shape[0]) and s.r.random() < 0.4:
        mask = s.constant("int32", (size(x, 0),), values=[1] * size(x, 0))
    return s.add1(DOMAIN + "Attention", x, w, bias, mask, num_heads=heads,
                  unidirectional=s.r.choice([0, 1]))  # fmt: skip


def multi_head(s: Sketch, x: Ref) -> Ref:
    """The value with its half as keys, and now and then a bias of the scores."""
    k = _row(s, x)
    heads = s.r.choice([h for h in (1, 2, 4) if k % h == 0])
    key = s.add1("Mul", x, s.scalar("float32", 0.5))
    scores = None
    if s.r.random() < 0.4:
        rows = symbol_or_size(s, x, 1)
        scores = s.input("float32", (1, 1, rows, rows), made=False)
    return s.add1(DOMAIN + "MultiHeadAttention", x, key, x, None, None, scores, num_heads=heads,
                  unidirectional=s.r.choice([0, 1]))  # fmt: skip


def group_query(s: Sketch, x: Ref) -> Ref:
    """A prompt, or new rows behind a cache that is an input."""
    k = _row(s, x)
    s.need(all(static(d) for d in x.shape))
    few, many, wide = s.r.choice([(1, 2, 4), (2, 2, 2), (1, 3, 8)])
    x = s.add1("MatMul", x, weight(s, x, (k, (many + 2 * few) * wide), k))
    batch, rows = size(x, 0), size(x, 1)
    cached = s.r.choice([0, 3])
    past = [s.input("float32", (batch, few, cached, wide), made=False) for _ in range(2)]
    total = rows + cached
    lengths = s.constant("int32", (batch,), values=[total - 1] * batch)
    number = s.constant("int32", (), values=[total])
    tables = [s.constant("float32", (32, wide // 2), Fill("uniform", -1, 1)) for _ in range(2)]
    s.need(total <= 32)
    window = s.r.choice([-1, 2])
    return s.add1(DOMAIN + "GroupQueryAttention", x, None, None, *past, lengths, number, *tables,
                  num_heads=many, kv_num_heads=few, do_rotary=s.r.choice([0, 1]),
                  local_window_size=window, smooth_softmax=s.r.choice([0, 1]))  # fmt: skip
