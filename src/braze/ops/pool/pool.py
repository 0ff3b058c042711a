"""MaxPool, AveragePool and LpPool over any number of spatial axes; global pools are reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import I64, DType
from braze.core.errors import DTypeError, ShapeError
from braze.expr.index import (
    all_of,
    axes,
    iadd,
    idiv,
    imax,
    imin,
    imul,
    isub,
    ravel,
    to_expr,
    unravel,
)
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, binary, cast, const, load, red, select, unary
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode
from braze.ops.lowering import Lowering, Nest
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.pool.window import (
    Window,
    channels_first,
    from_channels_first,
    import_window,
    ints_attr,
    join_index,
    join_shape,
    split_shape,
)
from braze.ops.reduce import reduce
from braze.ops.writing.arguments import Types, array_of, tensor_specs, type_of
from braze.ops.writing.layout import LayoutOp
from braze.ops.writing.precision import compute_type, narrow, require_float, widen


def lowest(dtype: DType) -> int | float:
    """The neutral element of max."""
    if dtype.is_float:
        return float("-inf")
    return -(1 << (dtype.bits - 1)) if dtype.is_signed else 0


@dataclass(frozen=True)
class Pool(LayoutOp):
    """A window over the spatial axes of x in `layout`; pads are (begin.., end..) sizes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]
    ceil_mode: bool = False
    layout: str = "NCHW"

    @property
    def window(self) -> Window:
        """The sliding window."""
        return Window(self.kernel, self.strides, self.dilations, self.pads, self.ceil_mode)

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        if x.rank < 3:
            raise ShapeError(f"{self.name}: rank {x.rank} has no spatial axes; use 3 or more")
        batch, channels, spatial = split_shape(x.shape, self.layout)
        out = self.window.output_sizes(spatial, ctx, self.name)
        return (TensorType(x.dtype, join_shape(batch, channels, out, self.layout)),)

    def _windows(self, x: Array, fill: float) -> Array:
        """[taps, N, C, *out]: what every window sees, padding replaced by `fill`."""
        window = self.window
        first = channels_first(x, self.layout)
        out = dims.static(window.output_sizes(first.shape[2:], _Static(), self.name))
        padded = window.pad_for(first, out, fill)
        return np.stack([window.view(padded, out, t) for t in np.ndindex(*self.kernel)])

    def _positions(
        self, x: TensorType, out: TensorType
    ) -> tuple[tuple[Expr, ...], tuple[Expr, ...], Expr | None, tuple[Expr, ...]]:
        """(output index, input position, inside condition, output position)."""
        index = axes(out.rank)
        place = index[2:] if self.layout == "NCHW" else index[1:-1]
        _, _, spatial = split_shape(x.shape, self.layout)
        where, conditions = self.window.taps(spatial, place, axes(len(place), out.rank))
        return index, where, all_of(conditions), place

    def _element(self, x: TensorType, index: Sequence[Expr], where: Sequence[Expr]) -> Expr:
        channel = index[1] if self.layout == "NCHW" else index[-1]
        at = join_index(index[0], channel, where, self.layout)
        return cast(load(0, at, x.dtype), compute_type(x.dtype))


class _Static:
    """An InferContext for shapes of arrays."""

    def unify(self, a: Dim, b: Dim, what: str) -> Dim:
        return a

    def broadcast(self, a: Dim, b: Dim, what: str) -> Dim:
        return a

    def range_of(self, d: Dim) -> tuple[int, int]:
        return dims.number(d), dims.number(d)


