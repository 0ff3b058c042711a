"""Quantize and Dequantize: between real numbers and integers on a grid scale * (q - zero_point).

Both are elementwise under numpy broadcasting: importers bring scales and zero points of one axis,
or of blocks of it, into the shape of the data (`RepeatBlocks`). Integers below a byte are held in
int8 and uint8; only their range is smaller. To 8-bit floats and from them it is a division and a
conversion, or a conversion and a product (linear_import.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import BF16, F16, F32, F64, I32, I64, DType
from braze.core.elements import rounded
from braze.core.errors import DTypeError, ShapeError
from braze.expr.index import axes, idiv
from braze.expr.scalar import Expr, binary, cast, const, hole, select, unary
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext, Op, Perm, Permuted
from braze.ops.lowering import Lowering, Pointwise, View
from braze.ops.pointwise.cast import cast_array
from braze.ops.writing.arguments import Types, array_of, type_of
from braze.ops.writing.broadcast import broadcast_to
from braze.ops.writing.precision import require_float


def integer_range(to: DType, bits: int) -> tuple[int, int]:
    """The least and the largest integer of `bits` bits, signed as `to` is."""
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to.is_signed else (0, (1 << bits) - 1)


def saturated(q: Expr, to: DType, bits: int) -> Expr:
    """`q`, a float of whole numbers, as the nearest integer in range; NaN becomes the least."""
    low, high = (const(v, q.dtype) for v in integer_range(to, bits))
    q = select(binary("lt", low, q), q, low)
    return cast(select(binary("lt", q, high), q, high), to)


def saturate_array(q: Array, to: DType, bits: int) -> Array:
    """`saturated` for arrays."""
    low, high = integer_range(to, bits)
    inside = np.where(q > low, np.where(q < high, q, high), low)
    return np.asarray(inside.astype(to.numpy))


@dataclass(frozen=True)
class Quantize(Op):
    """q = saturate(round(x / scale) + zero_point), ties to even; the zero point may be absent.

    to, bits: the integer type and how many of its bits are used; division: the type of the
    quotient, which is rounded to it before it is rounded to an integer.
    """

    to: DType
    bits: int
    division: DType

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, scale = type_of(inputs, 0), type_of(inputs, 1)
        require_float(scale.dtype, "QuantizeLinear scale")
        _check_operands(inputs, self.to, ctx, "QuantizeLinear")
        return (TensorType(self.to, x.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        division = self.division
        x, scale = (_as(division, array_of(inputs, i)) for i in (0, 1))
        with np.errstate(all="ignore"):
            q = np.rint(_as(division, x / scale))
            if inputs[2] is not None:
                q = q + inputs[2].astype(q.dtype)
        return (saturate_array(q, self.to, self.bits),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, scale = (cast(hole(i, type_of(inputs, i).dtype), self.division) for i in (0, 1))
        wide = F64 if self.division is F64 else F32
        q = unary("round", cast(binary("div", x, scale), wide))
        if len(inputs) > 2 and inputs[2] is not None:
            q = binary("add", q, cast(hole(2, inputs[2].dtype), wide))
        return Pointwise(saturated(q, self.to, self.bits))


def _as(division: DType, x: Array) -> Array:
    """`x` rounded to `division`, in a type that numpy divides in."""
    if division in (F16, BF16):
        return rounded(x, division).astype(np.float32)
    return x.astype(division.numpy, copy=False)


@dataclass(frozen=True)
class Dequantize(Op):
    """y = (q - zero_point) * scale, the difference exact, the product in float32, as `to`.

    Constants stay quantized until passes have seen which products read them.
    """

    folds: ClassVar[bool] = False

    to: DType

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        q, scale = type_of(inputs, 0), type_of(inputs, 1)
        if not q.dtype.is_int or q.dtype.bits > 32:
            raise DTypeError(f"DequantizeLinear: element type {q.dtype} is no quantized type")
        require_float(scale.dtype, "DequantizeLinear scale")
        _check_operands(inputs, q.dtype, ctx, "DequantizeLinear")
        return (TensorType(self.to, q.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        q, scale = array_of(inputs, 0).astype(np.int64), array_of(inputs, 1)
        if inputs[2] is not None:
            q = q - inputs[2].astype(np.int64)
        wide = np.float64 if self.to is F64 else np.float32
        with np.errstate(all="ignore"):
            return (cast_array(q.astype(wide) * scale.astype(wide), self.to),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        q, scale = hole(0, type_of(inputs, 0).dtype), hole(1, type_of(inputs, 1).dtype)
        if len(inputs) > 2 and inputs[2] is not None:
            wide = I64 if q.dtype.bits > 16 else I32
            q = binary("sub", cast(q, wide), cast(hole(2, inputs[2].dtype), wide))
        return Pointwise(cast(binary("mul", cast(q, F32), cast(scale, F32)), self.to))


def _check_operands(inputs: Types, dtype: DType, ctx: InferContext, where: str) -> None:
    """The zero point has the quantized type; both parameters broadcast to the data."""
    x = type_of(inputs, 0)
    for t, what in zip(inputs[1:], ("scale", "zero point"), strict=False):
        if t is not None:
            broadcast_to(ctx, t.shape, x.shape, f"{where} {what}")
    zero = inputs[2] if len(inputs) > 2 else None
    if zero is not None and zero.dtype is not dtype:
        raise DTypeError(f"{where}: the zero point is {zero.dtype} but the data is {dtype}")


@dataclass(frozen=True)
class RepeatBlocks(Op):
    """out[.., i, ..] = x[.., i // block, ..] on `axis`, which has `size` elements in the result."""

    axis: int
    block: int
    size: Dim

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        if self.block < 1:
            raise ShapeError(f"blocks of {self.block} elements: use a block_size of at least 1")
        blocks = dims.ceildiv(self.size, self.block)
        ctx.unify(x.shape[self.axis], blocks, f"blocks of {self.block} on axis {self.axis}")
        shape = (*x.shape[: self.axis], self.size, *x.shape[self.axis + 1 :])
        return (TensorType(x.dtype, shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        where = np.arange(dims.number(self.size)) // self.block
        return (np.take(array_of(inputs, 0), where, self.axis),)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        return RepeatBlocks(perm[self.axis], self.block, self.size), perm

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        index = list(axes(outputs[0].rank))
        index[self.axis] = idiv(index[self.axis], self.block)
        return View(tuple(index))
