"""RoiAlign: bilinear samples of regions, averaged or maximised per bin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from braze.core.dims import Dim, dmin, number, static
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.expr.index import axes, to_expr
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, const, load, red, select, unary
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.index.gather import Gather, require_index_type
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import reshape
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.reduce.reduce import Reduce as ReduceOp
from braze.ops.sample.grid_sample import whole, whole_numpy
from braze.ops.writing.arguments import Types, array_of, tensor_specs, type_of
from braze.ops.writing.precision import (
    compute_type,
    narrow,
    require_float,
    same_dtype,
    widen,
    widened,
)

MOST_POINTS = 1 << 20  # on one axis of a bin
# points that are looked at before the image begins: half a one and one more for rounding
MARGIN = 1.5
SPARE = 8  # points in the two pixels beside the image, and those of the margin
NO_POINTS = np.zeros((1, 2), np.int64)


@dataclass(frozen=True)
class RoiAlign(Op):
    """Inputs x [N, C, H, W], rois [R, 4] (x1, y1, x2, y2) and the image of each roi [R].

    samples: points per bin and axis; 0 where a further input [R, 2] tells those of each region on
    y and x; regions without any give 0. Of those, `reach` a bin are looked at, from the first that
    may lie in the image: what lies beside it counts 0. half_pixel shifts regions by half a pixel;
    without it regions are at least 1 x 1. mode "max" takes the largest weighted corner of all
    samples, as ONNX defines it.
    """

    mode: str
    height: int
    width: int
    samples: int
    scale: float
    half_pixel: bool
    reach: tuple[Dim, Dim] = (0, 0)

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, rois, images = (type_of(inputs, i) for i in range(3))
        require_float(same_dtype((x, rois), "RoiAlign"), "RoiAlign")
        require_index_type(images, "RoiAlign")
        if x.rank != 4 or rois.rank != 2 or images.rank != 1 or rois.shape[1] != 4:
            raise ShapeError("RoiAlign: needs x of rank 4, rois [R, 4] and batch_indices [R]")
        count = ctx.unify(rois.shape[0], images.shape[0], "RoiAlign regions")
        if self.samples < 1 and type_of(inputs, 3) != TensorType(I64, (rois.shape[0], 2)):
            raise ShapeError("RoiAlign: needs int64 numbers of points [R, 2]")
        return (TensorType(x.dtype, (count, x.shape[1], self.height, self.width)),)

    @property
    def _loops(self) -> tuple[Dim, Dim]:
        """Points on y and x that are looked at."""
        return self.reach if self.samples < 1 else (self.samples, self.samples)

    def _points(self, rois: Array, low: int, bins: int, counts: Array) -> tuple[Array, Array]:
        """Where the samples lie on one axis [R, bins, loops], and which there are. counts: [R]."""
        shift = 0.5 if self.half_pixel else 0.0
        start = (rois[:, low] * self.scale - shift).reshape(-1, 1, 1)
        size = (rois[:, low + 2] * self.scale - shift).reshape(-1, 1, 1) - start
        if not self.half_pixel:
            size = np.maximum(size, 1)
        step, place = size / bins, np.arange(bins)[:, None]
        counts = counts.reshape(-1, 1, 1)
        many = np.maximum(counts, 1)
        sample = np.arange(number(self._loops[0 if low else 1])).astype(rois.dtype)
        if self.samples < 1:
            sample = sample + _first_inside(start + step * place, step / many)
        part = (sample + rois.dtype.type(0.5)) / many
        there = np.broadcast_to(sample < counts, part.shape)
        return np.asarray(start + step * (place + part)), there

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, rois, images = (
            widen(array_of(inputs, 0)),
            widen(array_of(inputs, 1)),
            array_of(inputs, 2),
        )
        if (images < 0).any():
            raise IndexError("RoiAlign counts images from the first")
        counts = np.full((len(rois), 2), self.samples) if self.samples else array_of(inputs, 3)
        counts = counts.astype(rois.dtype)
        lines, there = [], []
        for low, bins, n in ((1, self.height, x.shape[2]), (0, self.width, x.shape[3])):
            p, real = self._points(rois, low, bins, counts[:, 1 - low])
            there.append(real)
            p = p.reshape(len(rois), bins * p.shape[2])
            outside = (p < -1) | (p > n)
            p = np.clip(p, 0, n - 1)
            first = whole_numpy(np.floor(p), n)
            t = (p - np.floor(p)).astype(x.dtype)
            lines.append((outside, (first, np.minimum(first + 1, n - 1)), (1 - t, t)))
        (out_y, rows, wy), (out_x, columns, wx) = lines
        hidden = (out_y[:, :, None] | out_x[:, None, :])[:, None]
        corners = []
        for i in (0, 1):
            for j in (0, 1):
                at = x[images[:, None, None], :, rows[i][:, :, None], columns[j][:, None, :]]
                weight = wy[i][:, :, None] * wx[j][:, None, :]
                corners.append(np.where(hidden, 0, np.moveaxis(at, -1, 1) * weight[:, None]))
        loops = static(self._loops)
        shape = (len(rois), x.shape[1], self.height, loops[0], self.width, loops[1])
        mask = there[0][:, None, :, :, None, None] & there[1][:, None, None, None, :, :]
        if self.mode == "max":
            top = np.where(mask, np.max(corners, axis=0).reshape(shape), -np.inf)
            y = top.max(axis=(3, 5), initial=-np.inf)
            # points that are left out lie beside the image
            least = np.where(mask.sum(axis=(3, 5)) < _all(counts), 0, -np.inf)
            y = np.where(_all(counts) > 0, np.maximum(y, least), 0)
        else:
            total = np.where(mask, np.sum(corners, axis=0).reshape(shape), 0).sum(axis=(3, 5))
            y = total / np.maximum(_all(counts), 1)
        y = y.astype(x.dtype)
        return (narrow(y, array_of(inputs, 0)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, rois, images = (type_of(inputs, i) for i in range(3))
        wide = compute_type(x.dtype)
        roi, channel, bin_y, bin_x = axes(4)
        image = cast(load(2, (roi,), images.dtype), I64)
        rows = self._line(rois, roi, 0, bin_y, axis(4))
        columns = self._line(rois, roi, 1, bin_x, axis(5))
        y, z = _pixels(rows.position, x.shape[2]), _pixels(columns.position, x.shape[3])
        outside = binary("or", y[0], z[0])
        zero = const(0, wide)
        total: Expr | None = None
        for i in (0, 1):
            for j in (0, 1):
                pixel = widened(load(0, (image, channel, y[1][i], z[1][j]), x.dtype))
                part = binary("mul", pixel, binary("mul", y[2][i], z[2][j]))
                part = select(outside, zero, part)
                how = "max" if self.mode == "max" else "add"
                total = part if total is None else binary(how, total, part)
        assert total is not None
        result = red(0, wide)
        if self.samples < 1:
            rest = zero if self.mode == "avg" else const(-math.inf, wide)
            total = select(binary("and", rows.there, columns.there), total, rest)
            count = binary("mul", rows.many, columns.many)
            if self.mode == "avg":
                result = binary("div", result, binary("max", count, const(1, wide)))
            else:
                # points that are left out lie beside the image
                every = binary("and", rows.complete, columns.complete)
                result = select(every, result, binary("max", result, zero))
                result = select(binary("lt", zero, count), result, zero)
        elif self.mode == "avg":
            result = binary("div", result, const(self.samples**2, wide))
        nest = LoopNest(
            outputs[0].shape,
            self._loops,
            (Reduce("max" if self.mode == "max" else "sum", total),),
            (Store(0, axes(4), cast(result, x.dtype)),),
        )
        spec = TensorSpec(x.dtype, outputs[0].shape)
        return Nest(LoopKernel(tensor_specs(inputs), (spec,), (nest,)))

    def _line(self, rois: TensorType, roi: Expr, k: int, place: Expr, loop: Expr) -> _Line:
        """The points of a bin on y (0) or x (1). place: which bin; loop: which of its points."""
        wide = compute_type(rois.dtype)
        zero, one = const(0, wide), const(1, wide)

        def edge(column: int) -> Expr:
            e = widened(load(1, (roi, to_expr(column)), rois.dtype))
            e = binary("mul", e, const(self.scale, wide))
            return binary("sub", e, const(0.5, wide)) if self.half_pixel else e

        start = edge(1 - k)
        size = binary("sub", edge(3 - k), start)
        if not self.half_pixel:
            size = binary("max", size, one)
        step = binary("div", size, const((self.height, self.width)[k], wide))
        place, sample, first = cast(place, wide), cast(loop, wide), zero
        many = divisor = const(self.samples, wide)
        if self.samples < 1:
            many = cast(load(3, (roi, to_expr(k)), I64), wide)
            divisor = binary("max", many, one)
            begin = binary("add", start, binary("mul", step, place))
            apart = binary("div", step, divisor)
            ahead = binary("div", binary("sub", const(-1, wide), begin), apart)
            first = binary("max", unary("floor", binary("sub", ahead, const(MARGIN, wide))), zero)
            sample = binary("add", sample, first)
        part = binary("div", binary("add", sample, const(0.5, wide)), divisor)
        reach = cast(to_expr(self._loops[k]), wide)
        complete = binary("and", binary("eq", first, zero), binary("le", many, reach))
        position = binary("add", start, binary("mul", step, binary("add", place, part)))
        return _Line(position, binary("lt", sample, many), complete, many)


@dataclass(frozen=True)
class _Line:
    """Points of a bin on one axis: where this one lies, if there is such a one, if the loop meets
    all of them, and how many there are."""

    position: Expr
    there: Expr
    complete: Expr
    many: Expr


def _pixels(p: Expr, n: Dim) -> tuple[Expr, tuple[Expr, Expr], tuple[Expr, Expr]]:
    """(outside, (index, next index), weights) of a position on an axis of n pixels."""
    wide = p.dtype
    top = cast(to_expr(n), wide)
    outside = binary("or", binary("lt", p, const(-1, wide)), binary("lt", top, p))
    p = binary("max", binary("min", p, binary("sub", top, const(1, wide))), const(0, wide))
    base = unary("floor", p)
    t = binary("sub", p, base)
    indexes = (whole(base, n), whole(binary("add", base, const(1, wide)), n))
    return outside, indexes, (binary("sub", const(1, wide), t), t)


def _first_inside(begin: Array, apart: Array) -> Array:
    """The number of the first point of a bin that may lie in the image (from -1 on); the first of
    them lies half of `apart` behind `begin`."""
    with np.errstate(divide="ignore", invalid="ignore"):  # regions of no size have no points
        return np.asarray(np.maximum(np.floor((-1 - begin) / apart - MARGIN), 0))


def _all(counts: Array) -> Array:
    """How many points a bin of each region has, for [R, C, bins, bins]."""
    return np.asarray(counts.prod(axis=1).reshape(-1, 1, 1, 1))


def import_roi_align(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """RoiAlign: half_pixel is an attribute from opset 16 (before that never). With a sampling_ratio
    of 0 a region has as many points in a bin as the bin has pixels, rounded up."""
    mode = n.attr("mode", "avg")
    default = "half_pixel" if n.opset >= 16 else "output_half_pixel"
    rule = n.attr("coordinate_transformation_mode", default)
    if mode not in ("avg", "max") or rule not in ("half_pixel", "output_half_pixel"):
        raise n.unsupported(f"mode {mode!r} with coordinates {rule!r} is unknown")
    op = RoiAlign(
        mode,
        int(n.attr("output_height", 1)),
        int(n.attr("output_width", 1)),
        max(int(n.attr("sampling_ratio", 0)), 0),
        float(n.attr("spatial_scale", 1.0)),
        rule == "half_pixel",
    )
    inputs = [n.need(k) for k in range(3)]
    inputs[1] = rois = _regions(n, g, inputs[1])
    if op.samples < 1:
        counts, reach = _points_of_size(n, g, op, rois)
        op, inputs = replace(op, reach=reach), [*inputs, counts]
    return (g.add1(op, *inputs),)


def _regions(n: OnnxNode, g: GraphBuilder, rois: Value) -> Value:
    """The regions [R, 4]; where only the run knows how many numbers one has, it checks that."""
    if len(rois.shape) != 2 or (isinstance(rois.shape[1], int) and rois.shape[1] != 4):
        raise n.invalid(
            f"its regions have shape {list(rois.shape)}, not [regions, 4]; give 4 numbers of each"
        )
    g.unify(rois.shape[1], 4, f"node {n.name!r} (RoiAlign): numbers of each region")
    return reshape(g, rois, (rois.shape[0], 4))


def _points_of_size(
    n: OnnxNode, g: GraphBuilder, op: RoiAlign, rois: Value
) -> tuple[Value, tuple[Dim, Dim]]:
    """The points [R, 2] in a bin of each region on y and x, and how many of one are looked at."""
    wide = compute_type(rois.dtype)
    if len(n.need(0).shape) != 4:
        raise n.invalid(f"its images have shape {list(n.need(0).shape)}, not [N, C, H, W]")

    def edge(k: int) -> Value:
        e = g.add1(Gather(1), cast_to(g, rois, wide), g.constant(np.array([k + 1, k])))
        e = g.add1(Binary("mul"), e, constant_like(g, op.scale, wide))
        half = constant_like(g, 0.5, wide)
        return g.add1(Binary("sub"), e, half) if op.half_pixel else e

    size = g.add1(Binary("sub"), edge(2), edge(0))
    if not op.half_pixel:
        size = g.add1(Binary("max"), size, constant_like(g, 1.0, wide))
    bins = g.constant(np.array([op.height, op.width], wide.numpy))
    points = g.add1(Unary("ceil"), g.add1(Binary("div"), size, bins))
    # what is no number is none, and none is infinite
    there = g.add1(Compare("lt"), constant_like(g, 0.0, wide), points)
    points = g.add1(Where(), there, points, constant_like(g, 0.0, wide))
    points = g.add1(Binary("min"), points, constant_like(g, MOST_POINTS, wide))
    counts = cast_to(g, points, I64)
    most = g.add1(ReduceOp("max", (0,), False), g.add1(Concat(0), counts, g.constant(NO_POINTS)))
    names = (f"{n.name}_points_y", f"{n.name}_points_x")
    y, x = (g.read_size(most, k, 0, MOST_POINTS, names[k]) for k in (0, 1))
    # two points of a bin are more than half a pixel apart, so no more lie between -1 and the
    # image's size
    pixels = n.need(0).shape[-2:]
    return counts, (dmin(y, 2 * pixels[0] + SPARE), dmin(x, 2 * pixels[1] + SPARE))