@dataclass(frozen=True)
class MaxPool(Pool):
    """The largest element of each window; NaN propagates. Padding never wins.

    with_indices: a second output, int64: the position of that element in the flattened input
    (spatial axes in column-major order for storage_order=1). The first of equal elements counts.
    """

    storage_order: int = 0
    with_indices: bool = False

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        (y,) = super().infer(inputs, ctx)
        return (y, TensorType(I64, y.shape)) if self.with_indices else (y,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = array_of(inputs, 0)
        low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        seen = self._windows(x, low)
        y = from_channels_first(seen.max(axis=0), self.layout)
        if not self.with_indices:
            return (y,)
        valid = self._windows(np.ones(x.shape, bool), 0)
        best = np.argmax(seen, axis=0)
        # a window whose every element is the lowest value: its first element inside the input
        best = np.where(seen.max(axis=0) == low, np.argmax(valid, axis=0), best)
        flat = np.take_along_axis(self._windows(self._labels(x.shape), 0), best[None], 0)[0]
        return y, from_channels_first(flat.astype(np.int64), self.layout)

    def _labels(self, shape: tuple[int, ...]) -> Array:
        """The index that each element of the input has in the indices output."""
        if self.storage_order == 0:
            return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        batch, channels, spatial = split_shape(shape, self.layout)
        rows, count, *sizes = dims.static((batch, channels, *spatial))
        area = math.prod(sizes)
        inner = np.arange(area).reshape(sizes[::-1]).T
        planes = np.arange(rows * count).reshape(rows, count, *(1,) * len(sizes))
        return from_channels_first(planes * area + inner, self.layout)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, y = type_of(inputs, 0), outputs[0]
        index, where, inside, place = self._positions(x, y)
        element = self._element(x, index, where)
        if inside is not None:
            element = select(inside, element, const(lowest(element.dtype), element.dtype))
        reduces: tuple[Reduce, ...] = (Reduce("max", element),)
        stores = [Store(0, index, cast(red(0, element.dtype), x.dtype))]
        specs = [TensorSpec(y.dtype, y.shape)]
        if self.with_indices:
            reduces += (Reduce("argmax", element),)
            tap = red(1, I64)
            if inside is not None:
                # where all elements are the lowest value, padding must not win the tie
                reduces += (Reduce("argmax", cast(inside, I64)),)
                tie = binary(
                    "eq", red(0, element.dtype), const(lowest(element.dtype), element.dtype)
                )
                tap = select(tie, red(2, I64), tap)
            stores.append(Store(1, index, self._flat_index(x, index, place, tap)))
            specs.append(TensorSpec(I64, y.shape))
        nest = LoopNest(y.shape, self.kernel, reduces, tuple(stores))
        return Nest(LoopKernel(tensor_specs((x,)), tuple(specs), (nest,)))

    def _flat_index(
        self, x: TensorType, index: Sequence[Expr], place: Sequence[Expr], tap: Expr
    ) -> Expr:
        batch, channels, spatial = split_shape(x.shape, self.layout)
        where, _ = self.window.taps(spatial, place, unravel(tap, self.kernel))
        channel = index[1] if self.layout == "NCHW" else index[-1]
        if self.storage_order == 0:
            return ravel(join_index(index[0], channel, where, self.layout), x.shape)
        inner = ravel(where[::-1], spatial[::-1])
        return ravel((index[0], channel, inner), (batch, channels, dims.product(spatial)))


@dataclass(frozen=True)
class AveragePool(Pool):
    """The mean of each window: over elements of the input only, or with count_include_pad also
    over the padding (but never past it, where ceil_mode lets a window hang over)."""

    count_include_pad: bool = False

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        require_float(type_of(inputs, 0).dtype, "AveragePool")
        return super().infer(inputs, ctx)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = array_of(inputs, 0)
        total = self._windows(widen(x), 0).sum(axis=0)
        ones = np.ones(x.shape, total.dtype)
        if self.count_include_pad:
            ones = channels_first(ones, self.layout)
            half, pads = len(self.pads) // 2, dims.static(self.pads)
            widths = [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)]
            ones = np.pad(ones, widths, constant_values=1)
            free = Window(self.kernel, self.strides, self.dilations, (0,) * len(self.pads))
            out = total.shape[2:]
            padded = free.pad_for(ones, out, 0)
            count = sum(free.view(padded, out, t) for t in np.ndindex(*self.kernel))
        else:
            count = self._windows(ones, 0).sum(axis=0)
        return (narrow(from_channels_first(total / np.maximum(count, 1), self.layout), x),)

    def _count(self, place: Sequence[Expr], spatial: Sequence[Dim]) -> Expr:
        """How many taps of the window at output position `place` count."""
        window, count = self.window, to_expr(1)
        for i, n in enumerate(spatial):
            if window.is_inside(i) or (self.count_include_pad and not self.ceil_mode):
                count = imul(count, self.kernel[i])
                continue
            start = imul(place[i], window.strides[i])
            stop = n + window.begin(i) + (window.end(i) if self.count_include_pad else 0)
            d = window.dilations[i]
            last = imin(idiv(isub(stop + d - 1, start), d), self.kernel[i])
            first = to_expr(0)
            if not self.count_include_pad:
                first = idiv(iadd(imax(isub(window.begin(i), start), 0), d - 1), d)
            count = imul(count, imax(isub(last, first), 0))
        return imax(count, 1)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, y = type_of(inputs, 0), outputs[0]
        index, where, inside, place = self._positions(x, y)
        element = self._element(x, index, where)
        wide = element.dtype
        if inside is not None:
            element = select(inside, element, const(0, wide))
        count = cast(self._count(place, split_shape(x.shape, self.layout)[2]), wide)
        mean = binary("div", red(0, wide), count)
        return _one_sum(x, y, self.kernel, element, index, mean)


