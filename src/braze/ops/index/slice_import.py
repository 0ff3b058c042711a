"""Importer of Slice, whose places may be constants, sizes, or what the run computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braze.core import dims
from braze.core.config import MAX_SIZE
from braze.core.dims import Dim
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.index.gather import Gather
from braze.ops.move.slice_pad import Slice
from braze.ops.pointwise.constant import Range
from braze.ops.writing.arguments import normalize_axis, run_sizes
from braze.ops.writing.run_axes import picked, spread
from braze.ops.writing.run_contents import is_negative, is_run_size, settled
from braze.ops.writing.size_arithmetic import Bounds, larger, smaller

FAR: Final = 1 << 40  # from every position of an axis


def _from_front(g: GraphBuilder, position: Dim, size: Dim) -> Dim:
    """A start or end with negative values counted from the end; not clamped yet."""
    low, high = g.range_of(position)
    if low >= 0:
        return position
    if high < 0:
        return position + size
    # what lies outside by more than one is as good as what lies outside by one
    near = smaller(larger(position, 0 - size - 1, g.range_of), size + 1, g.range_of)
    return near + size * is_negative(near)


def _backwards_from(g: GraphBuilder, start: Dim, size: Dim) -> Dim:
    """Where a slice backwards starts: within 0 .. size - 1; -1 on an axis without elements."""
    last, bounds = size - 1, g.range_of
    if start == last:
        return start
    if bounds(last)[0] >= 0:
        return larger(smaller(start, last, bounds), 0, bounds)
    return smaller(larger(start, 0, bounds), last, bounds)


def _on_axis(position: Dim, size: Dim, bounds: Bounds) -> Dim:
    """A position clamped to 0 .. size; one that is never beyond the axis has no choice there."""
    clamped = larger(position, 0, bounds)
    return clamped if bounds(position - size)[1] <= 0 else smaller(clamped, size, bounds)


def _span(start: Dim, end: Dim) -> Dim:
    """end - start; of the last k of an axis, end - max(end - k, 0), it is min(k, end)."""
    whole = end - start
    parts = dims.extremes("max", start)
    if parts is None:
        return whole
    rests = [end - p for p in parts]
    return dims.dmin(*rests) if any(isinstance(r, int) for r in rests) else whole


def _resolve_slice(
    n: OnnxNode, g: GraphBuilder, size: Dim, start: Dim, end: Dim, step: int
) -> tuple[Dim, Dim]:
    """(first index, number of elements) of one sliced axis, by the clamping rules of ONNX.

    Backwards they take a start before the axis for its first element (numpy takes nothing then).
    """
    if step == 0:
        raise ShapeError(f"node {n.name!r} (Slice): step 0; use a step that is not zero")
    start = _from_front(g, start, size)
    end = _from_front(g, end, size)
    bounds = g.range_of
    if step > 0:
        start, end = _on_axis(start, size, bounds), _on_axis(end, size, bounds)
        count = dims.ceildiv(_span(start, end), step)
    else:
        start = _backwards_from(g, start, size)
        end = smaller(larger(end, -1, bounds), size - 1, bounds)
        count = dims.ceildiv(start - end, -step)
        if is_run_size(g, start):
            start = larger(start, 0, bounds)  # of nothing, where it is less
    count = larger(count, 0, bounds)
    few = bounds(count)[1]  # of the last k it is k, whatever the axis
    most = few if few < bounds(size)[1] else size
    count = settled(g, count, most, f"{n.name}_size")
    return settled(g, start, None, f"{n.name}_start"), count


def import_slice(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Slice: starts, ends, axes are attributes before opset 10 and inputs from then on."""
    x = n.need(0)
    rank = len(x.shape)
    starts: Sequence[Dim]
    ends: Sequence[Dim]
    which: Sequence[Dim]
    if n.opset < 10:
        starts, ends = tuple(n.attr("starts")), tuple(n.attr("ends"))
        which = tuple(n.attr("axes", range(len(starts))))
        steps: Sequence[Dim] = (1,) * len(starts)
    else:
        starts = run_sizes(n, g, 1, "starts", far=True)
        ends = run_sizes(n, g, 2, "ends", far=True)
        count = len(starts)
        which = run_sizes(n, g, 3, "axes") if n.input(3) is not None else tuple(range(count))
        steps = (1,) * count if n.input(4) is None else run_sizes(n, g, 4, "steps", far=True)
    if not len(starts) == len(ends) == len(which) == len(steps):
        raise ShapeError(f"node {n.name!r} (Slice): starts, ends, axes and steps differ in length")
    steps = tuple(_near(n, g, d) for d in steps)
    if not dims.is_static(which):
        picked(g, which, rank, n.name)
        starts, ends = (tuple(_near(n, g, d) for d in given) for given in (starts, ends))
        starts, ends = spread(which, starts, (0,) * rank), spread(which, ends, x.shape)
        same = all(s == 1 for s in steps)
        steps = (1,) * rank if same else spread(which, steps, (1,) * rank)
        which = range(rank)
    places = [normalize_axis(a, rank, n) for a in dims.static(which)]
    return (_slice(n, g, x, list(zip(places, starts, ends, steps, strict=True))),)


def _near(n: OnnxNode, g: GraphBuilder, d: Dim) -> Dim:
    """A start, end or step that sums with sizes do not overflow; larger ones lie outside too."""
    near = dims.dmin(dims.dmax(d, -FAR), FAR)
    return g.name_size(near, -FAR, FAR, f"{n.name}_place")


def _slice(
    n: OnnxNode, g: GraphBuilder, x: Value, parts: Sequence[tuple[int, Dim, Dim, Dim]]
) -> Value:
    """The part of `x` that (axis, start, end, step) say."""
    first: list[Dim] = [0] * len(x.shape)
    sizes, stride = list(x.shape), [1] * len(x.shape)
    for k, start, end, step in parts:
        if isinstance(step, int):
            first[k], sizes[k] = _resolve_slice(n, g, x.shape[k], start, end, step)
            stride[k] = step
    out = x
    if any(isinstance(step, int) for *_, step in parts):
        out = g.add1(Slice(tuple(first), tuple(sizes), tuple(stride)), x)
    for k, start, end, step in parts:
        if not isinstance(step, int):
            out = g.add1(Gather(k), out, _positions(n, g, x.shape[k], start, end, step))
    return out


def _positions(n: OnnxNode, g: GraphBuilder, size: Dim, start: Dim, end: Dim, step: Dim) -> Value:
    """The positions on an axis that a slice with a step of the run takes."""
    bounds = g.range_of
    start, end = _from_front(g, start, size), _from_front(g, end, size)
    backwards = is_negative(step)

    def either(position: Dim, back: Dim) -> Dim:
        ahead = smaller(larger(position, 0, bounds), size, bounds)
        return ahead + backwards * (back - ahead)

    back = _backwards_from(g, start, size)
    first = g.name_size(either(start, back), -1, None, f"{n.name}_start")
    back = smaller(larger(end, -1, bounds), size - 1, bounds)
    span = either(end, back) - first
    span = span - backwards * span * 2
    # a longer one takes one element as well
    pace = dims.dmin(dims.dmax(step, 0 - step), MAX_SIZE)
    pace = g.name_size(pace, 1, None, f"{n.name}_pace")
    count = settled(g, dims.dmax(dims.ceildiv(span, pace), 0), size, f"{n.name}_size")
    return g.add1(Range(first, pace - backwards * pace * 2, count, I64))
