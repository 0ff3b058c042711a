"""Conv: cross-correlation over 1 to 3 spatial axes, grouped, strided and dilated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.errors import ShapeError
from braze.expr.index import all_of, axes, iadd, idiv, imul
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import binary, cast, const, load, red, select
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode
from braze.ops.lowering import Anchor, ConvSpec, Lowering, Nest, window_block
from braze.ops.move.shape import reshape
from braze.ops.move.slice_pad import Pad
from braze.ops.pointwise.elementwise import Binary
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
from braze.ops.writing.arguments import Types, array_of, tensor_specs, type_of
from braze.ops.writing.layout import LayoutOp
from braze.ops.writing.precision import compute_type, narrow, require_float, same_dtype, widen
from braze.ops.writing.vector import check_vector


@dataclass(frozen=True)
class Conv(LayoutOp):
    """Inputs x and w [K, C/groups, *kernel]; x and the result are in `layout`. No bias: an Add.

    pads are (begin.., end..) and not negative. float16 and bfloat16 are summed in float32.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int = 1
    layout: str = "NCHW"

    def window(self, w: TensorType) -> Window:
        """The sliding window of a weight of this type."""
        kernel = dims.static(w.shape[2:])
        return Window(kernel, self.strides, self.dilations, self.pads)

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, w = type_of(inputs, 0), type_of(inputs, 1)
        dtype = same_dtype((x, w), "Conv")
        require_float(dtype, "Conv")
        if x.rank < 3 or w.rank != x.rank:
            raise ShapeError(f"Conv: data of rank {x.rank} and weights of rank {w.rank} do not fit")
        if not dims.is_static(w.shape):
            raise ShapeError(f"Conv: the weight shape {list(w.shape)} must be fixed")
        batch, channels, spatial = split_shape(x.shape, self.layout)
        ctx.unify(channels, w.shape[1] * self.groups, "Conv input channels")
        if w.shape[0] % self.groups:
            raise ShapeError(f"Conv: {w.shape[0]} filters do not divide into {self.groups} groups")
        out = self.window(w).output_sizes(spatial, ctx, "Conv")
        return (TensorType(dtype, join_shape(batch, w.shape[0], out, self.layout)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, w = array_of(inputs, 0), array_of(inputs, 1)
        window = Window(w.shape[2:], self.strides, self.dilations, self.pads)
        y = convolve(widen(channels_first(x, self.layout)), widen(w), window, self.groups)
        return (narrow(from_channels_first(y, self.layout), x),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, w = type_of(inputs, 0), type_of(inputs, 1)
        kernel = self._nest(x, w, outputs[0])
        batch, _, spatial = split_shape(x.shape, self.layout)
        if self.layout != "NHWC":
            return Nest(kernel)
        _, _, out = split_shape(outputs[0].shape, self.layout)
        window = self.window(w)
        channels = dims.number(w.shape[1]) * self.groups
        spec = ConvSpec(
            batch=batch,
            in_spatial=spatial,
            out_spatial=out,
            in_channels=channels,
            out_channels=dims.number(w.shape[0]),
            groups=self.groups,
            kernel=window.kernel,
            strides=self.strides,
            dilations=self.dilations,
            pads=self.pads,
            acc=compute_type(x.dtype),
            block=window_block(window.kernel, channels // self.groups),
        )
        return Anchor(spec, kernel)

    def _nest(self, x: TensorType, w: TensorType, out: TensorType) -> LoopKernel:
        wide = compute_type(x.dtype)
        window = self.window(w)
        index = axes(out.rank)
        batch, k, place = index[0], index[1], index[2:]
        if self.layout == "NHWC":
            k, place = index[-1], index[1:-1]
        c, *taps = axes(1 + window.rank, out.rank)
        _, _, spatial = split_shape(x.shape, self.layout)
        where, conditions = window.taps(spatial, place, taps)
        channel = c
        if self.groups > 1:
            group = idiv(k, dims.number(w.shape[0]) // self.groups)
            channel = iadd(imul(group, w.shape[1]), c)
        element = cast(load(0, join_index(batch, channel, where, self.layout), x.dtype), wide)
        inside = all_of(conditions)
        if inside is not None:
            element = select(inside, element, const(0, wide))
        product = binary("mul", element, cast(load(1, (k, c, *taps), w.dtype), wide))
        nest = LoopNest(
            out.shape,
            w.shape[1:],
            (Reduce("sum", product),),
            (Store(0, index, cast(red(0, wide), out.dtype)),),
        )
        return LoopKernel(tensor_specs((x, w)), (TensorSpec(out.dtype, out.shape),), (nest,))


def convolve(x: Array, w: Array, window: Window, groups: int) -> Array:
    """y[n, k, o] = sum_{c, t} x[n, c, o * stride + t * dilation - pad] * w[k, c, t].

    Channels first; one matrix product per kernel tap.
    """
    batch, filters, per_group = x.shape[0], w.shape[0], w.shape[1]
    out = [
        (n + dims.number(window.begin(i) + window.end(i)) - window.extent(i)) // window.strides[i]
        + 1
        for i, n in enumerate(x.shape[2:])
    ]
    padded = window.pad_for(x, out, 0)
    area = int(np.prod(out))
    y = np.zeros((batch, groups, filters // groups, area), dtype=x.dtype)
    for tap in np.ndindex(*window.kernel):
        seen = window.view(padded, out, tap).reshape(batch, groups, per_group, area)
        where = (slice(None), slice(None), *tap)
        weight = w[where].reshape(groups, filters // groups, per_group)
        y += weight[None] * seen if per_group == 1 else np.matmul(weight, seen)
    return y.reshape(batch, filters, *out)


def add_bias(n: OnnxNode, g: GraphBuilder, y: Value, bias: Value | None) -> Value:
    """y + bias per channel (NCHW); a constant bias is stored in its broadcast shape."""
    if bias is None:
        return y
    check_vector(n, g, bias, y.shape[1], "filters")
    shape = (y.shape[1], *(1,) * (len(y.shape) - 2))
    content = g.array(bias)
    if content is not None:
        bias = g.constant(content.reshape(dims.static(shape)), bias.name)
    else:
        bias = reshape(g, bias, shape)
    return g.add1(Binary("add"), y, bias)


def pad_explicitly(g: GraphBuilder, x: Value, window: Window, value: float) -> tuple[Value, Window]:
    """Move paddings that are negative or symbolic into a Pad op of their own (NCHW)."""
    if all(isinstance(p, int) and p >= 0 for p in window.pads):
        return x, window
    begins: tuple[Dim, ...] = (0, 0, *window.pads[: window.rank])
    ends: tuple[Dim, ...] = (0, 0, *window.pads[window.rank :])
    padded = g.add1(Pad("constant", begins, ends, value), x)
    none = (0,) * (2 * window.rank)
    return padded, Window(window.kernel, window.strides, window.dilations, none, window.ceil_mode)


def check_weight(n: OnnxNode, x: Value, w: Value, channels: Dim, groups: int) -> None:
    """Raise ShapeError that names the weight when its channels do not fit the data and groups."""
    if len(x.shape) < 3 or len(w.shape) != len(x.shape) or groups < 1:
        raise ShapeError(
            f"node {n.name!r} ({n.op_type}): data {x.name!r} has rank {len(x.shape)}, weight "
            f"{w.name!r} rank {len(w.shape)}, group is {groups}; ranks must be equal and 3 or more"
        )
    if not dims.is_static(w.shape):
        raise n.unsupported(f"weight {w.name!r} has a dynamic shape; fix the shape of the weight")
    have = x.shape[1]
    if isinstance(have, int) and have != channels:
        raise ShapeError(
            f"node {n.name!r} ({n.op_type}): weight {w.name!r} of shape {list(w.shape)} with "
            f"group={groups} needs {channels} input channels but {x.name!r} has {have}; "
            f"correct the weight or group"
        )
    if w.shape[0] % groups:
        raise ShapeError(
            f"node {n.name!r} ({n.op_type}): the first axis of weight {w.name!r} ({w.shape[0]}) is "
            f"not a multiple of group={groups}; correct the weight or group"
        )


def checked_kernel(n: OnnxNode, x: Value, w: Value, groups: int) -> tuple[int, ...]:
    """The spatial sizes of a weight that fits its data, and the node's own word for them."""
    check_weight(n, x, w, w.shape[1] * groups if len(w.shape) > 1 else 0, groups)
    kernel = dims.static(w.shape[2:])
    if ints_attr(n, "kernel_shape", kernel) != kernel:
        raise ShapeError(
            f"node {n.name!r} ({n.op_type}): kernel_shape {n.attr('kernel_shape')} differs from "
            f"the weight's {list(kernel)}; correct the model"
        )
    return kernel


def import_conv(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Conv of every opset; the bias becomes an Add."""
    x, w = n.need(0), n.need(1)
    groups = int(n.attr("group", 1))
    kernel = checked_kernel(n, x, w, groups)
    x, window = pad_explicitly(g, x, import_window(n, g, kernel, x.shape[2:]), 0.0)
    pads = dims.static(window.pads)
    y = g.add1(Conv(window.strides, window.dilations, pads, groups), x, w)
    return (add_bias(n, g, y, n.input(2)),)
