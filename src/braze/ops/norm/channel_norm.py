"""Group and instance normalisation: statistics per sample and group of channels.

layout "NCHW" means [N, C, *spatial], "NHWC" [N, *spatial, C], for any number of spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dims import Dim, exact_div, floordiv, mod
from braze.core.errors import ShapeError
from braze.expr import scalar
from braze.expr.index import iadd, imul
from braze.expr.loops import LoopKernel, LoopNest, Store
from braze.expr.scalar import Expr
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext
from braze.ops.lowering import Lowering, Nest
from braze.ops.norm.normalization import inverse_root, mean_and_variance, normalized
from braze.ops.reduce.reduce import specs
from braze.ops.writing.layout import LayoutOp, channel_axis
from braze.ops.writing.precision import narrow, present, require_float, same_dtype, widen, widened


@dataclass(frozen=True)
class GroupNorm(LayoutOp):
    """(x - mean) / sqrt(var + epsilon) * scale + bias per sample and group of channels.

    Inputs x, scale, bias; scale and bias have one element a channel, or one a group when
    `per_group` (opset 18).
    """

    num_groups: int
    epsilon: float
    per_group: bool = False
    layout: str = "NCHW"

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        return (_infer(self.name, inputs, self.num_groups, self.per_group, self.layout, ctx),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (_reference(inputs, self.num_groups, self.epsilon, self.per_group, self.layout),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        kernel = _kernel(
            inputs, outputs, self.num_groups, self.epsilon, self.per_group, self.layout
        )
        return Nest(kernel)


@dataclass(frozen=True)
class InstanceNorm(LayoutOp):
    """GroupNorm with one channel a group. Inputs x, scale [C], bias [C]."""

    epsilon: float
    layout: str = "NCHW"

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        groups = x.shape[channel_axis(self.layout, x.rank)] if x.rank > 1 else 1
        return (_infer(self.name, inputs, groups, False, self.layout, ctx),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        groups = x.shape[channel_axis(self.layout, x.ndim)]
        return (_reference(inputs, groups, self.epsilon, False, self.layout),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = present(inputs, 1, self.name)
        groups = x.shape[channel_axis(self.layout, x.rank)]
        return Nest(_kernel(inputs, outputs, groups, self.epsilon, False, self.layout))


def _infer(
    name: str,
    inputs: Sequence[TensorType | None],
    groups: Dim,
    per_group: bool,
    layout: str,
    ctx: InferContext,
) -> TensorType:
    x, scale, bias = present(inputs, 3, name)
    require_float(same_dtype((x, scale, bias), name), name)
    if x.rank < 2:
        raise ShapeError(f"{name}: x has rank {x.rank} but needs a batch and a channel axis")
    channels = x.shape[channel_axis(layout, x.rank)]
    for what, t in (("scale", scale), ("bias", bias)):
        if t.rank != 1:
            raise ShapeError(f"{name}: {what} has rank {t.rank}; it must be a vector")
        size = ctx.unify(t.shape[0], groups if per_group else channels, f"{name} {what}")
        channels = channels if per_group else size
    if groups != x.shape[channel_axis(layout, x.rank)]:  # else a channel is a group
        _check_groups(name, channels, groups, ctx)
    return x


def _check_groups(name: str, channels: Dim, groups: Dim, ctx: InferContext) -> None:
    """Channels must divide into groups; of how many only the run knows, it checks that."""
    if exact_div(channels, groups) is not None or channels == 0:
        return
    if isinstance(channels, int):
        raise ShapeError(
            f"{name}: {channels} channels do not divide into {groups} groups; correct num_groups"
        )
    ctx.unify(mod(channels, groups), 0, f"{name}: channels that {groups} groups leave over")


def _reference(
    inputs: Sequence[Array | None], groups: int, epsilon: float, per_group: bool, layout: str
) -> Array:
    x, scale, bias = inputs[:3]
    assert x is not None and scale is not None and bias is not None
    wide = np.moveaxis(widen(x), channel_axis(layout, x.ndim), 1)
    channels = wide.shape[1]
    grouped = wide.reshape(wide.shape[0], groups, channels // max(groups, 1), *wide.shape[2:])
    with np.errstate(all="ignore"):
        y, _, _ = normalized(grouped, tuple(range(2, grouped.ndim)), epsilon)
        vector = (1, groups, 1 if per_group else -1) + (1,) * (x.ndim - 2)
        if channels:
            y = y * widen(scale).reshape(vector) + widen(bias).reshape(vector)
    y = np.moveaxis(y.reshape(wide.shape), 1, channel_axis(layout, x.ndim))
    return narrow(y, x)


def _kernel(
    inputs: Sequence[TensorType | None],
    outputs: Sequence[TensorType],
    groups: Dim,
    epsilon: float,
    per_group: bool,
    layout: str,
) -> LoopKernel:
    x, scale, bias = present(inputs, 3, "GroupNorm")
    at = channel_axis(layout, x.rank)
    spatial = [a for a in range(1, x.rank) if a != at]
    size = floordiv(x.shape[at], groups) if x.shape[at] != 0 else 0
    inner = tuple(x.shape[a] for a in spatial)
    channel: Expr = scalar.axis(1)
    first = 2
    if size != 1:  # axes: sample, group | channel in group, spatial
        inner = (size, *inner)
        channel = iadd(imul(scalar.axis(1), size), scalar.axis(2))
        first = 3
    index = [scalar.axis(0)] * x.rank
    index[at] = channel
    for i, a in enumerate(spatial):
        index[a] = scalar.axis(first + i)
    element = widened(scalar.load(0, tuple(index), x.dtype))
    reduces, mean, variance = mean_and_variance(element, inner)
    y = scalar.binary("mul", scalar.binary("sub", element, mean), inverse_root(variance, epsilon))
    pick = (scalar.axis(1) if per_group else channel,)
    y = scalar.binary("mul", y, widened(scalar.load(1, pick, scale.dtype)))
    y = scalar.binary("add", y, widened(scalar.load(2, pick, bias.dtype)))
    store = Store(0, tuple(index), scalar.cast(y, x.dtype), over="all")
    nest = LoopNest((x.shape[0], groups), inner, reduces, (store,))
    return LoopKernel(specs(inputs), specs(outputs), (nest,))