@dataclass(frozen=True)
class LpPool(Pool):
    """(sum of |x| ** p over the window) ** (1 / p); padding counts as 0."""

    p: int = 2

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        require_float(type_of(inputs, 0).dtype, "LpPool")
        return super().infer(inputs, ctx)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = array_of(inputs, 0)
        powers = np.abs(self._windows(widen(x), 0)) ** self.p
        return (narrow(from_channels_first(powers.sum(axis=0) ** (1 / self.p), self.layout), x),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, y = type_of(inputs, 0), outputs[0]
        index, where, inside, _ = self._positions(x, y)
        element = self._element(x, index, where)
        wide = element.dtype
        if inside is not None:
            element = select(inside, element, const(0, wide))
        size = unary("abs", element)
        total = red(0, wide)
        if self.p == 1:
            return _one_sum(x, y, self.kernel, size, index, total)
        if self.p == 2:
            square = binary("mul", element, element)
            return _one_sum(x, y, self.kernel, square, index, unary("sqrt", total))
        power = binary("pow", size, const(self.p, wide))
        root = binary("pow", total, const(1 / self.p, wide))
        return _one_sum(x, y, self.kernel, power, index, root)


def _one_sum(
    x: TensorType,
    y: TensorType,
    kernel: tuple[int, ...],
    term: Expr,
    index: tuple[Expr, ...],
    result: Expr,
) -> Nest:
    """A nest that sums `term` over the window and stores `result`."""
    store = Store(0, index, cast(result, y.dtype))
    nest = LoopNest(y.shape, kernel, (Reduce("sum", term),), (store,))
    return Nest(LoopKernel(tensor_specs((x,)), (TensorSpec(y.dtype, y.shape),), (nest,)))


def _import_window(n: OnnxNode, g: GraphBuilder, x: Value) -> Window:
    if len(x.shape) < 3:
        raise ShapeError(f"node {n.name!r} ({n.op_type}): {x.name!r} has no spatial axes")
    kernel = ints_attr(n, "kernel_shape", ())
    return import_window(n, g, kernel, x.shape[2:])


def import_max_pool(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """MaxPool: indices from opset 8, dilations and ceil_mode from 10, 8-bit integers from 12."""
    x = n.need(0)
    if x.dtype.is_int and x.dtype.bits > 8:
        raise DTypeError(f"node {n.name!r} (MaxPool): {x.dtype} data; insert a Cast")
    w = _import_window(n, g, x)
    order, indices = int(n.attr("storage_order", 0)), n.num_outputs > 1
    op = MaxPool(w.kernel, w.strides, w.dilations, w.pads, w.ceil_mode, "NCHW", order, indices)
    return g.add(op, x)


def import_average_pool(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """AveragePool: ceil_mode from opset 10, dilations from 19."""
    x = n.need(0)
    w = _import_window(n, g, x)
    include = bool(n.attr("count_include_pad", 0))
    op = AveragePool(w.kernel, w.strides, w.dilations, w.pads, w.ceil_mode, "NCHW", include)
    return (g.add1(op, x),)


def import_lp_pool(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """LpPool: dilations and ceil_mode from opset 18; strides default to 1."""
    x = n.need(0)
    w = _import_window(n, g, x)
    op = LpPool(w.kernel, w.strides, w.dilations, w.pads, w.ceil_mode, "NCHW", int(n.attr("p", 2)))
    return (g.add1(op, x),)


def _global(n: OnnxNode, g: GraphBuilder, kind: str) -> Value:
    x = n.need(0)
    if len(x.shape) < 2:
        raise ShapeError(f"node {n.name!r} ({n.op_type}): {x.name!r} has rank {len(x.shape)}")
    return g.add1(reduce.Reduce(kind, tuple(range(2, len(x.shape))), True), x)


def import_global_average_pool(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """The mean over all spatial axes."""
    return (_global(n, g, "mean"),)


def import_global_max_pool(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """The maximum over all spatial axes."""
    return (_global(n, g, "max"),)


def import_global_lp_pool(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """The p-norm over all spatial axes."""
    p = int(n.attr("p", 2))
    if p in (1, 2):
        return (_global(n, g, f"l{p}"),)
    x = n.need(0)
    power = g.add1(Binary("pow"), g.add1(Unary("abs"), x), constant_like(g, p, x.dtype))
    total = g.add1(reduce.Reduce("sum", tuple(range(2, len(x.shape))), True), power)
    return (g.add1(Binary("pow"), total, constant_like(g, 1 / p, x.dtype)),)
