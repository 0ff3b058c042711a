"""ConvTranspose: the gradient of Conv, over 1 to 3 spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.errors import ShapeError
from braze.expr.index import (
    all_of,
    axes,
    iadd,
    idiv,
    ieq,
    imod,
    imul,
    isub,
    within,
)
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, const, load, red, select
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.lowering import Decompose, Lowering, Nest, View
from braze.ops.move.shape import reshape, transpose
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.pool.window import (
    channels_first,
    from_channels_first,
    ints_attr,
    join_index,
    join_shape,
    split_shape,
)
from braze.ops.product.conv import Conv, add_bias, check_weight
from braze.ops.product.matmul import MatMul
from braze.ops.writing.arguments import Types, array_of, at_least, tensor_specs, type_of
from braze.ops.writing.layout import LayoutOp
from braze.ops.writing.precision import compute_type, narrow, require_float, same_dtype, widen


@dataclass(frozen=True)
class ConvTranspose(LayoutOp):
    """Inputs x and w [C, K/groups, *kernel]; x and the result are in `layout`. No bias: an Add.

    Size: stride * (n - 1) + output_padding + (kernel - 1) * dilation + 1 - begin - end; pads may be
    negative (they add elements that are 0).
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int = 1
    layout: str = "NCHW"

    def _size(self, i: int, n: Dim, kernel: int) -> Dim:
        begin, end = self.pads[i], self.pads[len(self.strides) + i]
        extent = (kernel - 1) * self.dilations[i] + 1
        return (n - 1) * self.strides[i] + (self.output_padding[i] + extent - begin - end)

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, w = type_of(inputs, 0), type_of(inputs, 1)
        dtype = same_dtype((x, w), "ConvTranspose")
        require_float(dtype, "ConvTranspose")
        batch, channels, spatial = split_shape(x.shape, self.layout)
        rank = len(spatial)
        lengths = [len(f) for f in (self.strides, self.dilations, self.output_padding)]
        if lengths != [rank] * 3 or len(self.pads) != 2 * rank or w.rank != x.rank:
            raise ShapeError(f"ConvTranspose: attributes do not fit {rank} spatial axes")
        if not dims.is_static(w.shape):
            raise ShapeError(f"ConvTranspose: the weight shape {list(w.shape)} must be fixed")
        ctx.unify(channels, w.shape[0], "ConvTranspose input channels")
        kernel = dims.static(w.shape[2:])
        out = tuple(self._size(i, n, kernel[i]) for i, n in enumerate(spatial))
        for o in out:
            at_least(o, 0, ctx, "ConvTranspose output size")
        filters = w.shape[1] * self.groups
        return (TensorType(dtype, join_shape(batch, filters, out, self.layout)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, w = array_of(inputs, 0), array_of(inputs, 1)
        y = self._scatter(widen(channels_first(x, self.layout)), widen(w))
        return (narrow(from_channels_first(y, self.layout), x),)

    def _scatter(self, x: Array, w: Array) -> Array:
        """Add every input element times every tap to the place it reaches; then cut the pads."""
        batch, spatial, rank, g = x.shape[0], x.shape[2:], len(self.strides), self.groups
        filters = w.shape[1] * g
        full = [
            (n - 1) * s + (k - 1) * d + 1
            for n, s, k, d in zip(spatial, self.strides, w.shape[2:], self.dilations, strict=True)
        ]
        y = np.zeros((batch, filters, *(max(0, n) for n in full)), dtype=x.dtype)
        parts = x.reshape(batch, g, x.shape[1] // g, int(np.prod(spatial)))
        weights = w.reshape(g, w.shape[0] // g, w.shape[1], *w.shape[2:])
        for tap in np.ndindex(*w.shape[2:]) if parts.size else ():
            at = (slice(None), slice(None), slice(None), *tap)
            moved = np.matmul(weights[at].transpose(0, 2, 1), parts)
            places = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, self.dilations, spatial, self.strides, strict=True)
            )
            where = (slice(None), slice(None), *places)
            y[where] += moved.reshape(batch, filters, *spatial)
        begins = (0, 0, *(-p for p in self.pads[:rank]))
        more = zip(self.output_padding, self.pads[rank:], full, strict=True)
        ends = (0, 0, *(o - p + min(0, n) for o, p, n in more))  # of no pixels: fewer than none
        return Pad("constant", begins, ends, 0.0).reference(y)[0]

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, w = type_of(inputs, 0), type_of(inputs, 1)
        if self.layout == "NHWC":
            tiles = w.shape[2:] == self.strides and set(self.dilations) == {1}
            if tiles and self.groups == 1 and not any(self.pads) and not any(self.output_padding):
                return Decompose(self._build_tiles)
            if self._has_phases(dims.static(w.shape[2:])):
                return Decompose(self._build_phases)
            return Decompose(self._build_conv)
        return Nest(self._nest(x, w, outputs[0]))

    def _build_tiles(self, g: GraphBuilder, x: Value, w: Value) -> tuple[Value, ...]:
        """Kernel equal to stride: every input pixel makes its own tile, one matrix product."""
        rank = len(self.strides)
        channels, filters, *kernel = w.shape
        matrix = transpose(g, w, (0, *range(2, 2 + rank), 1))
        matrix = reshape(g, matrix, (channels, dims.product(kernel) * filters))
        y = g.add1(MatMul(), x, matrix)
        batch, spatial = x.shape[0], x.shape[1:-1]
        y = reshape(g, y, (batch, *spatial, *kernel, filters))
        pairs = [a for i in range(rank) for a in (1 + i, 1 + rank + i)]
        y = transpose(g, y, (0, *pairs, 1 + 2 * rank))
        out = tuple(n * k for n, k in zip(spatial, kernel, strict=True))
        return (reshape(g, y, (batch, *out, filters)),)

    def _has_phases(self, kernel: Sequence[int]) -> bool:
        """Whether `_build_phases` covers the output: no dilation, pads that only cut, and as many
        taps in every phase (a tap of zeros would make NaN of an infinite input)."""
        ends = self.pads[len(self.strides) :]
        inside = all(more <= end for more, end in zip(self.output_padding, ends, strict=True))
        even = all(k % s == 0 for k, s in zip(kernel, self.strides, strict=True))
        spread = set(self.dilations) == {1} and set(self.strides) != {1}
        return spread and even and min(self.pads) >= 0 and inside

    def _build_phases(self, g: GraphBuilder, x: Value, w: Value) -> tuple[Value, ...]:
        """One Conv makes `stride` neighbours of each axis as channels, which are then laid out.

        Output s * q + r is the sum over t of x[q - t] * w[r + s * t]: a plain convolution for each
        phase r, over every s-th tap. W. Shi et al., "Real-Time Single Image and Video
        Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural Network" (2016).
        """
        rank, groups, steps = len(self.strides), self.groups, self.strides
        channels, filters, *kernel = dims.static(w.shape)
        taps = [k // s for k, s in zip(kernel, steps, strict=True)]
        split = [size for pair in zip(taps, steps, strict=True) for size in pair]
        w = reshape(g, w, (groups, channels // groups, filters, *split))
        order = (0, *range(4, 4 + 2 * rank, 2), 2, 1, *range(3, 3 + 2 * rank, 2))
        w = transpose(g, w, order)  # group, phases, filter, channel, taps
        w = reshape(g, w, (groups * dims.product(steps) * filters, channels // groups, *taps))
        last = tuple(t - 1 for t in taps)
        w = g.add1(Slice((0, 0, *last), w.shape, (1, 1, *(-1,) * rank)), w)
        y = g.add1(Conv((1,) * rank, (1,) * rank, (*last, *last), groups, "NHWC"), x, w)
        batch, *places, _ = y.shape
        y = reshape(g, y, (batch, *places, groups, *steps, filters))
        pairs = [a for i in range(rank) for a in (1 + i, 2 + rank + i)]
        y = transpose(g, y, (0, *pairs, 1 + rank, 2 + 2 * rank))
        wide = tuple(n * s for n, s in zip(places, steps, strict=True))
        y = reshape(g, y, (batch, *wide, groups * filters))
        sizes = tuple(self._size(i, n, kernel[i]) for i, n in enumerate(x.shape[1:-1]))
        cut = Slice((0, *self.pads[:rank], 0), (batch, *sizes, groups * filters), (1,) * (2 + rank))
        return (g.add1(cut, y),)

    def _build_conv(self, g: GraphBuilder, x: Value, w: Value) -> tuple[Value, ...]:
        """A Conv of the input with zeros behind each of its pixels and the mirrored kernel."""
        rank, groups = len(self.strides), self.groups
        channels, per_group, *kernel = w.shape
        w = reshape(g, w, (groups, channels // groups, per_group, *kernel))
        w = transpose(g, w, (0, 2, 1, *range(3, 3 + rank)))
        w = reshape(g, w, (groups * per_group, channels // groups, *kernel))
        last = tuple(k - 1 for k in kernel)
        w = g.add1(Slice((0, 0, *last), w.shape, (1, 1, *(-1,) * rank)), w)
        if set(self.strides) != {1}:
            x = g.add1(InsertZeros((1, *self.strides, 1)), x)
        begins: list[int] = []
        ends: list[int] = []
        for i in range(rank):
            reach = dims.number(last[i]) * self.dilations[i]
            begins.append(reach - self.pads[i])
            behind = self.strides[i] - 1  # the last pixel's zeros: without it they are none
            ends.append(reach - self.pads[rank + i] + self.output_padding[i] - behind)
        if min(begins + ends) < 0:
            x = g.add1(Pad("constant", (0, *begins, 0), (0, *ends, 0), 0.0), x)
            begins, ends = [0] * rank, [0] * rank
        conv = Conv((1,) * rank, self.dilations, (*begins, *ends), groups, "NHWC")
        return (g.add1(conv, x, w),)

    def _nest(self, x: TensorType, w: TensorType, out: TensorType) -> LoopKernel:
        """Each output element gathers the taps whose position divides by the stride."""
        wide = compute_type(x.dtype)
        rank = len(self.strides)
        index = axes(out.rank)
        batch, k, place = index[0], index[1], index[2:]
        if self.layout == "NHWC":
            k, place = index[-1], index[1:-1]
        c, *taps = axes(1 + rank, out.rank)
        _, _, spatial = split_shape(x.shape, self.layout)
        per_group, group_channels = w.shape[1], dims.number(w.shape[0]) // self.groups
        channel = iadd(imul(idiv(k, per_group), group_channels), c) if self.groups > 1 else c
        filter_ = imod(k, per_group) if self.groups > 1 else k
        where: list[Expr] = []
        conditions: list[Expr] = []
        for i, n in enumerate(spatial):
            p = isub(iadd(place[i], self.pads[i]), imul(taps[i], self.dilations[i]))
            s = self.strides[i]
            q = idiv(p, s)
            where.append(q)
            conditions += [within(q, 0, n)] + ([ieq(imod(p, s), 0)] if s > 1 else [])
        element = cast(load(0, join_index(batch, channel, where, self.layout), x.dtype), wide)
        inside = all_of(conditions)
        assert inside is not None
        element = select(inside, element, const(0, wide))
        weight = cast(load(1, (channel, filter_, *taps), w.dtype), wide)
        nest = LoopNest(
            out.shape,
            (group_channels, *w.shape[2:]),
            (Reduce("sum", binary("mul", element, weight)),),
            (Store(0, index, cast(red(0, wide), out.dtype)),),
        )
        return LoopKernel(tensor_specs((x, w)), (TensorSpec(out.dtype, out.shape),), (nest,))


@dataclass(frozen=True)
class InsertZeros(Op):
    """steps - 1 zeros behind each element of each axis: out[i * step] = x[i]."""

    steps: tuple[int, ...]

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        shape = tuple(d * s for d, s in zip(x.shape, self.steps, strict=True))
        return (TensorType(x.dtype, shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = array_of(inputs, 0)
        shape = [d * s for d, s in zip(x.shape, self.steps, strict=True)]
        y = np.zeros(shape, dtype=x.dtype)
        y[tuple(slice(None, None, s) for s in self.steps)] = x
        return (y,)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x = type_of(inputs, 0)
        index = tuple(idiv(axis(i), s) for i, s in enumerate(self.steps))
        inside = all_of([ieq(imod(axis(i), s), 0) for i, s in enumerate(self.steps) if s > 1])
        return View(index, inside, None if inside is None else const(0, x.dtype))


def _transpose_pads(
    n: OnnxNode,
    spatial: Sequence[Dim],
    extents: Sequence[int],
    strides: Sequence[int],
    extra: Sequence[int],
) -> tuple[int, ...]:
    """pads from pads, output_shape or auto_pad.

    total = stride * (n - 1) + output_padding + extent - output_shape, where SAME_* stands for the
    output shape n * stride; SAME_UPPER puts the odd element at the end, everything else at the
    begin (the rule of opset 11, which corrected the text of opset 1).
    """
    rank = len(spatial)
    auto = n.attr("auto_pad", "NOTSET") or "NOTSET"
    wanted = n.attr("output_shape")
    if wanted is None and auto == "NOTSET":
        return ints_attr(n, "pads", (0,) * (2 * rank))
    if wanted is None and auto == "VALID":
        return (0,) * (2 * rank)
    begins: list[int] = []
    ends: list[int] = []
    for i, size in enumerate(spatial):
        if wanted is not None:
            target: Dim = wanted[len(wanted) - rank + i]
        else:
            target = size * strides[i]
        total = (size - 1) * strides[i] + (extra[i] + extents[i]) - target
        if not isinstance(total, int):
            raise n.unsupported(f"output_shape with the dynamic size {size}; give pads instead")
        half = total // 2
        begins.append(half if auto == "SAME_UPPER" else total - half)
        ends.append(total - begins[-1])
    return (*begins, *ends)


def import_conv_transpose(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """ConvTranspose of every opset; the bias becomes an Add."""
    x, w = n.need(0), n.need(1)
    groups = int(n.attr("group", 1))
    check_weight(n, x, w, w.shape[0] if w.shape else 0, groups)
    rank = len(x.shape) - 2
    kernel = dims.static(w.shape[2:])
    if ints_attr(n, "kernel_shape", kernel) != kernel:
        raise ShapeError(
            f"node {n.name!r} (ConvTranspose): kernel_shape {n.attr('kernel_shape')} differs from "
            f"the weight's {list(kernel)}; correct the model"
        )
    strides = ints_attr(n, "strides", (1,) * rank)
    dilations = ints_attr(n, "dilations", (1,) * rank)
    extra = ints_attr(n, "output_padding", (0,) * rank)
    if not len(strides) == len(dilations) == len(extra) == rank:
        raise ShapeError(f"node {n.name!r} (ConvTranspose): attributes do not fit {rank} axes")
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = _transpose_pads(n, x.shape[2:], extents, strides, extra)
    y = g.add1(ConvTranspose(strides, dilations, pads, extra, groups), x, w)
    return (add_bias(n, g, y, n.input(2)),)
