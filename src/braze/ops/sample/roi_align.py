"""RoiAlign: bilinear samples of regions, averaged or maximised per bin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from braze.core.dims import Dim, number, static
from braze.core.dtypes import I64, DType
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
NO_POINTS = np.zeros((1, 2), np.int64)


@dataclass(frozen=True)
class RoiAlign(Op):
    """Inputs x [N, C, H, W], rois [R, 4] (x1, y1, x2, y2) and the image of each roi [R].

    samples: points per bin and axis; 0 where a further input [R, 2] tells those of each region on
    y and x, which are at most `reach`; regions without any give 0. half_pixel shifts regions by
    half a pixel; without it regions are at least 1 x 1. mode "max" takes the largest weighted
    corner of all samples, as ONNX defines it.
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

    def _positions(self, rois: Array, low: int, bins: int, counts: Array) -> Array:
        """[R, bins, samples]: where the samples lie on one axis. counts: of each region there."""
        shift = 0.5 if self.half_pixel else 0.0
        start = rois[:, low] * self.scale - shift
        size = rois[:, low + 2] * self.scale - shift - start
        if not self.half_pixel:
            size = np.maximum(size, 1)
        step = (size / bins).reshape(-1, 1, 1)
        reach = np.arange(number(self._loops[0 if low else 1]))
        part = (reach + rois.dtype.type(0.5)) / np.maximum(counts, 1).reshape(-1, 1, 1)
        return np.asarray(start.reshape(-1, 1, 1) + step * (np.arange(bins)[:, None] + part))

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
        lines = []
        for low, bins, n in ((1, self.height, x.shape[2]), (0, self.width, x.shape[3])):
            p = self._positions(rois, low, bins, counts[:, 1 - low])
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
        there = [np.arange(n) < counts[:, k, None] for k, n in enumerate(loops)]
        mask = there[0][:, None, None, :, None, None] & there[1][:, None, None, None, None, :]
        if self.mode == "max":
            top = np.where(mask, np.max(corners, axis=0).reshape(shape), -np.inf)
            y = np.where(mask.any(axis=(3, 5)), top.max(axis=(3, 5), initial=-np.inf), 0)
        else:
            total = np.where(mask, np.sum(corners, axis=0).reshape(shape), 0).sum(axis=(3, 5))
            y = total / np.maximum(counts.prod(axis=1), 1).reshape(-1, 1, 1, 1)
        y = y.astype(x.dtype)
        return (narrow(y, array_of(inputs, 0)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, rois, images = (type_of(inputs, i) for i in range(3))
        wide = compute_type(x.dtype)
        roi, channel, bin_y, bin_x = axes(4)
        image = cast(load(2, (roi,), images.dtype), I64)
        many = [self._count(roi, k, wide) for k in (0, 1)]
        y = self._axis(rois, roi, 1, self.height, bin_y, axis(4), x.shape[2], many[0])
        z = self._axis(rois, roi, 0, self.width, bin_x, axis(5), x.shape[3], many[1])
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
            there = [binary("lt", cast(axis(4 + k), wide), many[k]) for k in (0, 1)]
            rest = zero if self.mode == "avg" else const(-math.inf, wide)
            total = select(binary("and", *there), total, rest)
            count = binary("mul", *many)
            if self.mode == "avg":
                result = binary("div", result, binary("max", count, const(1, wide)))
            else:
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

    def _count(self, roi: Expr, k: int, wide: DType) -> Expr:
        """How many points a bin of a region has on y (0) or x (1)."""
        if self.samples:
            return const(self.samples, wide)
        return cast(load(3, (roi, to_expr(k)), I64), wide)

    def _axis(
        self, rois: TensorType, roi: Expr, low: int, bins: int, place: Expr, sample: Expr, n: Dim,
        many: Expr,
    ) -> tuple[Expr, tuple[Expr, Expr], tuple[Expr, Expr]]:  # fmt: skip
        """(outside, (index, next index), weights) of a sample on one axis."""
        wide = compute_type(rois.dtype)

        def edge(k: int) -> Expr:
            e = widened(load(1, (roi, to_expr(k)), rois.dtype))
            e = binary("mul", e, const(self.scale, wide))
            return binary("sub", e, const(0.5, wide)) if self.half_pixel else e

        start = edge(low)
        size = binary("sub", edge(low + 2), start)
        if not self.half_pixel:
            size = binary("max", size, const(1, wide))
        step = binary("div", size, const(bins, wide))
        part = binary("add", cast(sample, wide), const(0.5, wide))
        part = binary("div", part, many if self.samples else binary("max", many, const(1, wide)))
        p = binary("add", start, binary("mul", step, binary("add", cast(place, wide), part)))
        top = cast(to_expr(n), wide)
        outside = binary("or", binary("lt", p, const(-1, wide)), binary("lt", top, p))
        p = binary("max", binary("min", p, binary("sub", top, const(1, wide))), const(0, wide))
        base = unary("floor", p)
        t = binary("sub", p, base)
        indexes = (whole(base, n), whole(binary("add", base, const(1, wide)), n))
        return outside, indexes, (binary("sub", const(1, wide), t), t)


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
    if op.samples < 1:
        counts, reach = _points_of_size(n, g, op)
        op, inputs = replace(op, reach=reach), [*inputs, counts]
    return (g.add1(op, *inputs),)


def _points_of_size(n: OnnxNode, g: GraphBuilder, op: RoiAlign) -> tuple[Value, tuple[Dim, Dim]]:
    """The points [R, 2] in a bin of each region on y and x, and the largest of both."""
    rois = n.need(1)
    wide = compute_type(rois.dtype)
    if len(rois.shape) != 2 or rois.shape[1] != 4:
        raise n.invalid(f"its regions have shape {list(rois.shape)}, not [regions, 4]")

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
    return counts, (y, x)
