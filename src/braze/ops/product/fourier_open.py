"""A DFT whose length only the run knows: a product with a matrix that the run makes.

Cosines and sines of one turn are a table of as many numbers as the transform has points; the
matrix takes them from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from braze.core.dims import Dim
from braze.core.dtypes import F64, I64, DType
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import SizeTensor, reshape
from braze.ops.move.slice_pad import Pad, slice_axis
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.constant import Range
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.product.matmul import MatMul


def open_transform(
    g: GraphBuilder, x: Value, size: Dim, inverse: bool, onesided: bool, parts: int
) -> Value:
    """The DFT of [.., length, parts] of `size` points, along the second axis from the end.

    A onesided inverse takes the first half of a Hermitian spectrum and gives real values.
    """
    *front, length, _ = x.shape
    half = size // 2 + 1
    given, made = (half, size) if inverse and onesided else (size, half if onesided else size)
    x = _of_length(g, x, length, given)
    pair = [
        reshape(g, slice_axis(g, x, len(front) + 1, k, 1), (*front, given)) for k in range(parts)
    ]
    cosine, sine = _matrix(g, size, given, made, x.dtype)
    if inverse and onesided:
        real, imaginary = (
            g.add1(Binary("mul"), v, _weights(g, size, given, x.dtype)) for v in pair
        )
        y = g.add1(MatMul(), real, cosine)
        y = g.add1(Binary("sub"), y, g.add1(MatMul(), imaginary, sine))
        return reshape(g, y, (*front, made, 1))
    sine = sine if inverse else g.add1(Unary("neg"), sine)
    both = [g.add1(MatMul(), pair[0], m) for m in (cosine, sine)]
    if parts == 2:
        both[0] = g.add1(Binary("sub"), both[0], g.add1(MatMul(), pair[1], sine))
        both[1] = g.add1(Binary("add"), both[1], g.add1(MatMul(), pair[1], cosine))
    joined = g.add1(Concat(len(front) + 1), *(reshape(g, v, (*front, made, 1)) for v in both))
    return g.add1(Binary("div"), joined, _number(g, size, x.dtype)) if inverse else joined


def _of_length(g: GraphBuilder, x: Value, length: Dim, size: Dim) -> Value:
    """The first `size` samples, with zeros behind those that there are."""
    if length == size:
        return x
    rank = len(x.shape)
    ends: Sequence[Dim] = [0] * (rank - 2) + [size - length, 0]
    return g.add1(Pad("constant", (0,) * rank, tuple(ends), 0.0), x)


def _number(g: GraphBuilder, size: Dim, dtype: DType) -> Value:
    return cast_to(g, g.add1(SizeTensor((size,), (), I64)), dtype)


def _matrix(
    g: GraphBuilder, size: Dim, rows: Dim, columns: Dim, dtype: DType
) -> tuple[Value, Value]:
    """Cosine and sine of row times column parts of a turn of `size` parts."""
    count = g.add1(SizeTensor((size,), (), I64))
    turn = g.add1(Range(0, 1, size, I64))
    angle = g.add1(Binary("mul"), cast_to(g, turn, F64), constant_like(g, 2 * math.pi, F64))
    angle = g.add1(Binary("div"), angle, cast_to(g, count, F64))
    fourfold = g.add1(Binary("mul"), turn, constant_like(g, 4, I64))
    rest = g.add1(Binary("mod"), fourfold, count)
    quarter = g.add1(Compare("eq"), rest, constant_like(g, 0, I64))
    down = reshape(g, g.add1(Range(0, 1, rows, I64)), (rows, 1))
    across = g.add1(Range(0, 1, columns, I64))
    place = g.add1(Binary("mod"), g.add1(Binary("mul"), down, across), count)
    found = []
    for op in ("cos", "sin"):
        table = g.add1(Unary(op), angle)
        # whole numbers at quarter turns, where the angle's rounding would leave 1e-16 for 0
        table = g.add1(Where(), quarter, g.add1(Unary("round"), table), table)
        found.append(g.add1(Gather(0), cast_to(g, table, dtype), place))
    return found[0], found[1]


def _weights(g: GraphBuilder, size: Dim, half: Dim, dtype: DType) -> Value:
    """Of the bins of a half spectrum: inner ones stand for themselves and their conjugate."""
    count = g.add1(SizeTensor((size,), (), I64))
    bins = g.add1(Range(0, 1, half, I64))
    twice = g.add1(Binary("mul"), bins, constant_like(g, 2, I64))
    ends = [g.add1(Compare("eq"), twice, v) for v in (constant_like(g, 0, I64), count)]
    outer = g.add1(Binary("or"), *ends)
    weight = g.add1(Where(), outer, constant_like(g, 1.0, dtype), constant_like(g, 2.0, dtype))
    return g.add1(Binary("div"), weight, cast_to(g, count, dtype))
