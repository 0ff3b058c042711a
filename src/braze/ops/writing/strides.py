"""Where the elements of a view lie in the tensor it is taken from, as an offset and strides.

An anchor whose operand has such a place reads it there: a slice of a joint product, the transposed
heads of an attention or one token of a sequence need no copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from braze.core.dims import Dim, Shape, product
from braze.core.dtypes import I64
from braze.expr.affine import as_dim, slope
from braze.expr.fold import rewrite
from braze.expr.scalar import Expr, const
from braze.ops.lowering import Operand, View
from braze.ops.writing.axes import reshape_groups

FEW = 4  # elements: a row of so many is no load worth having
ZERO = const(0, I64)


@dataclass(frozen=True, slots=True)
class Place:
    """Element (i, j, ..) of a tensor is element offset + i * steps[0] + j * steps[1] + .. of
    another one, which lies row-major in memory. The step of a unit axis says nothing."""

    steps: tuple[Dim, ...]
    offset: Dim = 0


def row_major(shape: Shape) -> Place:
    """A tensor inside itself."""
    return Place(tuple(product(shape[i + 1 :]) for i in range(len(shape))))


def through(view: View, at: Place, source: Shape, shape: Shape) -> Place | None:
    """The place of a view of `shape` of a tensor of shape `source` that lies at `at`.

    None where the view pads, repeats or walks backwards, or where one step along an axis of it is
    not always as long.
    """
    if view.inside is not None:
        return None
    if view.reshape:
        return _regrouped(at, source, shape)
    offset = at.offset
    steps: list[Dim] = [0] * len(shape)
    for index, step in zip(view.index, at.steps, strict=True):
        first = as_dim(rewrite(index, _at_origin))
        slopes = [slope(index, a, 1) for a in range(len(shape))]
        if first is None or any(not isinstance(s, int) or s < 0 for s in slopes):
            return None
        offset = offset + first * step
        steps = [total + s * step for total, s in zip(steps, slopes, strict=True) if s is not None]
    repeats = any(s == 0 and d != 1 for s, d in zip(steps, shape, strict=True))
    return None if repeats else Place(tuple(steps), offset)


def _at_origin(e: Expr) -> Expr | None:
    return ZERO if e.op == "axis" else None


def _regrouped(at: Place, source: Shape, shape: Shape) -> Place | None:
    """The place of a reshape: axes are merged only where the outer ones continue the inner."""
    groups = reshape_groups(source, shape)
    if groups is None:
        return None
    steps: list[Dim] = [0] * len(shape)
    for old, new in groups:
        if not old or not new:  # unit axes
            continue
        for outer, inner in pairwise(old):
            if at.steps[outer] != at.steps[inner] * source[inner]:
                return None
        step = at.steps[old[-1]]
        for a in reversed(new):
            steps[a] = step
            step = step * shape[a]
    return Place(tuple(steps), at.offset)


def placed(operand: Operand, sizes: Sequence[Dim], shape: Shape, at: Place) -> Operand | None:
    """`operand`, which reads a row-major tensor of `shape` along axes of `sizes`, at `at`.

    None where what it reads side by side does not lie so there, but for rows of a few elements.
    """
    if operand.offset != 0:
        return None
    dense = row_major(shape).steps
    strides: list[Dim] = []
    for size, stride in zip(sizes, operand.strides, strict=True):
        if stride == 0 or size == 1:
            strides.append(0)
            continue
        found = [
            new
            for old, new, d in zip(dense, at.steps, shape, strict=True)
            if (old, d) == (stride, size)
        ]
        if len(found) != 1 or (stride == 1 and found[0] != 1 and not _is_few(size)):
            return None
        strides.append(found[0])
    return replace(operand, strides=tuple(strides), offset=at.offset)


def _is_few(size: Dim) -> bool:
    return isinstance(size, int) and size <= FEW
