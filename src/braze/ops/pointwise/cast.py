"""Cast and CastLike.

Float to integer truncates toward zero; NaN, infinities and values out of range give the type's
minimum (0 for unsigned types), because ONNX leaves them open and one rule for every target is
needed. Integers to integers keep the low bits. Anything to bool tests for nonzero. Floats to
smaller floats round to nearest even and overflow to infinity. Floats of 8 bits saturate or not, as
ONNX says (braze.ops.writing.minifloat). Types below a byte are converted while the model is built,
from constants; nothing is converted to them, nor to float8_e8m0fnu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np

from braze.core.dims import DimExpr
from braze.core.dtypes import BF16, F32, F64, DType, from_name, from_onnx
from braze.core.elements import numbers, rounded, stored
from braze.core.errors import DTypeError
from braze.expr import scalar
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.lowering import Lowering, Pointwise
from braze.ops.writing.minifloat import FORMATS, decode, encode
from braze.ops.writing.precision import present
from braze.ops.writing.size_arithmetic import as_dim, exact_in
from braze.ops.writing.size_ratio import Ratio


@dataclass(frozen=True)
class Cast(Op):
    """y = x converted to `to`, which is no narrow type; same shape."""

    narrow: ClassVar[bool] = True
    to: DType

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        if self.to.is_narrow or x.dtype.bits < 8:
            raise DTypeError(f"Cast: braze does not convert {x.dtype} to {self.to} at run time")
        return (TensorType(self.to, x.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        return (cast_array(x, self.to),)

    def known(
        self,
        contents: Sequence[Array | None],
        types: Sequence[TensorType | None],
        ctx: InferContext,
    ) -> tuple[Array, ...] | None:
        x = contents[0]
        if x is None:
            return None
        out = np.empty(x.shape, dtype=object)
        for i in np.ndindex(x.shape):
            out[i] = self._known_element(x[i], ctx)
            if out[i] is None:
                return None
        return (out,)

    def _known_element(self, value: object, ctx: InferContext) -> object:
        if isinstance(value, Ratio):
            if self.to in (F32, F64):
                return value
            # toward zero is floor where the size cannot be negative
            below_zero = ctx.range_of(value.numerator)[0] < 0
            return None if below_zero or not self.to.is_int else value.floor()
        x = as_dim(value)
        if self.to.kind == "b":
            return None if x is None or isinstance(x, DimExpr) else bool(x)
        return None if x is None else exact_in(x, self.to)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        assert inputs[0] is not None
        x = scalar.hole(0, inputs[0].dtype)
        return Pointwise(scalar.cast(decode(x) if x.dtype.is_narrow else x, self.to))


@dataclass(frozen=True)
class CastToFloat8(Op):
    """y = x rounded to `to`, one of FORMATS; same shape.

    saturate: numbers out of range become the largest ones, not infinity or NaN.
    """

    narrow: ClassVar[bool] = True
    to: DType
    saturate: bool = True

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        if self.to not in FORMATS or x.dtype.bits < 8:
            raise DTypeError(f"Cast: braze does not convert {x.dtype} to {self.to} at run time")
        return (TensorType(self.to, x.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        wide = x.astype(np.float64)
        if self.to not in FORMATS:  # the evaluator's float64 mode
            return (wide,)
        if self.saturate:
            most = float(ml_dtypes.finfo(self.to.numpy).max)  # type: ignore[no-untyped-call]
            wide = np.clip(wide, -most, most)
        return (rounded(wide, self.to),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        assert inputs[0] is not None
        x = scalar.hole(0, inputs[0].dtype)
        if x.dtype.is_narrow:
            x = decode(x)
        elif x.dtype is not F64:
            x = scalar.cast(x, F32)  # what that rounds is out of range for every format
        return Pointwise(encode(x, self.to, self.saturate))


@dataclass(frozen=True)
class BitCast(Op):
    """The bits of x read as another type of the same width; types by name.

    Names, not DTypes: the evaluator's float64 mode widens DTypes, and bits have no wider form.
    """

    source: str
    to: str

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        to = from_name(self.to)
        if x.dtype.name != self.source or x.dtype.bits != to.bits:
            raise DTypeError(f"BitCast: {x.dtype} does not have the width of {to}; use Cast")
        return (TensorType(to, x.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        source, to = from_name(self.source), from_name(self.to)
        bits = np.ascontiguousarray(stored(cast_array(x, source), source)).view(to.numpy)
        return (numbers(bits.reshape(x.shape), to),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        x = scalar.hole(0, from_name(self.source))
        return Pointwise(scalar.Expr("bitcast", (x,), from_name(self.to)))


def cast_array(x: Array, to: DType) -> Array:
    """`x` converted by the rules of this module; a bfloat16 result is given as float32 values."""
    with np.errstate(all="ignore"):
        if to is BF16:
            return rounded(x, BF16)
        if to.kind == "b":
            return np.asarray(x != 0)
        if to.is_int and x.dtype.kind == "f":
            return _float_to_int(x, to)
        return x.astype(to.numpy)


def _float_to_int(x: Array, to: DType) -> Array:
    wide = np.trunc(x.astype(np.float64))
    low = -(2.0 ** (to.bits - 1)) if to.is_signed else 0.0
    high = 2.0 ** (to.bits - 1) if to.is_signed else 2.0**to.bits
    fits = (wide >= low) & (wide < high)
    substitute = low if to.is_signed else 0.0
    return np.where(fits, wide, substitute).astype(to.numpy)


def cast_from_float64(x: Array, to: DType) -> Array:
    """A float64 array as a stored one of `to`."""
    return stored(cast_array(x, to), to)


def import_cast(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Cast; `saturate` concerns 8-bit floats, `round_mode` only float8_e8m0fnu."""
    to = from_onnx(int(n.attr("to", 0)), f"node {n.name!r} (Cast)")
    return (_cast_any(n, g, n.need(0), to),)


def import_cast_like(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """CastLike: the type of input 1."""
    return (_cast_any(n, g, n.need(0), n.need(1).dtype),)


def _cast_any(n: OnnxNode, g: GraphBuilder, x: Value, to: DType) -> Value:
    """`x` as `to`, where either may be narrow."""
    if x.dtype == to:
        return x
    array = g.array(x)
    if x.dtype.is_narrow and not to.is_narrow and array is not None:
        return g.constant(stored(cast_array(numbers(array, x.dtype), to), to), x.name)
    if x.dtype.bits < 8:
        raise n.unsupported(f"{x.dtype} is converted only where it is a constant; make it one")
    if to in FORMATS:
        return g.add1(CastToFloat8(to, bool(n.attr("saturate", 1))), x)
    if to.is_narrow:
        raise n.unsupported(f"nothing is converted to {to} yet; keep the wider type")
    return g.add1(Cast(to), x)


def import_bit_cast(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """BitCast between types of one width."""
    x = n.need(0)
    to = from_onnx(int(n.attr("to", 0)), f"node {n.name!r} (BitCast)")
    if x.dtype.bits != to.bits:
        raise n.invalid(f"{x.dtype} and {to} differ in width; use Cast")
    return (x if x.dtype == to else g.add1(BitCast(x.dtype.name, to.name), x),)


def cast_to(g: GraphBuilder, x: Value, to: DType) -> Value:
    """`x` as `to`; the value itself when it has that type already."""
    return x if x.dtype == to else g.add1(Cast(to), x)
