"""GroupQueryAttention of com.microsoft, and the caches it writes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.expr.index import axes, clamp, ilt, isub
from braze.expr.scalar import const, load, select
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.contributed import masks
from braze.ops.contributed.attention_core import (
    Scores,
    added,
    attend,
    default_scale,
    heads,
    merged,
)
from braze.ops.contributed.rotary import Rotary
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.shape import reshape
from braze.ops.move.slice_pad import single_store, slice_axis
from braze.ops.norm.normalization import RmsNorm
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.constant import ConstantOfShape, Range
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.writing.arguments import Types, array_of, known_sizes, type_of
from braze.ops.writing.broadcast import broadcast_to
from braze.ops.writing.precision import require_float, same_dtype
from braze.ops.writing.size_arithmetic import larger


@dataclass(frozen=True)
class CacheAppend(Op):
    """`length` rows of a cache with new rows written to it: [B, H, length, D].

    Inputs past [B, H, P, D] or None, new [B, S, H, D], starts [B] int64. Row j of batch b is row
    j of past in front of starts[b], row j - starts[b] of new behind, and 0 where neither has it.
    """

    length: Dim

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        past, new, starts = inputs[0], type_of(inputs, 1), type_of(inputs, 2)
        if new.rank != 4 or starts.rank != 1 or starts.dtype != I64:
            raise ShapeError("CacheAppend: new needs rank 4, starts must be an int64 vector")
        ctx.unify(new.shape[0], starts.shape[0], "CacheAppend batch")
        batch, _, count, size = new.shape
        if past is not None:
            same_dtype([past, new], "CacheAppend")
            if past.rank != 4:
                raise ShapeError(f"CacheAppend: past has rank {past.rank}; it needs 4")
            for a, b, what in zip(
                (past.shape[0], past.shape[1], past.shape[3]), (batch, count, size),
                ("batch", "heads", "head size"), strict=True,
            ):  # fmt: skip
                ctx.unify(a, b, f"CacheAppend {what} of past")
        return (TensorType(new.dtype, (batch, count, self.length, size)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        past, new, starts = inputs[0], array_of(inputs, 1), array_of(inputs, 2)
        batch, rows, count, size = new.shape
        length = dims.number(self.length)
        out = np.zeros((batch, count, length, size), new.dtype)
        j = np.arange(length)
        for b in range(batch):
            if past is not None:
                kept = max(0, min(length, past.shape[2], starts[b]))
                out[b, :, :kept] = past[b, :, :kept]
            at = j - starts[b]
            written = (at >= 0) & (at < rows)
            out[b, :, written] = new[b, at[written]]
        return (out,)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        past, new, starts = inputs[0], type_of(inputs, 1), type_of(inputs, 2)
        first = 0 if past is None else 1
        b, h, j, d = axes(4)
        rows = new.shape[1]
        at = isub(j, load(first + 1, (b,), starts.dtype))
        fresh = load(first, (b, clamp(at, rows), h, d), new.dtype)
        zero = const(0, new.dtype)
        row = select(ilt(at, rows), fresh, zero)
        old = zero
        if past is not None and past.shape[2] != 0:
            old = load(0, (b, h, clamp(j, past.shape[2]), d), new.dtype)
            if past.shape[2] != self.length:
                old = select(ilt(j, past.shape[2]), old, zero)
        return Nest(single_store(inputs, outputs[0], select(ilt(at, 0), old, row)))


@dataclass(frozen=True)
class _Step:
    """Where a run of the node stands: S rows behind `starts` [B] ones, of `total` in all.

    prompt: True where nothing is cached, False where something is, None where sizes decide.
    """

    rows: Dim
    total: Dim
    lengths: Value
    starts: Value
    prompt: bool | None


def import_group_query_attention(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """GroupQueryAttention: grouped heads, a cache that grows or is written in place, rotary
    positions, a window, a cap and a sink."""
    _check(n)
    q, k, v = _split(n, g)
    step = _step(n, g, q)
    q, k = _normalized(n, g, q, 14), _normalized(n, g, k, 15)
    if n.attr("do_rotary", 0):
        op = Rotary(bool(n.attr("rotary_interleaved", 0)), heads_first=False)
        where = _positions(n, g, step)
        q, k = (g.add1(op, x, where, n.need(7), n.need(8)) for x in (q, k))
    past = n.input(3), n.input(4)
    length = step.total
    if past[0] is not None and len(past[0].shape) == 4:
        length = larger(past[0].shape[2], step.total, g.range_of)
    k, v = (
        g.add1(CacheAppend(length), old, new, step.starts)
        for old, new in zip(past, (k, v), strict=True)
    )
    y = merged(g, _attended(n, g, q, k, v, step))
    return (y, k, v)[: n.num_outputs]


def _check(n: OnnxNode) -> None:
    for key in ("k_quant_type", "v_quant_type"):
        if n.attr(key, "NONE") != "NONE":
            raise n.unsupported(f"{key}: a quantized cache; export it in a float type")
    if n.attr("sliding_window_cache", 0) or n.input(16) is not None:
        raise n.unsupported(
            "sliding_window_cache and query_seqlens; export caches of whole, unpadded sequences"
        )
    if n.attr("qk_output", 0) or n.num_outputs > 3:
        raise n.unsupported("the output of scores has no fused form; leave it out")
    if (n.input(3) is None) != (n.input(4) is None):
        raise n.invalid("past_key and past_value must be given together")
    if not n.attr("causal", 1) and int(n.attr("local_window_size", -1)) > 0:
        raise n.invalid("a local window needs causal=1")


def _split(n: OnnxNode, g: GraphBuilder) -> list[Value]:
    """q, k and v as [B, S, heads, D]."""
    q, k, v = n.need(0), n.input(1), n.input(2)
    require_float(q.dtype, n.op_type)
    many, few = int(n.attr("num_heads", 0)), int(n.attr("kv_num_heads", 0))
    if few < 1 or many < 1 or many % few:
        raise n.invalid(f"num_heads is {many} and kv_num_heads {few}; the first is a multiple")
    if k is None:
        packed = heads(n, g, q, many + 2 * few)
        parts = ((0, many), (many, few), (many + few, few))
        return [slice_axis(g, packed, 2, start, count) for start, count in parts]
    if v is None:
        raise n.invalid("key is given without value")
    return [heads(n, g, x, count) for x, count in ((q, many), (k, few), (v, few))]


def _step(n: OnnxNode, g: GraphBuilder, q: Value) -> _Step:
    batch, rows = q.shape[:2]
    total = known_sizes(n, g, 6, "total_sequence_length")[0]
    lengths = cast_to(g, reshape(g, n.need(5), (batch,)), I64)
    zero = g.add1(ConstantOfShape((batch,), 0, I64))
    low, high = g.range_of(total - rows)
    if total == rows or low == high == 0:
        return _Step(rows, total, lengths, zero, True)
    starts = g.add1(Binary("add"), lengths, _one(g, 1 - rows))
    if low > 0 or high < 0:
        return _Step(rows, total, lengths, starts, False)
    starts = g.add1(Where(), _is_prompt(g, rows, total), zero, starts)
    return _Step(rows, total, lengths, starts, None)


def _one(g: GraphBuilder, value: Dim) -> Value:
    """A size as an int64 vector of one element."""
    return g.add1(Range(value, 1, 1, I64))


def _is_prompt(g: GraphBuilder, rows: Dim, total: Dim) -> Value:
    return g.add1(Compare("eq"), _one(g, rows), _one(g, total))


def _normalized(n: OnnxNode, g: GraphBuilder, x: Value, index: int) -> Value:
    """RMS normalisation of each head by the weight in input 14 (of q) or 15 (of k)."""
    weight = n.input(index)
    if weight is None:
        return x
    both = float(n.attr("qk_norm_epsilon", 1e-6))
    epsilon = float(n.attr("q_norm_epsilon" if index == 14 else "k_norm_epsilon", both))
    return g.add1(RmsNorm(3, epsilon), x, weight)


def _positions(n: OnnxNode, g: GraphBuilder, step: _Step) -> Value:
    """Positions [1 or B, S] of the new rows.

    Without position_ids they follow the cached ones; a prompt counts from the first id.
    """
    ids = n.input(9)
    batch = step.starts.shape[0]
    line = reshape(g, g.add1(Range(0, 1, step.rows, I64)), (1, step.rows))
    if ids is None:
        return g.add1(Binary("add"), reshape(g, step.starts, (batch, 1)), line)
    ids = cast_to(g, ids, I64)
    if len(ids.shape) != 2:
        raise n.invalid(f"position_ids has rank {len(ids.shape)}; it needs [batch, rows]")
    if step.prompt is False:
        return ids
    first = slice_axis(g, slice_axis(g, ids, 0, 0, 1), 1, 0, 1)
    counted = g.add1(Binary("add"), first, line)
    if step.prompt:
        return counted
    return g.add1(Where(), _is_prompt(g, step.rows, step.total), counted, ids)


def _attended(n: OnnxNode, g: GraphBuilder, q: Value, k: Value, v: Value, step: _Step) -> Value:
    """q on the first `total` rows of the caches."""
    if k.shape[2] != step.total:
        k, v = (slice_axis(g, x, 2, 0, step.total) for x in (k, v))
    causal, window = bool(n.attr("causal", 1)), int(n.attr("local_window_size", -1))
    plain = causal and window <= 0 and step.prompt is True
    mask = None if plain else masks.hidden(g, _seen(g, step, causal, window), q)
    bias = n.input(10)
    if bias is not None:
        shape = (q.shape[0], q.shape[2], step.rows, step.total)
        broadcast_to(g, bias.shape, shape, f"node {n.name!r} ({n.op_type}) attention_bias")
        mask = added(g, mask, bias)
    sink = n.input(11)
    if sink is not None:
        sink = reshape(g, sink, (1, *sink.shape, 1, 1))
    elif int(n.attr("smooth_softmax", 0)) == 1:
        sink = reshape(g, constant_like(g, 0.0, q.dtype), (1, 1, 1, 1))
    softcap = float(n.attr("softcap", 0.0))
    return attend(g, q, k, v, Scores(default_scale(n, q), mask, plain, softcap, sink))


def _seen(g: GraphBuilder, step: _Step, causal: bool, window: int) -> Value:
    """Whether a row sees a column: [B, 1, S or 1, total]."""
    shape = (step.starts.shape[0], 1, 1, 1)
    if not causal:
        columns = masks.numbers(g, step.total, 3)
        return g.add1(Compare("le"), columns, reshape(g, step.lengths, shape))
    starts = reshape(g, step.starts, shape)
    seen = masks.causal(g, step.rows, step.total, starts)
    if window <= 0:
        return seen
    passed = masks.causal(g, step.rows, step.total, g.add1(Binary("sub"), starts, _one(g, window)))
    return masks.both(g, seen, g.add1(Unary("not"), passed))
