"""GridSample: values of an image at computed positions; also the bilinear sample of RoiAlign and
DeformConv. Positions come from data, so that every index is clamped before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dims import Dim
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.expr.index import all_of, axes, clamp, to_expr
from braze.expr.scalar import Expr, binary, cast, const, load, select, unary
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.slice_pad import single_store
from braze.ops.writing.arguments import Types, array_of, type_of
from braze.ops.writing.precision import compute_type, narrow, require_float, widen, widened

MODES = {"bilinear": "linear", "linear": "linear", "nearest": "nearest",
         "bicubic": "cubic", "cubic": "cubic"}  # fmt: skip
PADDINGS = ("zeros", "border", "reflection")
CUBIC_A = -0.75


@dataclass(frozen=True)
class GridSample(Op):
    """x [N, C, *spatial] at grid [N, *out, rank] (last coordinate first, -1 .. 1 spans the image).

    align_corners: -1 and 1 are the centres of the outer pixels, otherwise their outer edges; the
    reflection mirrors at the same places. A coordinate that is not a number is -1, as PyTorch
    documents it. Positions are computed in the type of x (float32 for half types). padding: one of
    PADDINGS, or "pixels", where only pixels that are read, not positions, are moved into the image.
    """

    mode: str
    padding: str
    align_corners: bool

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, grid = type_of(inputs, 0), type_of(inputs, 1)
        require_float(x.dtype, "GridSample")
        require_float(grid.dtype, "GridSample")
        fits = x.rank == grid.rank and x.rank >= 3
        if not fits or (isinstance(grid.shape[-1], int) and grid.shape[-1] != x.rank - 2):
            raise ShapeError(
                f"GridSample: grid {list(grid.shape)} does not fit data of rank {x.rank}; give "
                f"it the same rank of 3 or more, and {x.rank - 2} coordinates on its last axis"
            )
        ctx.unify(grid.shape[-1], x.rank - 2, "GridSample coordinates on the last axis of the grid")
        batch = ctx.unify(x.shape[0], grid.shape[0], "GridSample batch")
        return (TensorType(x.dtype, (batch, x.shape[1], *grid.shape[1:-1])),)

    # -------------------------------------------------------------- numpy

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, grid = widen(array_of(inputs, 0)), array_of(inputs, 1)
        sizes = x.shape[2:]
        rank, batch = len(sizes), x.shape[0]
        lines = [
            self._place_numpy(grid[..., rank - 1 - i].astype(x.dtype), n)
            for i, n in enumerate(sizes)
        ]
        taps = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[self.mode]
        if 0 in sizes and self.padding == "zeros":  # every place is beside the image
            none = np.zeros((batch, x.shape[1], *grid.shape[1:-1]), x.dtype)
            return (narrow(none, array_of(inputs, 0)),)
        bases = [np.rint(p) if self.mode == "nearest" else np.floor(p) for p in lines]
        out = np.zeros((batch, *grid.shape[1:-1], x.shape[1]), x.dtype)
        moved = np.moveaxis(x, 1, -1)
        first = np.arange(batch).reshape(-1, *(1,) * rank)
        for tap in np.ndindex(*(len(taps),) * rank):
            weight = np.ones(grid.shape[:-1], x.dtype)
            inside = np.ones(grid.shape[:-1], np.bool_)
            index: list[Array] = []
            for i, n in enumerate(sizes):
                t = taps[tap[i]]
                weight = weight * self._weight_numpy(lines[i] - bases[i], t).astype(x.dtype)
                at = bases[i] + t
                if self.padding == "zeros":
                    inside &= (at >= 0) & (at < n)
                elif self.padding == "reflection":
                    at = self._reflect_numpy(at, n)
                index.append(whole_numpy(at, n))
            where = (first, *index)
            # 0, not 0 times whatever the nearest pixel holds: that may be infinite
            out += np.where(inside[..., None], moved[where], 0) * weight[..., None]
        return (narrow(np.moveaxis(out, -1, 1), array_of(inputs, 0)),)

    def _place_numpy(self, v: Array, n: int) -> Array:
        v = np.where(np.isnan(v), v.dtype.type(-1), v)
        p = (v + 1) / 2 * (n - 1) if self.align_corners else ((v + 1) * n - 1) / 2
        if self.mode == "nearest":
            p = np.rint(p)
        if self.padding == "border":
            low, high = (0.0, n - 1.0) if self.align_corners else (-0.5, n - 0.5)
            return np.where((p < low) | (p > high), np.clip(p, 0, n - 1), p)
        return self._reflect_numpy(p, n) if self.padding == "reflection" else p

    def _reflect_numpy(self, p: Array, n: int) -> Array:
        low, high = (0.0, n - 1.0) if self.align_corners else (-0.5, n - 0.5)
        span = high - low
        if span == 0:
            return np.zeros_like(p)
        t = np.mod(np.abs(p - low), 2 * span)
        mirrored = low + np.minimum(t, 2 * span - t)
        return np.where((p < low) | (p > high), mirrored, p).astype(p.dtype)

    def _weight_numpy(self, t: Array, tap: int) -> Array:
        if self.mode == "nearest":
            return np.ones_like(t)
        near, far = (1 - t, t) if tap <= 0 else (t, 1 - t)
        if self.mode == "linear":
            return np.asarray(near)
        if tap in (0, 1):
            return np.asarray(near * (1 + far - (CUBIC_A + 2) * far * far))
        return np.asarray(CUBIC_A * far * near * near)

    # -------------------------------------------------------------- expressions

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, grid = type_of(inputs, 0), type_of(inputs, 1)
        wide = compute_type(x.dtype)
        rank = x.rank - 2
        batch, channel, *place = axes(outputs[0].rank)
        points: list[Expr] = []
        for i, n in enumerate(x.shape[2:]):
            v = load(1, (batch, *place, to_expr(rank - 1 - i)), grid.dtype)
            points.append(self._place(cast(v, wide), n))
        value = self._sample(x, (batch, channel), points, ())
        return Nest(single_store(inputs, outputs[0], cast(value, x.dtype)))

    def _size(self, n: Dim, like: Expr) -> Expr:
        return cast(to_expr(n), like.dtype)

    def _place(self, v: Expr, n: Dim) -> Expr:
        """Pixel position of a grid coordinate, after border or reflection."""
        one, two = const(1, v.dtype), const(2, v.dtype)
        v = select(unary("isnan", v), const(-1, v.dtype), v)
        up = binary("add", v, one)
        if self.align_corners:
            p = binary("mul", binary("div", up, two), self._size(n - 1, v))
        else:
            p = binary("div", binary("sub", binary("mul", up, self._size(n, v)), one), two)
        if self.mode == "nearest":
            p = unary("round", p)
        if self.padding == "border":
            # only what lies past the outer pixels' edges moves (cubic sampling sees the difference)
            low, high = self._edges(p, n)
            outside = binary("or", binary("lt", p, low), binary("lt", high, p))
            return select(outside, _between(p, const(0, v.dtype), self._size(n - 1, v)), p)
        return self._reflect(p, n) if self.padding == "reflection" else p

    def _edges(self, p: Expr, n: Dim) -> tuple[Expr, Expr]:
        """Where the image ends: centres of the outer pixels (align_corners) or their edges."""
        inset = 1.0 if self.align_corners else 0.5
        low = const(0.0 if self.align_corners else -0.5, p.dtype)
        return low, binary("sub", self._size(n, p), const(inset, p.dtype))

    def _reflect(self, p: Expr, n: Dim) -> Expr:
        low, high = self._edges(p, n)
        span = binary("sub", high, low)
        double = binary("add", span, span)
        t = binary("mod", unary("abs", binary("sub", p, low)), double)
        mirrored = binary("add", low, binary("min", t, binary("sub", double, t)))
        outside = binary("or", binary("lt", p, low), binary("lt", high, p))
        moved = select(outside, mirrored, p)
        if n != 1 and isinstance(n, int):
            return moved
        return select(binary("eq", span, const(0, p.dtype)), const(0, p.dtype), moved)

    def _tap(self, base: Expr, tap: int, n: Dim) -> tuple[Expr, Expr | None]:
        """(index in range, condition under which the pixel exists or None)."""
        at = binary("add", base, const(tap, base.dtype)) if tap else base
        if self.padding == "reflection":
            at = self._reflect(at, n)
        index = whole(at, n)
        inside = None
        if self.padding == "zeros":
            inside = binary("and", binary("le", const(0, at.dtype), at),
                            binary("lt", at, self._size(n, at)))  # fmt: skip
        return index, inside

    def _weight(self, t: Expr, tap: int) -> Expr:
        """The weight of the pixel at floor(p) + tap, t = p - floor(p).

        The cubic kernel of Keys, (a + 2) d^3 - (a + 3) d^2 + 1 and a (d^3 - 5 d^2 + 8 d - 4) at a
        distance d, with its zeros split off: where a weight is small it comes from terms of order
        1 that cancel otherwise.
        """
        one, rest = const(1, t.dtype), binary("sub", const(1, t.dtype), t)
        near, far = (rest, t) if tap <= 0 else (t, rest)
        if self.mode == "linear":
            return near
        if tap in (0, 1):
            bend = binary("mul", const(CUBIC_A + 2, t.dtype), binary("mul", far, far))
            return binary("mul", near, binary("sub", binary("add", one, far), bend))
        return binary("mul", const(CUBIC_A, t.dtype),
                      binary("mul", far, binary("mul", near, near)))  # fmt: skip

    def _sample(
        self, x: TensorType, front: tuple[Expr, ...], points: Sequence[Expr],
        inside: tuple[Expr, ...],
    ) -> Expr:  # fmt: skip
        """The interpolated value at `points`, one axis after another."""
        wide = compute_type(x.dtype)
        i = len(front)
        if i == x.rank:
            value = widened(load(0, front, x.dtype))
            condition = all_of(inside)
            return value if condition is None else select(condition, value, const(0, wide))
        n, p = x.shape[i], points[i - 2]
        if self.mode == "nearest":
            index, exists = self._tap(p, 0, n)
            more = inside if exists is None else (*inside, exists)
            return self._sample(x, (*front, index), points, more)
        base = unary("floor", p)
        t = binary("sub", p, base)
        total: Expr | None = None
        for tap in (0, 1) if self.mode == "linear" else (-1, 0, 1, 2):
            index, exists = self._tap(base, tap, n)
            more = inside if exists is None else (*inside, exists)
            part = binary("mul", self._sample(x, (*front, index), points, more),
                          self._weight(t, tap))  # fmt: skip
            total = part if total is None else binary("add", total, part)
        assert total is not None
        return total


def _between(x: Expr, low: Expr, high: Expr) -> Expr:
    return binary("max", binary("min", x, high), low)


def whole(x: Expr, n: Dim) -> Expr:
    """A float position that is a whole number as an index in 0 .. n-1 (NaN gives 0)."""
    bounded = _between(x, const(0, x.dtype), cast(to_expr(n - 1), x.dtype))
    return clamp(cast(bounded, I64), n)


def whole_numpy(x: Array, n: int) -> Array:
    """`whole` of an array."""
    bounded = np.clip(x, 0, n - 1)
    return np.where(np.isnan(bounded), 0, bounded).astype(np.int64)


def bilinear_or_zero(
    x: TensorType, front: tuple[Expr, ...], row: Expr, column: Expr, sizes: tuple[Dim, Dim]
) -> Expr:
    """Bilinear sample of the last two axes of input 0 at a float position; pixels outside are 0."""
    wide = row.dtype
    total: Expr | None = None
    bases = (unary("floor", row), unary("floor", column))
    rest = [binary("sub", p, b) for p, b in zip((row, column), bases, strict=True)]
    for dy, dx in ((0, 0), (0, 1), (1, 0), (1, 1)):
        index: list[Expr] = []
        conditions: list[Expr] = []
        weight: Expr | None = None
        for axis_, step in enumerate((dy, dx)):
            at = binary("add", bases[axis_], const(step, wide))
            n = sizes[axis_]
            index.append(whole(at, n))
            conditions.append(binary("le", const(0, wide), at))
            conditions.append(binary("lt", at, cast(to_expr(n), wide)))
            w = rest[axis_] if step else binary("sub", const(1, wide), rest[axis_])
            weight = w if weight is None else binary("mul", weight, w)
        condition = all_of(conditions)
        assert weight is not None and condition is not None
        pixel = widened(load(0, (*front, *index), x.dtype))
        part = select(condition, binary("mul", pixel, weight), const(0, wide))
        total = part if total is None else binary("add", total, part)
    assert total is not None
    return total


def import_grid_sample(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """GridSample: bilinear, nearest, bicubic of images in opset 16; linear, cubic and any rank
    from 20."""
    mode = n.attr("mode", "bilinear" if n.opset < 20 else "linear")
    padding = n.attr("padding_mode", "zeros")
    if mode not in MODES or padding not in PADDINGS:
        raise n.unsupported(f"mode {mode!r} with padding {padding!r} is unknown")
    x = n.need(0)
    if MODES[mode] == "cubic" and len(x.shape) > 4:
        raise n.unsupported("cubic sampling of volumes; use linear")
    if n.domain == "com.microsoft" and (MODES[mode], padding) == ("cubic", "border"):
        padding = "pixels"  # as ONNX Runtime and PyTorch do, unlike the text of ONNX
    op = GridSample(MODES[mode], padding, bool(n.attr("align_corners", 0)))
    return (g.add1(op, x, n.need(1)),)
