"""CropAndResize (com.microsoft): regions of images, resampled to one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dims import Dim, number
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.expr.index import isub, to_expr
from braze.expr.scalar import Expr, axis, binary, cast, const, load, select, unary
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.index.gather import require_index_type
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.slice_pad import single_store
from braze.ops.sample.grid_sample import whole, whole_numpy
from braze.ops.writing.arguments import Types, array_of, run_sizes, type_of
from braze.ops.writing.precision import (
    compute_type,
    narrow,
    require_float,
    same_dtype,
    widen,
    widened,
)
from braze.ops.writing.run_contents import settled


@dataclass(frozen=True)
class CropAndResize(Op):
    """Inputs x [N, C, H, W], regions [R, 4] (y1, x1, y2, x2, as parts of the image from its first
    to its last pixel) and the image of each [R]. What lies outside is `outside`."""

    mode: str
    height: Dim
    width: Dim
    outside: float

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, regions, images = (type_of(inputs, i) for i in range(3))
        require_float(same_dtype((x, regions), self.name), self.name)
        require_index_type(images, self.name)
        if x.rank != 4 or regions.rank != 2 or images.rank != 1 or regions.shape[1] != 4:
            raise ShapeError(f"{self.name}: needs x of rank 4, rois [R, 4] and batch_indices [R]")
        count = ctx.unify(regions.shape[0], images.shape[0], f"{self.name} regions")
        return (TensorType(x.dtype, (count, x.shape[1], self.height, self.width)),)

    def _positions(self, regions: Array, low: int, size: int, n: int) -> Array:
        """[R, size]: where the results lie on one axis."""
        start, end, top = regions[:, low, None], regions[:, low + 2, None], n - 1
        if size == 1:
            return np.asarray(regions.dtype.type(0.5) * (start + end) * top)
        step = (end - start) * top / regions.dtype.type(size - 1)
        return np.asarray(start * top + np.arange(size).astype(regions.dtype) * step)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, regions = (widen(array_of(inputs, i)) for i in (0, 1))
        images = array_of(inputs, 2)
        lines = []
        for low, size, n in ((0, self.height, x.shape[2]), (1, self.width, x.shape[3])):
            p = self._positions(regions, low, number(size), n)
            inside = (p >= 0) & (p <= n - 1)
            if self.mode == "nearest":
                lines.append((inside, [(whole_numpy(np.floor(p + 0.5), n), np.ones_like(p))]))
                continue
            t = p - np.floor(p)
            taps = [(np.floor(p), 1 - t), (np.ceil(p), t)]
            lines.append((inside, [(whole_numpy(at, n), w) for at, w in taps]))
        (in_y, rows), (in_x, columns) = lines
        total = np.zeros((len(regions), x.shape[1], *(number(d) for d in self._sizes)), x.dtype)
        for row, wy in rows:
            for column, wx in columns:
                at = x[images[:, None, None], :, row[:, :, None], column[:, None, :]]
                weight = (wy[:, :, None] * wx[:, None, :])[:, None]
                total += np.moveaxis(at, -1, 1) * np.where(np.isnan(weight), 0, weight)
        inside = (in_y[:, :, None] & in_x[:, None, :])[:, None]
        y = np.where(inside, total, x.dtype.type(self.outside))
        return (narrow(y, array_of(inputs, 0)),)

    @property
    def _sizes(self) -> tuple[Dim, Dim]:
        return self.height, self.width

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, images = type_of(inputs, 0), type_of(inputs, 2)
        wide = compute_type(x.dtype)
        image = cast(load(2, (axis(0),), images.dtype), I64)
        in_y, rows = self._line(inputs, 0, 2, self.height)
        in_x, columns = self._line(inputs, 1, 3, self.width)
        total: Expr | None = None
        for row, wy in rows:
            for column, wx in columns:
                part = widened(load(0, (image, axis(1), row, column), x.dtype))
                if self.mode != "nearest":
                    part = binary("mul", part, binary("mul", wy, wx))
                total = part if total is None else binary("add", total, part)
        assert total is not None
        value = select(binary("and", in_y, in_x), total, const(self.outside, wide))
        return Nest(single_store(inputs, outputs[0], cast(value, x.dtype)))

    def _line(
        self, inputs: Types, low: int, k: int, size: Dim
    ) -> tuple[Expr, list[tuple[Expr, Expr]]]:
        """Whether the result's place on axis k is inside; the pixels it reads and their weights."""
        regions, n = type_of(inputs, 1), type_of(inputs, 0).shape[k]
        wide = compute_type(regions.dtype)
        start, end = (
            widened(load(1, (axis(0), to_expr(i)), regions.dtype)) for i in (low, low + 2)
        )
        top = cast(to_expr(n - 1), wide)
        middle = binary("mul", binary("mul", const(0.5, wide), binary("add", start, end)), top)
        p = middle
        if size != 1:
            step = binary("mul", binary("sub", end, start), top)
            step = binary("div", step, cast(to_expr(isub(size, 1)), wide))
            p = binary("add", binary("mul", start, top), binary("mul", cast(axis(k), wide), step))
            if not isinstance(size, int):
                p = select(binary("eq", to_expr(size), to_expr(1)), middle, p)
        inside = binary("and", binary("le", const(0, wide), p), binary("le", p, top))
        base = unary("floor", p)
        if self.mode == "nearest":
            at = unary("floor", binary("add", p, const(0.5, wide)))
            return inside, [(whole(at, n), const(1, wide))]
        t = binary("sub", p, base)
        rest = binary("sub", const(1, wide), t)
        return inside, [(whole(base, n), rest), (whole(unary("ceil", p), n), t)]


def import_crop_and_resize(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """CropAndResize: bilinear or nearest."""
    mode = n.attr("mode", "bilinear")
    if mode not in ("bilinear", "nearest"):
        raise n.invalid(f"mode {mode!r} is not bilinear or nearest")
    sizes = run_sizes(n, g, 3, "crop_size")
    if len(sizes) != 2:
        raise n.invalid(f"crop_size has {len(sizes)} numbers, not 2")
    height, width = (settled(g, d, None, f"{n.name}_{k}") for d, k in zip(sizes, "hw", strict=True))
    op = CropAndResize(mode, height, width, float(n.attr("extrapolation_value", 0.0)))
    return (g.add1(op, *(n.need(i) for i in range(3))),)
