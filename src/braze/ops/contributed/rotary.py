"""Rotary position embedding of com.microsoft, and the op that it and GroupQueryAttention use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dims import Dim
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.expr.index import axes, clamp, iadd, idiv, ilt, imod, imul, isub, to_expr
from braze.expr.scalar import Expr, binary, cast, load, select
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.index.gather import require_index_type
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.shape import reshape
from braze.ops.move.slice_pad import single_store
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.constant import Range
from braze.ops.pointwise.elementwise import Binary
from braze.ops.writing.arguments import Types, array_of, type_of
from braze.ops.writing.functions import check_rotary_tables
from braze.ops.writing.precision import narrow, require_float, same_dtype, widen, widened


@dataclass(frozen=True)
class Rotary(Op):
    """Pairs of elements of the last axis turned by the angles of their position.

    Inputs x [B, S, H, D], or [B, H, S, D] where `heads_first`; positions [1 or B, S]; cos and sin
    [positions, R / 2], with R <= D and even. Pair i is (i, i + R / 2), where `interleaved`
    (2 i, 2 i + 1); elements from R on stay. A position outside the tables takes their nearest row.
    """

    interleaved: bool
    heads_first: bool

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, positions, cos, sin = (type_of(inputs, i) for i in range(4))
        require_float(same_dtype([x, cos, sin], "Rotary"), "Rotary")
        require_index_type(positions, "Rotary")
        if (x.rank, positions.rank, cos.rank, sin.rank) != (4, 2, 2, 2):
            raise ShapeError("Rotary: x needs rank 4; positions and both tables need rank 2")
        ctx.unify(cos.shape[0], sin.shape[0], "Rotary rows of the tables")
        ctx.unify(cos.shape[1], sin.shape[1], "Rotary columns of the tables")
        ctx.unify(x.shape[2 if self.heads_first else 1], positions.shape[1], "Rotary positions")
        if positions.shape[0] != 1:
            ctx.unify(x.shape[0], positions.shape[0], "Rotary batch of positions")
        half, size = cos.shape[1], x.shape[3]
        if not isinstance(half, int) or not isinstance(size, int) or 2 * half > size:
            raise ShapeError(f"Rotary: tables of {half} columns turn no heads of size {size}")
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, positions = widen(array_of(inputs, 0)), array_of(inputs, 1)
        cos, sin = (
            widen(array_of(inputs, i))[np.clip(positions, 0, array_of(inputs, i).shape[0] - 1)]
            for i in (2, 3)
        )
        where = 1 if self.heads_first else 2
        cos, sin = np.expand_dims(cos, where), np.expand_dims(sin, where)
        half = cos.shape[-1]
        turned, rest = x[..., : 2 * half], x[..., 2 * half :]
        pairs = (*x.shape[:3], half, 2) if self.interleaved else (*x.shape[:3], 2, half)
        at = -1 if self.interleaved else -2
        a, b = np.moveaxis(turned.reshape(pairs), at, 0)
        y = np.stack([a * cos - b * sin, a * sin + b * cos], axis=at).reshape(turned.shape)
        return (narrow(np.concatenate([y, rest], axis=-1), array_of(inputs, 0)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, positions, cos = (type_of(inputs, i) for i in range(3))
        half = cos.shape[1]
        *front, d = axes(4)
        row = front[2 if self.heads_first else 1]
        batch = front[0] if positions.shape[0] != 1 else to_expr(0)
        place = cast(load(1, (batch, row), positions.dtype), I64)
        place = clamp(place, cos.shape[0])
        if self.interleaved:
            pair, second = idiv(d, 2), binary("eq", imod(d, 2), to_expr(1))
            partner = isub(iadd(imul(pair, 4), 1), d)
        else:
            second = binary("le", to_expr(half), d)
            pair = select(second, isub(d, half), d)
            partner = select(second, pair, iadd(d, half))
        inside = ilt(d, 2 * half)  # indices of the others are moved into range, and not used
        pair, partner = clamp(pair, half), clamp(partner, x.shape[3])

        def element(index: Expr) -> Expr:
            return widened(load(0, (*front, index), x.dtype))

        own, other = element(d), element(partner)
        c, s = (widened(load(slot, (place, pair), cos.dtype)) for slot in (2, 3))
        other = binary("mul", other, s)
        turned = binary("mul", own, c)
        turned = select(second, binary("add", turned, other), binary("sub", turned, other))
        y = turned if x.shape[3] == 2 * half else select(inside, turned, own)
        return Nest(single_store(inputs, outputs[0], cast(y, x.dtype)))


def import_rotary_embedding(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """RotaryEmbedding of [B, S, H * D] or [B, H, S, D]; position_ids are [B, S], or one number
    that the positions count from."""
    x, ids, cos, sin = (n.need(i) for i in range(4))
    if n.attr("is_packed_batching", 0):
        raise n.unsupported("is_packed_batching=1: batches without padding; export it padded")
    if float(n.attr("scale", 1.0)) != 1.0:
        raise n.unsupported("a scale other than 1; scale the tables of cosines and sines")
    rank, shape = len(x.shape), x.shape
    if rank not in (3, 4) or len(cos.shape) != 2:
        raise n.invalid(f"input has rank {rank}, cos_cache rank {len(cos.shape)}; need 3 or 4, 2")
    check_rotary_tables(n, g)
    if rank == 3:
        x = _split_heads(n, g, x, cos)
    positions = positions_from(g, ids, x.shape[2 if rank == 4 else 1])
    y = g.add1(Rotary(bool(n.attr("interleaved", 0)), rank == 4), x, positions, cos, sin)
    return (y if rank == 4 else reshape(g, y, shape),)


def _split_heads(n: OnnxNode, g: GraphBuilder, x: Value, cos: Value) -> Value:
    """[B, S, H * D] as [B, S, H, D]: heads are as wide as the tables unless num_heads says."""
    batch, rows, width = x.shape
    half, heads = cos.shape[1], int(n.attr("num_heads", 0))
    if not isinstance(width, int) or not isinstance(half, int):
        raise n.unsupported(f"sizes {width} and {half} of heads and tables; both must be fixed")
    if not heads and n.attr("rotary_embedding_dim", 0):
        raise n.invalid("rotary_embedding_dim needs num_heads")
    size = width // heads if heads else 2 * half
    if size == 0 or width % size:
        raise n.invalid(f"an axis of size {width} does not divide into heads of size {size}")
    return reshape(g, x, (batch, rows, width // size, size))


def positions_from(g: GraphBuilder, ids: Value, rows: Dim) -> Value:
    """position_ids as [1 or B, S] int64: as they are, or counted from their one number."""
    ids = cast_to(g, ids, I64)
    if len(ids.shape) == 2:
        return ids
    return g.add1(Binary("add"), reshape(g, ids, (1, 1)), g.add1(Range(0, 1, rows, I64)))
