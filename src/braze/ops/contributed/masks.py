"""Additive attention masks, made of the forms that com.microsoft's attention ops take."""

from __future__ import annotations

import math

from braze.core.dims import Dim
from braze.core.dtypes import I64
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.move.shape import reshape
from braze.ops.move.slice_pad import slice_axis
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.constant import Range
from braze.ops.pointwise.elementwise import Binary, constant_like
from braze.ops.writing.arguments import at_least


def numbers(g: GraphBuilder, count: Dim, axis: int) -> Value:
    """0 .. count-1 along axis 2 (rows) or 3 (columns) of [B, H, rows, columns]."""
    line = g.add1(Range(0, 1, count, I64))
    return reshape(g, line, (1, 1, count, 1) if axis == 2 else (1, 1, 1, count))


def both(g: GraphBuilder, a: Value | None, b: Value) -> Value:
    """a and b, where a None is true."""
    return b if a is None else g.add1(Binary("and"), a, b)


def hidden(g: GraphBuilder, seen: Value, like: Value, low: float = -math.inf) -> Value:
    """0 where `seen`, else `low`, in the element type of `like`."""
    zero, filled = (constant_like(g, v, like.dtype) for v in (0.0, low))
    return g.add1(Where(), seen, zero, filled)


def causal(g: GraphBuilder, rows: Dim, columns: Dim, first: Value | Dim) -> Value:
    """Whether row i sees column j: j <= i + first."""
    start = first if isinstance(first, Value) else g.add1(Range(first, 1, 1, I64))
    last = g.add1(Binary("add"), numbers(g, rows, 2), start)
    return g.add1(Compare("le"), numbers(g, columns, 3), last)


def padding(
    n: OnnxNode, g: GraphBuilder, index: int, batch: Dim, rows: Dim, columns: Dim
) -> Value | None:
    """Which columns each row may see by input `index`, bool and of rank 4; None without one.

    [B]: how many keys there are. [2 B]: where they end, then where they start. [B, columns] and
    [B, rows, columns]: not 0 where seen. [B, 1, M, M]: the last, at the latest rows.
    """
    mask = n.input(index)
    if mask is None:
        return None
    if not mask.dtype.is_int:
        raise n.invalid(f"input {index}, the mask, is {mask.dtype}; it must hold integers")
    sizes = mask.shape
    if len(sizes) == 1:
        return _lengths(n, g, mask, batch, columns)
    if len(sizes) not in (2, 3, 4):
        raise n.invalid(f"input {index}, the mask, has rank {len(sizes)}")
    if len(sizes) == 4:
        mask = _latest(n, g, mask, rows, columns)
        sizes = mask.shape
    elif len(sizes) == 3:
        sizes = (sizes[0], 1, *sizes[1:])
    else:
        sizes = (sizes[0], 1, 1, sizes[1])
    shape = (batch, 1, 1 if len(mask.shape) == 2 else rows, columns)
    for have, want in zip(sizes, shape, strict=True):
        g.unify(have, want, f"node {n.name!r} ({n.op_type}) mask")
    return g.add1(Compare("lt"), constant_like(g, 0, mask.dtype), reshape(g, mask, shape))


def _latest(n: OnnxNode, g: GraphBuilder, mask: Value, rows: Dim, columns: Dim) -> Value:
    """Rows columns - rows .. of the first `columns` columns of a square mask."""
    at_least(mask.shape[2], columns, g, f"node {n.name!r} ({n.op_type}) mask rows")
    at_least(mask.shape[3], columns, g, f"node {n.name!r} ({n.op_type}) mask columns")
    return slice_axis(g, slice_axis(g, mask, 2, columns - rows, rows), 3, 0, columns)


def _lengths(n: OnnxNode, g: GraphBuilder, mask: Value, batch: Dim, columns: Dim) -> Value:
    size = mask.shape[0]
    column = numbers(g, columns, 3)
    if size not in (batch, 2 * batch):
        if isinstance(size, int) and isinstance(batch, int):
            raise n.unsupported(
                f"a mask of {size} numbers for a batch of {batch}; give [batch] or [batch, keys]"
            )
        size = batch
        g.unify(mask.shape[0], size, f"node {n.name!r} ({n.op_type}) mask")
    mask = cast_to(g, mask, I64)
    ends = reshape(g, slice_axis(g, mask, 0, 0, batch), (batch, 1, 1, 1))
    seen = g.add1(Compare("lt"), column, ends)
    if size == batch:
        return seen
    starts = reshape(g, slice_axis(g, mask, 0, batch, batch), (batch, 1, 1, 1))
    return both(g, seen, g.add1(Compare("le"), starts, column))
