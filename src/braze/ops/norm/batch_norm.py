"""Batch normalisation with given statistics (inference)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dims import Shape
from braze.core.dtypes import DType
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext
from braze.ops.lowering import Decompose, Lowering
from braze.ops.move.shape import Reshape
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.writing.layout import LayoutOp, channel_axis
from braze.ops.writing.precision import (
    compute_type,
    narrow,
    present,
    require_float,
    widen,
)

HUGE = 1e18  # the square root of the largest float32


@dataclass(frozen=True)
class BatchNorm(LayoutOp):
    """(x - mean) / sqrt(var + epsilon) * scale + bias with one value of each a channel.

    Inputs x, scale [C], bias [C], mean [C], var [C]; layout "NCHW" ([N, C, *spatial]) or "NHWC".
    Lowers to x * a + b with a and b computed a channel (at build time when they are constant), or
    to (x - mean) * a + bias where a or b is a constant that holds an infinity, NaN or huge number.
    """

    epsilon: float
    layout: str = "NCHW"

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        x, *vectors = present(inputs, 5, self.name)
        require_float(x.dtype, self.name)
        if x.rank < 1:
            raise ShapeError("BatchNorm: x is a scalar but needs a channel axis")
        channels = x.shape[self._axis(x.rank)] if x.rank > 1 else 1
        for what, t in zip(("scale", "bias", "mean", "var"), vectors, strict=True):
            require_float(t.dtype, f"{self.name} {what}")
            if t.rank != 1:
                raise ShapeError(f"{self.name}: {what} has rank {t.rank}; it must be a vector")
            channels = ctx.unify(t.shape[0], channels, f"{self.name} {what}")
        if x.rank == 1:
            return (x,)
        # as arithmetic with the vectors has it: a size that they know is known
        shape = list(x.shape)
        shape[self._axis(x.rank)] = channels
        return (TensorType(x.dtype, tuple(shape)),)

    def _axis(self, rank: int) -> int:
        return channel_axis(self.layout, rank)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        shape = [1] * x.ndim
        if x.ndim > 1:
            shape[self._axis(x.ndim)] = -1
        scale, bias, mean, var = (widen(v).reshape(shape) for v in inputs[1:5] if v is not None)
        with np.errstate(all="ignore"):
            inverse = 1 / np.sqrt(var + var.dtype.type(self.epsilon))
            return (narrow((widen(x) - mean) * inverse * scale + bias, x),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        return Decompose(self._build)

    def _build(self, g: GraphBuilder, *inputs: Value | None) -> tuple[Value, ...]:
        x, scale, bias, mean, var = (v for v in inputs if v is not None)
        wide = compute_type(x.dtype)
        factor, shift = self._folded(g, (scale, bias, mean, var), wide)
        y, folded = cast_to(g, x, wide), [g.array(v) for v in (factor, shift)]
        if not all(a is None or (np.abs(a) < HUGE).all() for a in folded):
            # x * a, or the mean times a, would be infinite where their difference is not
            y = g.add1(Binary("sub"), y, self._spread(g, cast_to(g, mean, wide), x))
            shift = cast_to(g, bias, wide)
        y = g.add1(Binary("mul"), y, self._spread(g, factor, x))
        y = g.add1(Binary("add"), y, self._spread(g, shift, x))
        return (cast_to(g, y, x.dtype),)

    def _spread(self, g: GraphBuilder, v: Value, x: Value) -> Value:
        """A vector of channels in a shape that broadcasts to x."""
        if self.layout != "NCHW" or x.type.rank <= 2:
            return v
        return _reshaped(g, v, (v.shape[0],) + (1,) * (x.type.rank - 2))

    def _folded(
        self, g: GraphBuilder, vectors: tuple[Value, ...], wide: DType
    ) -> tuple[Value, Value]:
        """a = scale / sqrt(var + epsilon) and b = bias - mean * a."""
        arrays = [g.array(v) for v in vectors]
        if all(a is not None for a in arrays):
            scale, bias, mean, var = (a.astype(np.float64) for a in arrays if a is not None)
            with np.errstate(all="ignore"):
                a = scale / np.sqrt(var + self.epsilon)
                b = bias - mean * a
                return g.constant(a.astype(wide.numpy)), g.constant(b.astype(wide.numpy))
        scale_v, bias_v, mean_v, var_v = (cast_to(g, v, wide) for v in vectors)
        shifted = g.add1(Binary("add"), var_v, constant_like(g, self.epsilon, wide))
        factor = g.add1(Binary("div"), scale_v, g.add1(Unary("sqrt"), shifted))
        moved = g.add1(Binary("mul"), mean_v, factor)
        return factor, g.add1(Binary("sub"), bias_v, moved)


def _reshaped(g: GraphBuilder, v: Value, shape: Shape) -> Value:
    array = g.array(v)
    if array is None:
        return g.add1(Reshape(shape), v)
    return g.constant(array.reshape(array.shape + (1,) * (len(shape) - 1)))
