"""Cast and CastLike.

Float to integer truncates toward zero; NaN, infinities and values out of range give the type's
minimum (0 for unsigned types), because ONNX leaves them open and one rule for every target is
needed. Integers to integers keep the low bits. Anything to bool tests for nonzero. Floats to
smaller floats round to nearest even and overflow to infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
from braze.ops.writing.precision import present
from braze.ops.writing.size_arithmetic import as_dim, exact_in
from braze.ops.writing.size_ratio import Ratio


@dataclass(frozen=True)
class Cast(Op):
    """y = x converted to `to`; same shape."""

    to: DType

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
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
        return Pointwise(scalar.cast(scalar.hole(0, inputs[0].dtype), self.to))


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
    """Cast; `saturate` and `round_mode` concern 8-bit floats only."""
    to = from_onnx(int(n.attr("to", 0)), f"node {n.name!r} (Cast)")
    return (cast_to(g, n.need(0), to),)


def import_cast_like(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """CastLike: the type of input 1."""
    return (cast_to(g, n.need(0), n.need(1).dtype),)


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
