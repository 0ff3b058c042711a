"""Attention of com.microsoft: projected heads, masks and caches in, FusedAttention out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from braze.core.dims import Dim
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.contributed import masks
from braze.ops.contributed.activations import add_wide
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import Expand, reshape, transpose
from braze.ops.move.slice_pad import slice_axis
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.constant import ConstantOfShape
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.product.attention import FusedAttention, softmax_or_zero
from braze.ops.product.matmul import MatMul
from braze.ops.writing.precision import compute_type

# what keys in padding get by default, instead of minus infinity
MASK_FILTER = -10000.0
HEADS_FIRST = (0, 2, 1, 3)


@dataclass(frozen=True)
class Scores:
    """What stands between the products: softmax(cap(scale * q k') + mask) with a sink.

    mask: additive, of the type of q, broadcasts to [B, H, rows, columns]; None for none. causal:
    the last row sees all columns. softcap: c * tanh(x / c), 0 for none. sink: [1, H, 1, 1], one
    more score of each row, whose share goes to no value.
    """

    scale: float
    mask: Value | None = None
    causal: bool = False
    softcap: float = 0.0
    sink: Value | None = None


def heads(n: OnnxNode, g: GraphBuilder, x: Value, count: int) -> Value:
    """[B, S, H * D] as [B, S, H, D]."""
    size = x.shape[-1]
    if len(x.shape) != 3:
        raise n.invalid(f"{x.name!r} has rank {len(x.shape)}; [batch, rows, heads * size] is meant")
    if count < 1 or not isinstance(size, int) or size % count:
        raise n.unsupported(f"{x.name!r} of size {size} does not divide into {count} heads")
    return reshape(g, x, (x.shape[0], x.shape[1], count, size // count))


def merged(g: GraphBuilder, y: Value) -> Value:
    """[B, S, H, D] as [B, S, H * D]."""
    return reshape(g, y, (y.shape[0], y.shape[1], y.shape[2] * y.shape[3]))


def default_scale(n: OnnxNode, q: Value) -> float:
    """The attribute `scale`, or 1 / sqrt(head size) where it is absent or 0."""
    given, size = float(n.attr("scale", 0.0)), q.shape[-1]
    if given:
        return given
    if not isinstance(size, int) or size < 1:
        raise n.unsupported(f"the head size is {size}; it must be fixed and 1 or more")
    return 1 / math.sqrt(size)


def plus_bias(g: GraphBuilder, x: Value, bias: Value | None, start: Dim) -> Value:
    """x + the part of `bias` from `start` on that is as long as the last axis of x."""
    if bias is None:
        return x
    part = slice_axis(g, bias, 0, start, x.shape[-1])
    return cast_to(g, add_wide(g, x, part), x.dtype)


def added(g: GraphBuilder, a: Value | None, b: Value | None) -> Value | None:
    """a + b of the masks that are there; half types in float32, rounded once."""
    if a is None or b is None:
        return b if a is None else a
    return cast_to(g, add_wide(g, a, b), a.dtype)


def attend(g: GraphBuilder, q: Value, k: Value, v: Value, scores: Scores) -> Value:
    """q [B, S, H, D] on k and v [B, H', T, D], whose heads H' divide those of q: [B, S, H, D]."""
    times = _times(q, k)
    k, v = repeated(g, k, times), repeated(g, v, times)
    if scores.softcap:
        return _spelled(g, q, k, v, scores)
    mask = scores.mask
    if scores.sink is not None:
        k, v, mask = _with_sink(g, q, k, v, scores)
    causal = scores.causal and scores.sink is None
    op = FusedAttention(scores.scale, causal, "BSHD", "BHSD", "BHSD", "BSHD")
    return g.add1(op, q, k, v, mask)


def _times(q: Value, k: Value) -> int:
    many, few = q.shape[2], k.shape[1]
    if not isinstance(many, int) or not isinstance(few, int) or few < 1 or many % few:
        raise ShapeError(f"{many} query heads for {few} key heads; they must divide")
    return many // few


def repeated(g: GraphBuilder, x: Value, times: int) -> Value:
    """Every head of [B, H, T, D] `times` times in a row."""
    if times == 1:
        return x
    batch, count, rows, size = x.shape
    x = reshape(g, x, (batch, count, 1, rows, size))
    x = g.add1(Expand((batch, count, times, rows, size)), x)
    return reshape(g, x, (batch, count * times, rows, size))


def _with_sink(
    g: GraphBuilder, q: Value, k: Value, v: Value, scores: Scores
) -> tuple[Value, Value, Value]:
    """k, v and mask with one more key of zeros, whose mask is the sink, and value of zeros."""
    assert scores.sink is not None
    batch, count, columns = k.shape[:3]
    rows = q.shape[1]
    k, v = (
        g.add1(Concat(2), x, g.add1(ConstantOfShape((batch, count, 1, x.shape[3]), 0.0, x.dtype)))
        for x in (k, v)
    )
    mask = full_mask(g, q, columns, scores)
    sink = g.add1(Expand((batch, count, rows, 1)), cast_to(g, scores.sink, q.dtype))
    wide = g.add1(Expand((batch, count, rows, columns)), mask)
    return k, v, g.add1(Concat(3), wide, sink)


def full_mask(g: GraphBuilder, q: Value, columns: Dim, scores: Scores) -> Value:
    """The mask, with the causal one in it."""
    rows = q.shape[1]
    mask = scores.mask
    if scores.causal:
        seen = masks.causal(g, rows, columns, columns - rows)
        mask = added(g, masks.hidden(g, seen, q), mask)
    return mask if mask is not None else constant_like(g, 0.0, q.dtype)


def _spelled(g: GraphBuilder, q: Value, k: Value, v: Value, scores: Scores) -> Value:
    """The same in single steps, in the compute type."""
    wide, like = compute_type(q.dtype), q
    q, k, v = (cast_to(g, x, wide) for x in (transpose(g, q, HEADS_FIRST), k, v))
    x = g.add1(MatMul(), q, transpose(g, k, (0, 1, 3, 2)))
    x = g.add1(Binary("mul"), x, constant_like(g, scores.scale / scores.softcap, wide))
    x = g.add1(Binary("mul"), g.add1(Unary("tanh"), x), constant_like(g, scores.softcap, wide))
    columns = k.shape[2]
    mask = full_mask(g, like, columns, scores)
    x = g.add1(Binary("add"), x, cast_to(g, mask, wide))
    if scores.sink is not None:
        sink = g.add1(Expand((*x.shape[:3], 1)), cast_to(g, scores.sink, wide))
        x = slice_axis(g, softmax_or_zero(g, g.add1(Concat(3), x, sink)), 3, 0, columns)
    else:
        x = softmax_or_zero(g, x)
    y = transpose(g, g.add1(MatMul(), x, v), HEADS_FIRST)
    return cast_to(g, y, like.dtype)
