"""Attention and MultiHeadAttention of com.microsoft."""

from __future__ import annotations

from dataclasses import dataclass

from braze.core.dims import Dim
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.contributed import masks
from braze.ops.contributed.attention_core import (
    HEADS_FIRST,
    MASK_FILTER,
    Scores,
    added,
    attend,
    default_scale,
    heads,
    merged,
    plus_bias,
)
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import reshape, transpose
from braze.ops.move.slice_pad import slice_axis
from braze.ops.product.matmul import MatMul
from braze.ops.writing.broadcast import broadcast_to
from braze.ops.writing.precision import require_float


def _count(n: OnnxNode) -> int:
    count = int(n.attr("num_heads", 0))
    if count < 1:
        raise n.invalid(f"num_heads is {count}; it must be 1 or more")
    return count


def _scores(n: OnnxNode, g: GraphBuilder, q: Value, columns: Dim, where: tuple[int, int]) -> Scores:
    """Scale, padding (input where[0]), bias (input where[1]) and the causal mask of a node."""
    batch, rows, count = q.shape[:3]
    seen = masks.padding(n, g, where[0], batch, rows, columns)
    low = float(n.attr("mask_filter_value", MASK_FILTER))
    mask = None if seen is None else masks.hidden(g, seen, q, low)
    bias = n.input(where[1])
    if bias is not None:
        name = f"node {n.name!r} ({n.op_type}) attention_bias"
        broadcast_to(g, bias.shape, (batch, count, rows, columns), name)
        mask = added(g, mask, bias)
    return Scores(default_scale(n, q), mask, bool(n.attr("unidirectional", 0)))


def import_attention(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Attention: projection of the input to q, k and v, a cache of both, and heads."""
    if n.attr("do_rotary", 0) or n.attr("past_present_share_buffer", 0) or n.input(6) is not None:
        raise n.unsupported(
            "do_rotary and past_present_share_buffer are for GPUs alone; export without them"
        )
    x, w, bias, past = n.need(0), n.need(1), n.input(2), n.input(4)
    require_float(x.dtype, n.op_type)
    count = _count(n)
    q, k, v = _projected(n, g, x, w, bias)
    q, k, v = (heads(n, g, part, count) for part in (q, k, v))
    k, v = (transpose(g, part, HEADS_FIRST) for part in (k, v))
    if past is not None:
        if len(past.shape) != 5 or past.shape[0] != 2:
            raise n.invalid(f"past has shape {list(past.shape)}; [2, batch, heads, ...] is meant")
        k, v = (
            g.add1(Concat(2), reshape(g, slice_axis(g, past, 0, i, 1), past.shape[1:]), new)
            for i, new in enumerate((k, v))
        )
    y = merged(g, attend(g, q, k, v, _scores(n, g, q, k.shape[2], (3, 5))))
    if n.num_outputs == 1:
        return (y,)
    present = g.add1(Concat(0), *(reshape(g, part, (1, *part.shape)) for part in (k, v)))
    return y, present


def _projected(
    n: OnnxNode, g: GraphBuilder, x: Value, w: Value, bias: Value | None
) -> tuple[Value, Value, Value]:
    """x W + bias in its three parts, one product each."""
    width = w.shape[-1]
    if len(x.shape) != 3 or len(w.shape) != 2 or not isinstance(width, int):
        raise n.invalid(f"input {list(x.shape)} with weights {list(w.shape)} do not fit")
    sizes = tuple(n.attr("qkv_hidden_sizes", (width // 3,) * 3))
    if len(sizes) != 3 or sum(sizes) != width or sizes[0] != sizes[1]:
        raise n.invalid(f"weights of {width} columns do not hold q, k and v of sizes {sizes}")
    y, at = plus_bias(g, g.add1(MatMul(), x, w), bias, 0), 0
    parts = []
    for size in sizes:
        parts.append(slice_axis(g, y, 2, at, size))
        at += size
    return parts[0], parts[1], parts[2]


@dataclass(frozen=True)
class _Heads:
    """q [B, S, H, D], k and v [B, H, T, D]."""

    q: Value
    k: Value
    v: Value


def _split(n: OnnxNode, g: GraphBuilder, count: int) -> _Heads:
    """q, k and v of every form that MultiHeadAttention takes, with their bias."""
    q, k, v, bias = n.need(0), n.input(1), n.input(2), n.input(3)
    if k is None:
        return _packed(n, g, q, count)
    rank = len(k.shape)
    if rank == 5:
        pair = _unpacked(n, g, k, 2, count)
        k, v = (transpose(g, part, HEADS_FIRST) for part in pair)
        return _Heads(heads(n, g, plus_bias(g, q, bias, 0), count), k, v)
    if v is None:
        raise n.invalid("key is given without value")
    width = q.shape[-1]
    q = heads(n, g, plus_bias(g, q, bias, 0), count)
    if rank == 3:
        k, v = plus_bias(g, k, bias, width), plus_bias(g, v, bias, width + width)
        k, v = (transpose(g, heads(n, g, part, count), HEADS_FIRST) for part in (k, v))
    elif rank != 4 or len(v.shape) != 4:
        raise n.invalid(f"key has rank {rank}; 3, 4 or 5 is meant")
    return _Heads(q, k, v)


def _packed(n: OnnxNode, g: GraphBuilder, q: Value, count: int) -> _Heads:
    if n.input(3) is not None:
        raise n.unsupported("a bias of packed q, k and v; add it in front")
    q, k, v = _unpacked(n, g, q, 3, count)
    return _Heads(q, transpose(g, k, HEADS_FIRST), transpose(g, v, HEADS_FIRST))


def _unpacked(n: OnnxNode, g: GraphBuilder, x: Value, parts: int, count: int) -> list[Value]:
    """[B, S, H, parts, D] as its parts [B, S, H, D]."""
    if len(x.shape) != 5 or x.shape[2] != count or x.shape[3] != parts:
        raise n.invalid(
            f"{x.name!r} has shape {list(x.shape)}; [batch, rows, {count}, {parts}, size] is meant"
        )
    shape = (*x.shape[:3], x.shape[4])
    return [reshape(g, slice_axis(g, x, 3, i, 1), shape) for i in range(parts)]


def import_multi_head_attention(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """MultiHeadAttention: of projected q, k and v, with a cache that grows."""
    if n.input(8) is not None or n.input(9) is not None:
        raise n.unsupported(
            "caches that past and present share (past_sequence_length, cache_indirection); export "
            "a model whose present is longer than its past"
        )
    if n.num_outputs > 3:
        raise n.unsupported("the output of scores has no fused form; leave it out")
    past = n.input(6), n.input(7)
    if (past[0] is None) != (past[1] is None):
        raise n.invalid("past_key and past_value must be given together")
    require_float(n.need(0).dtype, n.op_type)
    parts = _split(n, g, _count(n))
    k, v = parts.k, parts.v
    rows, current = parts.q.shape[1], k.shape[2]
    if past[0] is not None and past[1] is not None:
        k, v = g.add1(Concat(2), past[0], k), g.add1(Concat(2), past[1], v)
    if n.attr("unidirectional", 0) and rows != current:
        raise n.unsupported(f"unidirectional with {rows} queries for {current} keys")
    y = attend(g, parts.q, k, v, _scores(n, g, parts.q, k.shape[2], (4, 5)))
    return (merged(g, y), k, v)[: n.num_outputs]
