"""Normalisation by a local or Lp norm: LRN and LpNormalization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from braze.core.dtypes import BOOL, I64
from braze.core.errors import ShapeError
from braze.expr import scalar
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store
from braze.expr.scalar import Expr
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext, Op, Perm, Permuted
from braze.ops.lowering import Lowering, Nest
from braze.ops.reduce.reduce import kept_index, reduced_shape, specs
from braze.ops.writing.broadcast import normalize_axis
from braze.ops.writing.layout import LayoutOp, channel_axis
from braze.ops.writing.precision import narrow, present, require_float, widen, widened


@dataclass(frozen=True)
class Lrn(LayoutOp):
    """x / (bias + alpha / size * sum of x^2 over `size` neighbouring channels) ** beta.

    The window of channel c runs from c - floor((size-1)/2) to c + ceil((size-1)/2).
    """

    size: int
    alpha: float
    beta: float
    bias: float
    layout: str = "NCHW"

    @property
    def name(self) -> str:
        return "LRN"

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        require_float(x.dtype, self.name)
        if x.rank < 2:
            raise ShapeError(f"LRN: x has rank {x.rank} but needs a batch and a channel axis")
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        wide = np.moveaxis(widen(x), channel_axis(self.layout, x.ndim), 1)
        channels = wide.shape[1]
        total = np.zeros_like(wide)
        before = (self.size - 1) // 2
        with np.errstate(all="ignore"):
            for k in range(self.size):
                shift = k - before
                lo, hi = max(0, -shift), min(channels, channels - shift)
                if lo < hi:
                    total[:, lo:hi] += np.square(wide[:, lo + shift : hi + shift])
            t = wide.dtype.type
            scale = (t(self.bias) + t(self.alpha / self.size) * total) ** t(self.beta)
            y = wide / scale
        return (narrow(np.moveaxis(y, 1, channel_axis(self.layout, x.ndim)), x),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = present(inputs, 1, self.name)
        at = channel_axis(self.layout, x.rank)
        here = tuple(scalar.axis(i) for i in range(x.rank))
        before = scalar.const((self.size - 1) // 2, I64)
        moved = scalar.binary("sub", scalar.binary("add", here[at], scalar.axis(x.rank)), before)
        last = scalar.binary("sub", scalar.dim(x.shape[at]), scalar.const(1, I64))
        neighbour = tuple(moved if i == at else e for i, e in enumerate(here))
        value = widened(scalar.load(0, neighbour, x.dtype))
        inside = _between(scalar.const(0, I64), moved, last)
        term = scalar.select(
            inside, scalar.binary("mul", value, value), scalar.const(0, value.dtype)
        )
        total = scalar.binary(
            "mul", scalar.const(self.alpha / self.size, value.dtype), scalar.red(0, value.dtype)
        )
        base = scalar.binary("add", scalar.const(self.bias, value.dtype), total)
        scale = scalar.binary("pow", base, scalar.const(self.beta, value.dtype))
        y = scalar.binary("div", widened(scalar.load(0, here, x.dtype)), scale)
        nest = LoopNest(
            outer=x.shape,
            inner=(self.size,),
            reduces=(Reduce("sum", term),),
            stores=(Store(0, here, scalar.cast(y, x.dtype)),),
        )
        return Nest(LoopKernel(specs(inputs), specs(outputs), (nest,)))


def _between(low: Expr, x: Expr, high: Expr) -> Expr:
    inside = scalar.binary("and", scalar.binary("le", low, x), scalar.binary("le", x, high))
    assert inside.dtype is BOOL
    return inside


@dataclass(frozen=True)
class LpNormalize(Op):
    """x / ||x||_p along `axis` (counted from the front), p 1 or 2; 0 where the norm is 0."""

    axis: int
    p: int

    @property
    def name(self) -> str:
        return "LpNormalization"

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        require_float(x.dtype, self.name)
        normalize_axis(self.axis, x.rank, self.name)
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        wide = widen(x)
        with np.errstate(all="ignore"):
            if self.p == 1:
                norm = np.sum(np.abs(wide), axis=self.axis, keepdims=True)
            else:
                norm = np.sqrt(np.sum(wide * wide, axis=self.axis, keepdims=True))
            return (narrow(np.where(norm == 0, 0, wide / norm), x),)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        return replace(self, axis=perm[self.axis]), perm

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = present(inputs, 1, self.name)
        index = kept_index(x.rank, (self.axis,))
        value = widened(scalar.load(0, index, x.dtype))
        total = scalar.red(0, value.dtype)
        if self.p == 1:
            term, norm = scalar.unary("abs", value), total
        else:
            term, norm = scalar.binary("mul", value, value), scalar.unary("sqrt", total)
        zero = scalar.const(0, value.dtype)
        y = scalar.select(scalar.binary("eq", norm, zero), zero, scalar.binary("div", value, norm))
        nest = LoopNest(
            outer=reduced_shape(x.shape, (self.axis,), False),
            inner=(x.shape[self.axis],),
            reduces=(Reduce("sum", term),),
            stores=(Store(0, index, scalar.cast(y, x.dtype), over="all"),),
        )
        return Nest(LoopKernel(specs(inputs), specs(outputs), (nest,)))
