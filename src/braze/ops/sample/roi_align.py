"""RoiAlign: bilinear samples of regions, averaged or maximised per bin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dims import Dim
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.expr.index import axes, to_expr
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, const, load, red, select, unary
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.index.gather import require_index_type
from braze.ops.lowering import Lowering, Nest
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


@dataclass(frozen=True)
class RoiAlign(Op):
    """Inputs x [N, C, H, W], rois [R, 4] (x1, y1, x2, y2) and the image of each roi [R].

    samples: points per bin and axis. half_pixel shifts regions by half a pixel; without it regions
    are at least 1 x 1. mode "max" takes the largest weighted corner of all samples, as ONNX
    defines it.
    """

    mode: str
    height: int
    width: int
    samples: int
    scale: float
    half_pixel: bool

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, rois, images = (type_of(inputs, i) for i in range(3))
        require_float(same_dtype((x, rois), "RoiAlign"), "RoiAlign")
        require_index_type(images, "RoiAlign")
        if x.rank != 4 or rois.rank != 2 or images.rank != 1 or rois.shape[1] != 4:
            raise ShapeError("RoiAlign: needs x of rank 4, rois [R, 4] and batch_indices [R]")
        count = ctx.unify(rois.shape[0], images.shape[0], "RoiAlign regions")
        return (TensorType(x.dtype, (count, x.shape[1], self.height, self.width)),)

    def _positions(self, rois: Array, low: int, bins: int) -> Array:
        """[R, bins, samples]: where the samples lie on one axis."""
        shift = 0.5 if self.half_pixel else 0.0
        start = rois[:, low] * self.scale - shift
        size = rois[:, low + 2] * self.scale - shift - start
        if not self.half_pixel:
            size = np.maximum(size, 1)
        step = (size / bins).reshape(-1, 1, 1)
        part = (np.arange(self.samples) + 0.5) / self.samples
        return np.asarray(start.reshape(-1, 1, 1) + step * (np.arange(bins)[:, None] + part))

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, rois, images = (
            widen(array_of(inputs, 0)),
            widen(array_of(inputs, 1)),
            array_of(inputs, 2),
        )
        if (images < 0).any():
            raise IndexError("RoiAlign counts images from the first")
        lines = []
        for low, bins, n in ((1, self.height, x.shape[2]), (0, self.width, x.shape[3])):
            p = self._positions(rois, low, bins).reshape(len(rois), -1)
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
        shape = (len(rois), x.shape[1], self.height, self.samples, self.width, self.samples)
        if self.mode == "max":
            y = np.max(corners, axis=0).reshape(shape).max(axis=(3, 5))
        else:
            y = np.sum(corners, axis=0).reshape(shape).mean(axis=(3, 5))
        return (narrow(y, array_of(inputs, 0)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, rois, images = (type_of(inputs, i) for i in range(3))
        wide = compute_type(x.dtype)
        roi, channel, bin_y, bin_x = axes(4)
        image = cast(load(2, (roi,), images.dtype), I64)
        y = self._axis(rois, roi, 1, self.height, bin_y, axis(4), x.shape[2])
        z = self._axis(rois, roi, 0, self.width, bin_x, axis(5), x.shape[3])
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
        if self.mode == "avg":
            result = binary("div", result, const(self.samples**2, wide))
        nest = LoopNest(
            outputs[0].shape,
            (self.samples, self.samples),
            (Reduce("max" if self.mode == "max" else "sum", total),),
            (Store(0, axes(4), cast(result, x.dtype)),),
        )
        spec = TensorSpec(x.dtype, outputs[0].shape)
        return Nest(LoopKernel(tensor_specs(inputs), (spec,), (nest,)))

    def _axis(
        self, rois: TensorType, roi: Expr, low: int, bins: int, place: Expr, sample: Expr, n: Dim
    ) -> tuple[Expr, tuple[Expr, Expr], tuple[Expr, Expr]]:
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
        part = binary("div", part, const(self.samples, wide))
        p = binary("add", start, binary("mul", step, binary("add", cast(place, wide), part)))
        top = cast(to_expr(n), wide)
        outside = binary("or", binary("lt", p, const(-1, wide)), binary("lt", top, p))
        p = binary("max", binary("min", p, binary("sub", top, const(1, wide))), const(0, wide))
        base = unary("floor", p)
        t = binary("sub", p, base)
        indexes = (whole(base, n), whole(binary("add", base, const(1, wide)), n))
        return outside, indexes, (binary("sub", const(1, wide), t), t)


def import_roi_align(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """RoiAlign: half_pixel is an attribute from opset 16 (before that never). A sampling_ratio of 0
    (points chosen by the region's size) is refused."""
    samples = int(n.attr("sampling_ratio", 0))
    if samples < 1:
        raise n.unsupported("sampling_ratio 0 depends on data; give a positive sampling_ratio")
    mode = n.attr("mode", "avg")
    default = "half_pixel" if n.opset >= 16 else "output_half_pixel"
    rule = n.attr("coordinate_transformation_mode", default)
    if mode not in ("avg", "max") or rule not in ("half_pixel", "output_half_pixel"):
        raise n.unsupported(f"mode {mode!r} with coordinates {rule!r} is unknown")
    op = RoiAlign(
        mode,
        int(n.attr("output_height", 1)),
        int(n.attr("output_width", 1)),
        samples,
        float(n.attr("spatial_scale", 1.0)),
        rule == "half_pixel",
    )
    return (g.add1(op, n.need(0), n.need(1), n.need(2)),)
