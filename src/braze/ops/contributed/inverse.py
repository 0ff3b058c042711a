"""Inverse (com.microsoft) of matrices of any size: elimination with the largest pivot of a column.

The matrix stands beside the unit matrix, and a trip of a loop makes one column that of the unit
matrix; what stands beside it in the end is the inverse. A singular matrix gives infinities or NaN.
"""

from __future__ import annotations

from braze.core.dims import product
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.flow.building import BodyBuilder
from braze.ops.flow.loop import COUNTER, Loop
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import Expand, SizeTensor, reshape
from braze.ops.move.slice_pad import slice_axis
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.constant import Eye, Range
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.reduce.reduce import ArgReduce, Reduce
from braze.ops.writing.precision import compute_type, require_float


def import_inverse(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Inverse of the matrices in the last two axes."""
    x = n.need(0)
    require_float(x.dtype, n.op_type)
    rank = len(x.shape)
    if rank < 2:
        raise n.invalid(f"{list(x.shape)} is no stack of matrices")
    size = g.unify(x.shape[-1], x.shape[-2], "Inverse rows and columns")
    if isinstance(size, int) and size < 1:
        raise ShapeError(f"node {n.name!r} (Inverse): matrices without rows; correct the shape")
    wide, batch = compute_type(x.dtype), product(x.shape[:-2])
    stack = reshape(g, cast_to(g, x, wide), (batch, size, size))
    unit = g.add1(Expand((batch, size, size)), g.add1(Eye(size, size, 0, wide)))
    first = g.add1(Concat(2), stack, unit)
    body = BodyBuilder(g, "elimination")
    trip = body.builder.input("trip", COUNTER)
    both = body.builder.input("both", first.type)
    graph = body.builder.finish([("both", _eliminated(body.builder, both, trip))])
    trips = g.add1(SizeTensor((size,), (), I64))
    (last,) = g.add(Loop((graph,), True, False, 1), trips, first, *body.captured)
    y = reshape(g, slice_axis(g, last, 2, size, size), x.shape)
    return (cast_to(g, y, x.dtype),)


def _eliminated(g: GraphBuilder, a: Value, trip: Value) -> Value:
    """The rows [B, n, 2 n] behind the trip that makes column k that of the unit matrix."""
    size = a.shape[1]
    k = reshape(g, trip, (1,))
    rows = reshape(g, g.add1(Range(0, 1, size, I64)), (size, 1))
    here = g.add1(Compare("eq"), rows, k)  # [n, 1]
    column = g.add1(Unary("abs"), g.add1(Gather(2), a, k))
    done = g.add1(Compare("lt"), rows, k)
    column = g.add1(Where(), done, constant_like(g, -1.0, a.dtype), column)
    best = g.add1(ArgReduce("max", 1, True), column)  # [B, 1, 1]
    chosen = g.add1(Compare("eq"), rows, best)  # [B, n, 1]
    zero = constant_like(g, 0.0, a.dtype)
    pivot = g.add1(Reduce("sum", (1,), True), g.add1(Where(), chosen, a, zero))
    swapped = g.add1(Where(), chosen, g.add1(Gather(1), a, k), a)
    unit = g.add1(Binary("div"), pivot, g.add1(Gather(2), pivot, k))
    share = g.add1(Binary("mul"), g.add1(Gather(2), swapped, k), unit)
    return g.add1(Where(), here, unit, g.add1(Binary("sub"), swapped, share))
