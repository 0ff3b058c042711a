"""Layer and RMS normalisation: statistics over the trailing axes.

Statistics are taken in float32 (float64 for float64) with the variance in a second pass around
the mean, so that large offsets do not cancel. Scale and shift are applied before the one
rounding to the output type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dims import Dim
from braze.core.dtypes import F32, I64, DType
from braze.expr import scalar
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store
from braze.expr.scalar import Expr
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext, Op, Perm, Permuted
from braze.ops.lowering import Lowering, Nest
from braze.ops.reduce.reduce import count_expr, kept_index, reduced_shape, specs
from braze.ops.writing.broadcast import broadcast_to, normalize_axis
from braze.ops.writing.precision import narrow, present, require_float, widen, widened


def mean_and_variance(x: Expr, sizes: Sequence[Dim]) -> tuple[tuple[Reduce, ...], Expr, Expr]:
    """Two reductions of `x` over `sizes` elements, and the mean and variance they give."""
    count = count_expr(sizes, x.dtype)
    mean = scalar.binary("div", scalar.red(0, x.dtype), count)
    deviation = scalar.binary("sub", x, mean)
    squares = Reduce("sum", scalar.binary("mul", deviation, deviation))
    variance = scalar.binary("div", scalar.red(1, x.dtype), count)
    return (Reduce("sum", x), squares), mean, variance


def inverse_root(variance: Expr, epsilon: float) -> Expr:
    """1 / sqrt(variance + epsilon)."""
    shifted = scalar.binary("add", variance, scalar.const(epsilon, variance.dtype))
    return scalar.binary("div", scalar.const(1, variance.dtype), scalar.unary("sqrt", shifted))


def broadcast_load(slot: int, t: TensorType, index: Sequence[Expr]) -> Expr:
    """Load of an operand that broadcasts one way to a tensor indexed by `index`, widened."""
    tail = index[len(index) - t.rank :] if t.rank else ()
    picks = tuple(scalar.const(0, I64) if d == 1 else i for d, i in zip(t.shape, tail, strict=True))
    return widened(scalar.load(slot, picks, t.dtype))


def normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """(x - mean) / sqrt(var + eps), the mean and the inverse deviation (axes kept as 1)."""
    mean = np.mean(x, axis=axes, keepdims=True, dtype=x.dtype)
    deviation = x - mean
    variance = np.mean(deviation * deviation, axis=axes, keepdims=True, dtype=x.dtype)
    inverse = 1 / np.sqrt(variance + x.dtype.type(epsilon))
    return deviation * inverse, mean, np.asarray(inverse, x.dtype)


@dataclass(frozen=True)
class LayerNorm(Op):
    """(x - mean) / sqrt(var + epsilon) * scale + bias over the axes from `axis` on.

    Inputs x, scale (or None), bias (or None); scale and bias broadcast one way to x. With
    `statistics` the outputs are y, mean and inverse deviation, the latter two of type `stash` and
    with size 1 along the reduced axes; else only y.
    """

    axis: int
    epsilon: float
    statistics: bool = False
    stash: DType = F32

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        require_float(x.dtype, self.name)
        normalize_axis(self.axis, x.rank, self.name)
        for t in inputs[1:]:
            if t is not None:
                require_float(t.dtype, self.name)
                broadcast_to(ctx, t.shape, x.shape, self.name)
        if not self.statistics:
            return (x,)
        shape = reduced_shape(x.shape, range(self.axis, x.rank), True)
        return (x, TensorType(self.stash, shape), TensorType(self.stash, shape))

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        axes = tuple(range(self.axis, x.ndim))
        with np.errstate(all="ignore"):
            y, mean, inverse = normalized(widen(x), axes, self.epsilon)
            out = narrow(_scale_shift(y, inputs), x)
        if not self.statistics:
            return (out,)
        stored = np.float32 if self.stash.bits < 64 else np.float64
        return out, mean.astype(stored), inverse.astype(stored)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        """Only where the axes it runs over stay where they are."""
        first = self.axis % len(perm)
        fixed = all(perm[i] == i for i in range(first, len(perm)))
        return (self, perm) if fixed and outputs == 1 else None

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = present(inputs, 1, self.name)
        axes = tuple(range(self.axis, x.rank))
        index = kept_index(x.rank, axes)
        element = widened(scalar.load(0, index, x.dtype))
        reduces, mean, variance = mean_and_variance(element, x.shape[self.axis :])
        inverse = inverse_root(variance, self.epsilon)
        y = scalar.binary("mul", scalar.binary("sub", element, mean), inverse)
        y = _scale_shift_expr(y, inputs, index)
        stores = [Store(0, index, scalar.cast(y, x.dtype), over="all")]
        if self.statistics:
            at = tuple(scalar.axis(i) for i in range(self.axis))
            at += (scalar.const(0, I64),) * len(axes)
            stores.append(Store(1, at, scalar.cast(mean, self.stash)))
            stores.append(Store(2, at, scalar.cast(inverse, self.stash)))
        nest = LoopNest(x.shape[: self.axis], x.shape[self.axis :], reduces, tuple(stores))
        return Nest(LoopKernel(specs(inputs), specs(outputs), (nest,)))


def _scale_shift(y: Array, inputs: Sequence[Array | None]) -> Array:
    """y * scale + bias with operands 1 and 2, where present."""
    scale, bias = (inputs[i] if i < len(inputs) else None for i in (1, 2))
    if scale is not None:
        y = y * widen(scale)
    return y if bias is None else y + widen(bias)


def _scale_shift_expr(y: Expr, inputs: Sequence[TensorType | None], index: Sequence[Expr]) -> Expr:
    slot = 1
    for position, op in ((1, "mul"), (2, "add")):
        t = inputs[position] if position < len(inputs) else None
        if t is not None:
            y = scalar.binary(op, y, scalar.cast(broadcast_load(slot, t, index), y.dtype))
            slot += 1
    return y


@dataclass(frozen=True)
class RmsNorm(Op):
    """x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on.

    Inputs x, scale (or None); scale broadcasts one way to x and may have another float type.
    """

    axis: int
    epsilon: float

    @property
    def name(self) -> str:
        return "RMSNorm"

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        require_float(x.dtype, self.name)
        normalize_axis(self.axis, x.rank, self.name)
        for t in inputs[1:]:
            if t is not None:
                require_float(t.dtype, self.name)
                broadcast_to(ctx, t.shape, x.shape, self.name)
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        wide = widen(x)
        axes = tuple(range(self.axis, x.ndim))
        with np.errstate(all="ignore"):
            mean = np.mean(wide * wide, axis=axes, keepdims=True, dtype=wide.dtype)
            y = wide * (1 / np.sqrt(mean + wide.dtype.type(self.epsilon)))
            return (narrow(_scale_shift(y, inputs), x),)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        """Only where the axes it runs over stay where they are."""
        first = self.axis % len(perm)
        fixed = all(perm[i] == i for i in range(first, len(perm)))
        return (self, perm) if fixed and outputs == 1 else None

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = present(inputs, 1, self.name)
        index = kept_index(x.rank, range(self.axis, x.rank))
        element = widened(scalar.load(0, index, x.dtype))
        reduced = x.shape[self.axis :]
        squares = Reduce("sum", scalar.binary("mul", element, element))
        mean = scalar.binary(
            "div", scalar.red(0, element.dtype), count_expr(reduced, element.dtype)
        )
        y = scalar.binary("mul", element, inverse_root(mean, self.epsilon))
        y = _scale_shift_expr(y, inputs, index)
        store = Store(0, index, scalar.cast(y, x.dtype), over="all")
        nest = LoopNest(x.shape[: self.axis], reduced, (squares,), (store,))
        return Nest(LoopKernel(specs(inputs), specs(outputs), (nest,)))
