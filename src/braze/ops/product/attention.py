"""FusedAttention: softmax(scale * q k' + mask) v in one op, and the ONNX Attention that fits it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dims import Dim
from braze.core.dtypes import BOOL, F32
from braze.core.errors import DTypeError, ShapeError
from braze.expr.index import iadd, ile
from braze.expr.scalar import axis, const, hole, select
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.lowering import (
    Anchor,
    AttentionSpec,
    Decompose,
    Lowering,
    Operand,
    Pointwise,
)
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import Expand, Transpose, reshape
from braze.ops.operands import row_major_strides
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.reduce import Reduce
from braze.ops.writing.arguments import Types, array_of, type_of
from braze.ops.writing.broadcast import broadcast_to
from braze.ops.writing.precision import compute_type, narrow, require_float, same_dtype, widen

# position of (batch, heads, sequence, head size) among the axes of a tensor in each layout
LAYOUTS = {"BHSD": (0, 1, 2, 3), "BSHD": (0, 2, 1, 3), "BHDS": (0, 1, 3, 2)}


def _arranged(items: Sequence[Dim], layout: str) -> tuple[Dim, Dim, Dim, Dim]:
    """Per-axis values of a tensor in `layout`, in the order batch, heads, sequence, head size."""
    b, h, s, d = LAYOUTS[layout]
    return items[b], items[h], items[s], items[d]


@dataclass(frozen=True)
class FusedAttention(Op):
    """Inputs q, k, v and an additive mask or None; all of one float type.

    Layouts are BHSD or BSHD, for k also BHDS. The mask broadcasts to [B, H, q length, kv length].
    causal: query i sees keys j <= i + (kv length - q length). A query that sees no key gives 0.
    Half types are computed in float32.
    """

    scale: float
    causal: bool = False
    q_layout: str = "BHSD"
    k_layout: str = "BHSD"
    v_layout: str = "BHSD"
    out_layout: str = "BHSD"

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        q, k, v = (type_of(inputs, i) for i in range(3))
        mask = inputs[3] if len(inputs) > 3 else None
        dtype = same_dtype([q, k, v] + ([mask] if mask else []), "FusedAttention")
        require_float(dtype, "FusedAttention")
        if {q.rank, k.rank, v.rank} != {4}:
            raise ShapeError("FusedAttention: q, k and v need rank 4")
        batch, heads, rows, size = _arranged(q.shape, self.q_layout)
        kb, kh, columns, ks = _arranged(k.shape, self.k_layout)
        vb, vh, vs, value_size = _arranged(v.shape, self.v_layout)
        for a, b, what in (
            (batch, kb, "batch of k"),
            (batch, vb, "batch of v"),
            (heads, kh, "heads of k"),
            (heads, vh, "heads of v"),
            (columns, vs, "length of v"),
            (size, ks, "head size of k"),
        ):
            ctx.unify(a, b, f"FusedAttention {what}")
        if mask is not None:
            broadcast_to(ctx, mask.shape, (batch, heads, rows, columns), "FusedAttention mask")
        logical = (batch, heads, rows, value_size)
        return (TensorType(dtype, _arranged(logical, self.out_layout)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        q, k, v = (
            widen(array_of(inputs, i)).transpose(LAYOUTS[layout])
            for i, layout in enumerate((self.q_layout, self.k_layout, self.v_layout))
        )
        scores = np.matmul(q, k.swapaxes(-1, -2)) * q.dtype.type(self.scale)
        mask = inputs[3] if len(inputs) > 3 else None
        if mask is not None:
            scores = scores + widen(mask)
        rows, columns = scores.shape[-2:]
        if self.causal:
            hidden = np.arange(columns) > np.arange(rows)[:, None] + (columns - rows)
            scores = np.where(hidden, scores.dtype.type(-np.inf), scores)
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
        total = weights.sum(axis=-1, keepdims=True)
        y = np.matmul(weights / np.where(total == 0, 1, total), v)
        return (narrow(y.transpose(LAYOUTS[self.out_layout]), array_of(inputs, 0)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        q, k, v = (type_of(inputs, i) for i in range(3))
        batch, heads, rows, size = _arranged(q.shape, self.q_layout)
        _, _, columns, _ = _arranged(k.shape, self.k_layout)
        value_size = _arranged(v.shape, self.v_layout)[3]

        def operand(slot: int, shape: Sequence[Dim], layout: str) -> Operand:
            return Operand(slot, _arranged(row_major_strides(shape), layout))

        mask = inputs[3] if len(inputs) > 3 else None
        mask_operand = None
        if mask is not None:
            strides = [
                0 if d == 1 else s
                for d, s in zip(mask.shape, row_major_strides(mask.shape), strict=True)
            ]
            mask_operand = Operand(3, (*(0,) * (4 - mask.rank), *strides))
        spec = AttentionSpec(
            batch=batch,
            heads=heads,
            q_len=rows,
            kv_len=columns,
            head_dim=size,
            value_dim=value_size,
            scale=self.scale,
            q=operand(0, q.shape, self.q_layout),
            k=operand(1, k.shape, self.k_layout),
            v=operand(2, v.shape, self.v_layout),
            out=operand(0, outputs[0].shape, self.out_layout),
            acc=compute_type(q.dtype),
            mask=mask_operand,
            causal=self.causal,
        )
        return Anchor(spec, Decompose(self.build))

    def build(
        self, g: GraphBuilder, q: Value, k: Value, v: Value, mask: Value | None = None
    ) -> tuple[Value, ...]:
        """The same out of MatMul, Reduce and pointwise ops."""
        q = _moved(g, q, LAYOUTS[self.q_layout])
        b, h, s, d = LAYOUTS[self.k_layout]
        k = _moved(g, k, (b, h, d, s))
        v = _moved(g, v, LAYOUTS[self.v_layout])
        scores = g.add1(MatMul(), q, k)
        scores = g.add1(Binary("mul"), scores, constant_like(g, self.scale, q.dtype))
        if mask is not None:
            scores = g.add1(Binary("add"), scores, mask)
        if self.causal:
            scores = g.add1(CausalMask(), scores)
        y = g.add1(MatMul(), softmax_or_zero(g, scores), v)
        return (_moved(g, y, LAYOUTS[self.out_layout]),)


def _moved(g: GraphBuilder, x: Value, perm: Sequence[int]) -> Value:
    return x if list(perm) == [0, 1, 2, 3] else g.add1(Transpose(tuple(perm)), x)


def softmax_or_zero(g: GraphBuilder, scores: Value) -> Value:
    """Softmax over the last axis; rows of -inf give 0 instead of NaN."""
    last = (len(scores.shape) - 1,)
    zero, one = constant_like(g, 0.0, scores.dtype), constant_like(g, 1.0, scores.dtype)
    low = constant_like(g, -math.inf, scores.dtype)
    top = g.add1(Reduce("max", last, True), scores)
    top = g.add1(Where(), g.add1(Compare("eq"), top, low), zero, top)
    weights = g.add1(Unary("exp"), g.add1(Binary("sub"), scores, top))
    total = g.add1(Reduce("sum", last, True), weights)
    total = g.add1(Where(), g.add1(Compare("eq"), total, zero), one, total)
    return g.add1(Binary("div"), weights, total)


@dataclass(frozen=True)
class CausalMask(Op):
    """x[.., i, j] where j <= i + (columns - rows), else -inf."""

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        require_float(x.dtype, "CausalMask")
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = array_of(inputs, 0)
        rows, columns = x.shape[-2:]
        seen = np.arange(columns) <= np.arange(rows)[:, None] + (columns - rows)
        return (np.where(seen, x, x.dtype.type(-np.inf)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x = type_of(inputs, 0)
        i, j = axis(x.rank - 2), axis(x.rank - 1)
        seen = ile(j, iadd(i, x.shape[-1] - x.shape[-2]))
        return Pointwise(select(seen, hole(0, x.dtype), const(-math.inf, x.dtype)))


def _heads(n: OnnxNode, g: GraphBuilder, x: Value, count: int) -> Value:
    """[B, S, H * D] as [B, S, H, D]."""
    size = x.shape[2]
    if count < 1:
        raise n.invalid(f"{count} heads; set q_num_heads and kv_num_heads to 1 or more")
    if not isinstance(size, int) or size % count:
        raise n.unsupported(f"{x.name!r} of size {size} does not divide into {count} heads")
    return reshape(g, x, (x.shape[0], x.shape[1], count, size // count))


def _repeated(g: GraphBuilder, x: Value, axis_: int, times: int) -> Value:
    """Every head `times` times in a row (grouped queries)."""
    if times == 1:
        return x
    shape = (*x.shape[: axis_ + 1], 1, *x.shape[axis_ + 1 :])
    wide = (*x.shape[: axis_ + 1], times, *x.shape[axis_ + 1 :])
    x = g.add1(Expand(wide), reshape(g, x, shape))
    return reshape(g, x, (*wide[:axis_], wide[axis_] * times, *wide[axis_ + 2 :]))


def _check_simple(n: OnnxNode) -> None:
    """Refuse what FusedAttention does not say; the frontend then expands the ONNX function."""
    if float(n.attr("softcap", 0.0)) != 0.0 or n.num_outputs > 3:
        raise n.unsupported("softcap or the score output has no fused form")
    if n.input(6) is not None or any(
        int(n.attr(f"{side}_window_size", -1)) >= 0 for side in ("left", "right")
    ):
        raise n.unsupported("a sliding window or nonpad_kv_seqlen has no fused form")
    if n.need(0).dtype is not F32:
        raise n.unsupported("softmax of half precision scores has no fused form")
    if (n.input(4) is None) != (n.input(5) is None):
        raise ShapeError(f"node {n.name!r} (Attention): give past_key and past_value together")


def import_attention(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Attention (opset 23 on) as FusedAttention: float32, mask or causal or both, grouped queries,
    past keys and values."""
    _check_simple(n)
    q, k, v = n.need(0), n.need(1), n.need(2)
    layout, heads_axis = "BHSD", 1
    ranks = {len(x.shape) for x in (q, k, v)}
    if ranks == {3}:
        layout, heads_axis = "BSHD", 2
        q = _heads(n, g, q, int(n.attr("q_num_heads", 0)))
        k = _heads(n, g, k, int(n.attr("kv_num_heads", 0)))
        v = _heads(n, g, v, int(n.attr("kv_num_heads", 0)))
    elif ranks != {4}:
        raise ShapeError(f"node {n.name!r} (Attention): q, k and v need rank 3 or 4, all the same")
    kv_layout, rows, current = layout, _arranged(q.shape, layout)[2], _arranged(k.shape, layout)[2]
    causal = bool(n.attr("is_causal", 0))
    if causal and rows != current:
        raise n.unsupported("causal with different query and key lengths has no fused form")
    mask = n.input(3)
    past = n.input(4)
    columns = current if past is None else current + past.shape[2]
    if mask is not None and (not mask.shape or mask.shape[-1] != columns):
        raise n.unsupported("a mask shorter than the keys has no fused form")
    q_heads, k_heads = q.shape[heads_axis], k.shape[heads_axis]
    if 0 in (q_heads, k_heads):
        raise n.invalid(f"{q_heads} query heads for {k_heads} key heads; 1 or more are needed")
    if not isinstance(q_heads, int) or not isinstance(k_heads, int) or q_heads % k_heads:
        raise n.unsupported(f"{q_heads} query heads for {k_heads} key heads")
    if past is not None or n.num_outputs > 1:
        if kv_layout == "BSHD":
            k, v = (g.add1(Transpose((0, 2, 1, 3)), x) for x in (k, v))
            kv_layout = "BHSD"
        if past is not None:
            k = g.add1(Concat(2), past, k)
            v = g.add1(Concat(2), n.need(5), v)
    present = (k, v)
    kv_heads_axis = 1 if kv_layout == "BHSD" else 2
    k, v = (_repeated(g, x, kv_heads_axis, q_heads // k_heads) for x in (k, v))
    if mask is not None and mask.dtype is BOOL:
        zero, low = constant_like(g, 0.0, F32), constant_like(g, -math.inf, F32)
        mask = g.add1(Where(), mask, zero, low)
    elif mask is not None and mask.dtype is not F32:
        raise DTypeError(f"node {n.name!r} (Attention): mask is {mask.dtype}; insert a Cast")
    size = _arranged(q.shape, layout)[3]
    if not isinstance(size, int):
        raise n.unsupported("the head size must be fixed")
    # scores of heads without elements are sums of nothing at any scale
    scale = float(n.attr("scale", 1 / math.sqrt(max(size, 1))))
    op = FusedAttention(scale, causal, layout, kv_layout, kv_layout, layout)
    y = g.add1(op, q, k, v, mask)
    if layout == "BSHD":
        y = reshape(g, y, (y.shape[0], y.shape[1], y.shape[2] * y.shape[3]))
    return (y, *present)[: n.num_outputs]
