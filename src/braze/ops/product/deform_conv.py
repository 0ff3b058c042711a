"""DeformConv: a 2-D convolution whose taps are moved by computed offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.errors import ShapeError
from braze.expr.index import axes, iadd, idiv, imul
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, binary, cast, load, red
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.lowering import Lowering, Nest
from braze.ops.pool.window import Window, import_window
from braze.ops.product.conv import add_bias, check_weight
from braze.ops.sample.grid_sample import bilinear_or_zero, whole_numpy
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
class DeformConv(Op):
    """Inputs x [N, C, H, W], w [K, C/groups, kh, kw], offsets [N, og * kh * kw * 2, oh, ow] (y then
    x) and mask [N, og * kh * kw, oh, ow] or None. Samples are bilinear, 0 outside the image."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int
    offset_groups: int

    def _window(self, kernel: Sequence[dims.Dim]) -> Window:
        taps = dims.static(kernel)
        return Window(taps, self.strides, self.dilations, self.pads)

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, w, offsets = (type_of(inputs, i) for i in range(3))
        mask = inputs[3] if len(inputs) > 3 else None
        given = [x, w, offsets] + ([mask] if mask else [])
        require_float(same_dtype(given, "DeformConv"), "DeformConv")
        if {t.rank for t in given} != {4} or not dims.is_static(w.shape):
            raise ShapeError("DeformConv: all inputs need rank 4 and the weight a fixed shape")
        ctx.unify(x.shape[1], w.shape[1] * self.groups, "DeformConv input channels")
        out = self._window(w.shape[2:]).output_sizes(x.shape[2:], ctx, "DeformConv")
        taps = self.offset_groups * dims.product(w.shape[2:])
        want = (x.shape[0], taps * 2, *out)
        for a, b in zip(want, offsets.shape, strict=True):
            ctx.unify(a, b, "DeformConv offset")
        if mask is not None:
            for a, b in zip((x.shape[0], taps, *out), mask.shape, strict=True):
                ctx.unify(a, b, "DeformConv mask")
        return (TensorType(x.dtype, (x.shape[0], w.shape[0], *out)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, w, offsets = (widen(array_of(inputs, i)) for i in range(3))
        batch, channels = x.shape[:2]
        kh, kw = w.shape[2:]
        oh, ow = offsets.shape[2:]
        og, per_offset = self.offset_groups, channels // self.offset_groups
        offsets = offsets.reshape(batch, og, kh, kw, 2, oh, ow)
        given = inputs[3] if len(inputs) > 3 else None
        mask = np.ones((batch, og, kh, kw, oh, ow), x.dtype)
        if given is not None:
            mask = widen(given).reshape(mask.shape)
        filters, group = w.shape[0], channels // self.groups
        y = np.zeros((batch, filters, oh, ow), x.dtype)
        for i, j in np.ndindex(kh, kw):
            rows = np.arange(oh)[:, None] * self.strides[0] + i * self.dilations[0] - self.pads[0]
            columns = np.arange(ow) * self.strides[1] + j * self.dilations[1] - self.pads[1]
            seen = np.empty((batch, channels, oh, ow), x.dtype)
            for b, o in np.ndindex(batch, og):
                part = slice(o * per_offset, (o + 1) * per_offset)
                at = offsets[b, o, i, j]
                seen[b, part] = _bilinear(x[b, part], rows + at[0], columns + at[1])
                seen[b, part] *= mask[b, o, i, j]
            for q in range(self.groups):
                inside = slice(q * group, (q + 1) * group)
                made = slice(q * filters // self.groups, (q + 1) * filters // self.groups)
                y[:, made] += np.einsum("kc,ncyx->nkyx", w[made, :, i, j], seen[:, inside])
        return (narrow(y, array_of(inputs, 0)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, w, offsets = (type_of(inputs, i) for i in range(3))
        mask = inputs[3] if len(inputs) > 3 else None
        out, wide = outputs[0], compute_type(x.dtype)
        window = self._window(w.shape[2:])
        batch, k, *place = axes(4)
        c, *taps = axes(3, 4)
        per_group = dims.number(w.shape[0]) // self.groups
        channel = iadd(imul(idiv(k, per_group), w.shape[1]), c) if self.groups > 1 else c
        per_offset = dims.number(w.shape[1]) * self.groups // self.offset_groups
        tap = idiv(channel, per_offset)
        for t, size in zip(taps, window.kernel, strict=True):
            tap = iadd(imul(tap, size), t)
        points: list[Expr] = []
        for i in range(2):
            moved = load(2, (batch, iadd(imul(tap, 2), i), *place), offsets.dtype)
            base = cast(window.position(i, place[i], taps[i]), wide)
            points.append(binary("add", base, widened(moved)))
        sizes = (x.shape[2], x.shape[3])
        value = bilinear_or_zero(x, (batch, channel), points[0], points[1], sizes)
        if mask is not None:
            value = binary("mul", value, widened(load(3, (batch, tap, *place), mask.dtype)))
        term = binary("mul", value, widened(load(1, (k, c, *taps), w.dtype)))
        nest = LoopNest(
            out.shape,
            w.shape[1:],
            (Reduce("sum", term),),
            (Store(0, axes(4), cast(red(0, wide), out.dtype)),),
        )
        spec = TensorSpec(out.dtype, out.shape)
        return Nest(LoopKernel(tensor_specs(inputs), (spec,), (nest,)))


def _bilinear(image: Array, rows: Array, columns: Array) -> Array:
    """Samples of image [C, H, W] at positions [oh, ow]; pixels outside are 0."""
    height, width = image.shape[1:]
    top, left = np.floor(rows), np.floor(columns)
    out = np.zeros((image.shape[0], *np.broadcast_shapes(rows.shape, columns.shape)), image.dtype)
    for dy, dx in np.ndindex(2, 2):
        y, x = top + dy, left + dx
        weight = (1 - np.abs(rows - y)) * (1 - np.abs(columns - x))
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        pixel = image[:, whole_numpy(y, height), whole_numpy(x, width)]
        # outside is 0, and no pixel or weight times 0, which is NaN where they are infinite or NaN
        out += np.where(inside, pixel * weight.astype(image.dtype), 0)
    return out


def import_deform_conv(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """DeformConv (opset 19 on) of images; the bias becomes an Add."""
    x, w = n.need(0), n.need(1)
    groups, offset_groups = int(n.attr("group", 1)), int(n.attr("offset_group", 1))
    check_weight(n, x, w, w.shape[1] * groups if len(w.shape) > 1 else 0, groups)
    if len(x.shape) != 4:
        raise n.unsupported(f"data of rank {len(x.shape)}; only images (rank 4) are supported")
    kernel = dims.static(w.shape[2:])
    window = import_window(n, g, kernel, x.shape[2:])
    channels = w.shape[1] * groups
    if not isinstance(channels, int) or offset_groups < 1 or channels % offset_groups:
        raise ShapeError(
            f"node {n.name!r} (DeformConv): {channels} channels do not divide into "
            f"{offset_groups} offset groups; correct offset_group"
        )
    pads = dims.static(window.pads)
    op = DeformConv(window.strides, window.dilations, pads, groups, offset_groups)
    y = g.add1(op, x, w, n.need(2), n.input(4))
    return (add_bias(n, g, y, n.input(3)),)
