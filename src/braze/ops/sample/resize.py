"""Resize: nearest, N-linear and N-cubic resampling, with antialiasing when shrinking."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import F32, F64, I64
from braze.core.errors import DTypeError, ShapeError
from braze.expr.index import all_of, axes, clamp, iadd, imin, to_expr, within
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, const, load, red, select, unary
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext, Op, Perm, Permuted
from braze.ops.lowering import Lowering, Nest, View
from braze.ops.move.slice_pad import single_store
from braze.ops.sample.resize_axis import AxisMap, number, value
from braze.ops.writing.arguments import Types, array_of, tensor_specs, type_of
from braze.ops.writing.axes import permuted
from braze.ops.writing.grown import check_grown
from braze.ops.writing.precision import compute_type, narrow, widen

MODES = ("nearest", "linear", "cubic")


Read = Callable[[int, int], float | Expr]  # a row and a column of what the run gives


@dataclass(frozen=True)
class Resampling(Op):
    """Resample to the shape `sizes` (every axis).

    scales: the model's scale per axis, None where it follows from the sizes. roi: (start.., end..)
    per axis, for coordinate rule tf_crop_and_resize only; outside the input that rule gives
    `extrapolation`. Integers are computed in float32 and truncated.
    """

    mode: str
    sizes: tuple[Dim, ...]
    scales: tuple[float | None, ...]
    coordinate: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False
    roi: tuple[float, ...] = ()

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        if not len(self.sizes) == len(self.scales) == x.rank:
            raise ShapeError(f"Resize: {len(self.sizes)} sizes for a tensor of rank {x.rank}")
        if self.mode == "cubic" and not x.dtype.is_float:
            raise DTypeError(f"Resize: cubic on {x.dtype}; insert a Cast to float32")
        for d, size, scale in zip(x.shape, self.sizes, self.scales, strict=True):
            if scale is None or d == 0:
                check_grown(d, size, ctx, "Resize")
        return (TensorType(x.dtype, self.sizes),)

    def maps(self, shape: Sequence[Dim], read: Read | None = None) -> tuple[AxisMap, ...]:
        """The coordinate map of every axis of an input of `shape`."""
        rank = len(shape)
        crop = self.roi or (0.0,) * rank + (1.0,) * rank
        return tuple(
            AxisMap(n, self.sizes[i], self.scales[i], self.coordinate, crop[i], crop[rank + i])
            for i, n in enumerate(shape)
        )

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = array_of(inputs, 0)
        maps = self.maps(x.shape, lambda row, k: float(array_of(inputs, 1)[row, k]))
        y = x if self.mode == "nearest" else widen(x) if x.dtype.kind == "f" else x.astype("f4")
        for i, m in enumerate(maps):
            if m.is_identity:
                continue
            if self.mode == "nearest":
                y = y.take(m.nearest_positions(self.nearest), axis=i)
            else:
                y = self._blended(y, i, m)
        y = narrow(y, x)
        if self.coordinate == "tf_crop_and_resize":
            for i, m in enumerate(maps):
                c = m.positions()
                outside = (c < 0) | (c > x.shape[i] - 1)
                if outside.any() and not m.is_identity:
                    y = y.copy()
                    np.moveaxis(y, i, 0)[outside] = self.extrapolation
        return (y,)

    def _blended(self, x: Array, at: int, m: AxisMap) -> Array:
        """`x` resampled along axis `at`: the weighted sum of the taps of every position.

        Only taps are read, and all of them: a pixel elsewhere is no addend of weight 0, which would
        be NaN where the pixel is infinite.
        """
        c, n = m.positions(), dims.number(m.n)
        stretch = self._stretch(m)
        first, count = self._taps(stretch)
        if self.mode == "linear" and stretch == 1.0:
            c = np.clip(c, 0, n - 1)
        base = np.floor(c)
        y = np.zeros((*x.shape[:at], len(c), *x.shape[at + 1 :]), x.dtype)
        total = np.zeros(len(c))
        along = (-1, *(1,) * (x.ndim - at - 1))
        for t in range(first, first + count):
            weight = self._filter_numpy((base + t - c) * stretch)
            place = (base + t).astype(np.int64)
            if self.exclude_outside:
                weight = np.where((place >= 0) & (place < n), weight, 0)
            total += weight
            pixels = x.take(np.clip(place, 0, n - 1), axis=at)
            with np.errstate(all="ignore"):
                y += pixels * weight.reshape(along).astype(x.dtype)
        return np.asarray(y / total.reshape(along).astype(x.dtype)) if self._normalized else y

    def _filter_numpy(self, d: Array) -> Array:
        d, a = np.abs(d), self.cubic_a
        if self.mode == "linear":
            return np.asarray(np.maximum(1 - d, 0))
        near: Array = ((a + 2) * d - (a + 3)) * d * d + 1
        far: Array = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0))

    @property
    def _normalized(self) -> bool:
        return self.exclude_outside or self.antialias

    def _stretch(self, m: AxisMap) -> float:
        """How much the filter of an axis is widened: min(scale, 1) with antialiasing."""
        if not self.antialias:
            return 1.0
        if isinstance(m.scale, float | int):
            return min(m.scale, 1.0)
        if not isinstance(m.n, int) or not isinstance(m.size, int):
            raise ShapeError("Resize: antialias needs fixed sizes; give scales or fix the shape")
        return min(m.size / m.n, 1.0)

    def _taps(self, stretch: float) -> tuple[int, int]:
        """(first tap relative to floor(coordinate), number of taps) of the filter."""
        reach = 1 if self.mode == "linear" else 2
        first = math.floor(-reach / stretch) + 1
        return first, 2 * (1 - first)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, y = type_of(inputs, 0), outputs[0]
        maps = self.maps(x.shape, lambda row, k: load(1, (to_expr(row), to_expr(k)), F64))
        inside = self._inside(maps)
        fill = const(self.extrapolation, x.dtype)
        if self.mode == "nearest":
            index = tuple(
                axis(i) if m.is_identity else m.nearest(axis(i), self.nearest)
                for i, m in enumerate(maps)
            )
            if len(inputs) == 1:
                return View(index, inside, fill if inside is not None else None)
            element = load(0, index, x.dtype)
            element = element if inside is None else select(inside, element, fill)
            return Nest(single_store(inputs, y, element))
        plain = all(m.is_identity or self._stretch(m) == 1.0 for m in maps)
        if self.mode == "linear" and plain:
            element = cast(self._linear(x, maps), x.dtype)
            if inside is not None:
                element = select(inside, element, fill)
            return Nest(single_store(inputs, y, element))
        return Nest(self._filtered(inputs, y, maps, inside))

    def _inside(self, maps: Sequence[AxisMap]) -> Expr | None:
        """The condition under which tf_crop_and_resize samples the input."""
        if self.coordinate != "tf_crop_and_resize":
            return None
        conditions: list[Expr] = []
        for i, m in enumerate(maps):
            if not (m.n == m.size and (m.start, m.end) == (0.0, 1.0)):
                c = m.coordinate(axis(i))
                conditions.append(binary("le", number(0), c))
                conditions.append(binary("le", c, value(m.n - 1)))
        return all_of(conditions)

    def _linear(self, x: TensorType, maps: Sequence[AxisMap]) -> Expr:
        """Linear interpolation between the two neighbours on every resized axis."""
        wide = compute_type(x.dtype) if x.dtype.is_float else F32
        index: list[list[Expr]] = []
        weights: list[Expr | None] = []
        for i, m in enumerate(maps):
            if m.is_identity:
                index.append([axis(i)])
                weights.append(None)
                continue
            top = value(m.n - 1)
            c = binary("max", binary("min", m.coordinate(axis(i)), top), number(0))
            low = unary("floor", c)
            first = clamp(cast(low, I64), m.n)
            index.append([first, imin(iadd(first, 1), m.n - 1)])
            weights.append(cast(binary("sub", c, low), wide))

        def blend(i: int, at: tuple[Expr, ...]) -> Expr:
            if i == len(maps):
                return cast(load(0, at, x.dtype), wide)
            first = blend(i + 1, (*at, index[i][0]))
            w = weights[i]
            if w is None:
                return first
            second = blend(i + 1, (*at, index[i][1]))
            rest = binary("sub", const(1, wide), w)
            return binary("add", binary("mul", first, rest), binary("mul", second, w))

        return blend(0, ())

    def _filter(self, d: Expr) -> Expr:
        d, a = unary("abs", d), self.cubic_a

        def poly(*coefficients: float) -> Expr:
            out = number(coefficients[0])
            for c in coefficients[1:]:
                out = binary("add", binary("mul", out, d), number(c))
            return out

        if self.mode == "linear":
            return binary("max", binary("sub", number(1), d), number(0))
        near, far = poly(a + 2, -(a + 3), 0, 1), poly(a, -5 * a, 8 * a, -4 * a)
        outer = select(binary("lt", d, number(2)), far, number(0))
        return select(binary("le", d, number(1)), near, outer)

    def _filtered(
        self, inputs: Types, y: TensorType, maps: Sequence[AxisMap], inside: Expr | None
    ) -> LoopKernel:
        """A weighted sum over the taps of every resized axis."""
        x = type_of(inputs, 0)
        wide = compute_type(x.dtype) if x.dtype.is_float else F32
        inner: list[Dim] = []
        at: list[Expr] = []
        weight: Expr = number(1)
        for i, m in enumerate(maps):
            if m.is_identity:
                at.append(axis(i))
                continue
            stretch = self._stretch(m)
            first, count = self._taps(stretch)
            c = m.coordinate(axis(i))
            base = unary("floor", c)
            tap = iadd(axis(y.rank + len(inner)), first)
            inner.append(count)
            place = iadd(cast(base, I64), tap)
            distance = binary("sub", binary("add", base, cast(tap, F64)), c)
            w = self._filter(binary("mul", distance, number(stretch)))
            if self.exclude_outside:
                w = select(within(place, 0, m.n), w, number(0))
            weight = binary("mul", weight, w)
            at.append(clamp(place, m.n))
        w = cast(weight, wide)
        element = cast(load(0, tuple(at), x.dtype), wide)
        reduces = [Reduce("sum", binary("mul", w, element))]
        result = red(0, wide)
        if self._normalized:
            reduces.append(Reduce("sum", w))
            result = binary("div", result, red(1, wide))
        result = cast(result, x.dtype)
        if inside is not None:
            result = select(inside, result, const(self.extrapolation, x.dtype))
        store = Store(0, axes(y.rank), result)
        nest = LoopNest(y.shape, tuple(inner), tuple(reduces), (store,))
        return LoopKernel(tensor_specs(inputs), (TensorSpec(y.dtype, y.shape),), (nest,))


@dataclass(frozen=True)
class Resize(Resampling):
    """Resampling of which the build knows scales and roi."""

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        rank = len(perm)
        roi = self.roi and permuted(self.roi[:rank], perm) + permuted(self.roi[rank:], perm)
        sizes, scales = permuted(self.sizes, perm), permuted(self.scales, perm)
        return replace(self, sizes=sizes, scales=scales, roi=roi), perm


@dataclass(frozen=True)
class RunResize(Resampling):
    """Resampling by what the run gives: input 1 is float64 [3, axes], of scales, starts and ends.

    fed: the axes whose scale is read there; crops: whether starts and ends are.
    """

    fed: tuple[bool, ...] = ()
    crops: bool = False

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        if type_of(inputs, 1) != TensorType(F64, (3, len(self.fed))):
            raise ShapeError(f"{self.name}: scales, starts and ends are {type_of(inputs, 1)}")
        return super().infer(inputs, ctx)

    def maps(self, shape: Sequence[Dim], read: Read | None = None) -> tuple[AxisMap, ...]:
        assert read is not None
        found = []
        for k, m in enumerate(super().maps(shape)):
            scaled = replace(m, scale=read(0, k)) if self.fed[k] else m
            found.append(
                replace(scaled, start=read(1, k), end=read(2, k)) if self.crops else scaled
            )
        return tuple(found)
