"""Elementwise arithmetic: one class for one-operand ops, one for two-operand ops.

`op` is the name of the scalar operation (braze.expr.scalar), plus "reciprocal" for Unary.
Integers wrap, integer division by zero gives 0, NaN follows numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from braze.core.dtypes import F64, I64, DType
from braze.core.errors import DTypeError
from braze.expr import scalar
from braze.expr.scalar import Expr
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, Importer, InferContext, OnnxNode, Op
from braze.ops.lowering import Lowering
from braze.ops.pointwise.cast import cast_from_float64, cast_to
from braze.ops.pointwise.elementwise_numpy import BINARY_NUMPY, UNARY_NUMPY
from braze.ops.writing.broadcast import broadcast_shapes
from braze.ops.writing.precision import compute_type, narrow, pointwise, present, same_dtype, widen
from braze.ops.writing.size_arithmetic import known_binary, known_unary

UNARY_NAMES: Final[Mapping[str, str]] = {
    "neg": "Neg", "abs": "Abs", "sign": "Sign", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "trunc": "Trunc", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos",
    "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf",
    "reciprocal": "Reciprocal", "not": "Not",
}  # fmt: skip
BINARY_NAMES: Final[Mapping[str, str]] = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "floordiv": "FloorDiv", "mod": "Mod",
    "fmod": "Fmod", "pow": "Pow", "min": "Min", "max": "Max", "and": "And", "or": "Or",
    "xor": "Xor", "shl": "ShiftLeft", "shr": "ShiftRight",
}  # fmt: skip
ANY_NUMBER: Final = frozenset({"neg", "abs", "sign"})
BITWISE: Final = frozenset({"and", "or", "xor"})
SHIFTS: Final = frozenset({"shl", "shr"})


@dataclass(frozen=True)
class Unary(Op):
    """y = op(x): same shape and type."""

    op: str

    @property
    def name(self) -> str:
        return UNARY_NAMES[self.op]

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        allowed = (
            x.dtype.kind != "f" if self.op == "not"
            else x.dtype.kind != "b" if self.op in ANY_NUMBER
            else x.dtype.is_float
        )  # fmt: skip
        if not allowed:
            raise DTypeError(f"{self.name}: element type {x.dtype} does not fit; insert a Cast")
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        with np.errstate(all="ignore"):
            return (narrow(UNARY_NUMPY[self.op](widen(x)), x),)

    def known(
        self,
        contents: Sequence[Array | None],
        types: Sequence[TensorType | None],
        ctx: InferContext,
    ) -> tuple[Array, ...] | None:
        assert types[0] is not None
        y = known_unary(self.op, contents[0], types[0].dtype, ctx.range_of)
        return None if y is None else (y,)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        return pointwise(inputs, outputs[0].dtype, self._expr)

    def _expr(self, x: Expr) -> Expr:
        if self.op == "reciprocal":
            return scalar.binary("div", scalar.const(1, x.dtype), x)
        return scalar.unary(self.op, x)


@dataclass(frozen=True)
class Binary(Op):
    """z = op(x, y) under numpy broadcasting, on equal types."""

    op: str

    @property
    def name(self) -> str:
        return BINARY_NAMES[self.op]

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        x, y = present(inputs, 2, self.name)
        dtype = same_dtype((x, y), self.name)
        allowed = (
            dtype.kind != "f" if self.op in BITWISE
            else dtype.is_int if self.op in SHIFTS
            else dtype.kind != "b"
        )  # fmt: skip
        if not allowed:
            raise DTypeError(f"{self.name}: element type {dtype} does not fit; insert a Cast")
        return (TensorType(dtype, broadcast_shapes(ctx, (x.shape, y.shape), self.name)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, y = inputs[0], inputs[1]
        assert x is not None and y is not None
        with np.errstate(all="ignore"):
            return (narrow(BINARY_NUMPY[self.op](widen(x), widen(y)), x),)

    def known(
        self,
        contents: Sequence[Array | None],
        types: Sequence[TensorType | None],
        ctx: InferContext,
    ) -> tuple[Array, ...] | None:
        assert types[0] is not None
        z = known_binary(self.op, contents[0], contents[1], types[0].dtype, ctx.range_of)
        return None if z is None else (z,)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        return pointwise(inputs, outputs[0].dtype, self._expr)

    def _expr(self, x: Expr, y: Expr) -> Expr:
        return scalar.binary(self.op, x, y)


# --------------------------------------------------------------------------- importers


def unary_importer(op: str) -> Importer:
    """Importer of a one-input op that is `Unary(op)` in every opset."""

    def import_unary(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        return (g.add1(Unary(op), n.need(0)),)

    return import_unary


def binary_importer(op: str) -> Importer:
    """Importer of a two-input op that is `Binary(op)` from opset 7 on (numpy broadcasting)."""

    def import_binary(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        return (g.add1(Binary(op), n.need(0), n.need(1)),)

    return import_binary


def extreme_importer(op: str) -> Importer:
    """Importer of Max and Min: a chain of two-operand ops, left to right."""

    def import_extreme(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        total = n.need(0)
        for i in range(1, len(n.inputs)):
            total = g.add1(Binary(op), total, n.need(i))
        return (total,)

    return import_extreme


def _sum_of_inputs(n: OnnxNode, g: GraphBuilder) -> Value:
    """All inputs added left to right, in the compute type."""
    wide = compute_type(n.need(0).dtype) if len(n.inputs) > 1 else n.need(0).dtype
    total = cast_to(g, n.need(0), wide)
    for i in range(1, len(n.inputs)):
        total = g.add1(Binary("add"), total, cast_to(g, n.need(i), wide))
    return total


def import_sum(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Sum of all inputs, broadcast together; half types are rounded once."""
    return (cast_to(g, _sum_of_inputs(n, g), n.need(0).dtype),)


def import_mean(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Mean of all inputs, broadcast together; half types are rounded once."""
    total = _sum_of_inputs(n, g)
    if len(n.inputs) > 1:
        total = g.add1(Binary("div"), total, constant_like(g, len(n.inputs), total.dtype))
    return (cast_to(g, total, n.need(0).dtype),)


def constant_like(g: GraphBuilder, value: float, dtype: DType) -> Value:
    """A scalar constant of any element type."""
    return g.constant(cast_from_float64(np.asarray(value, np.float64), dtype))


def import_mod(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Mod: fmod=0 takes the divisor's sign (floats only since opset 28), fmod=1 the dividend's."""
    fmod = n.attr("fmod", 0)
    if not fmod and n.need(0).dtype.is_float and n.opset < 28:
        raise n.unsupported("fmod=0 on floats is defined only from opset 28 on; set fmod=1")
    return (g.add1(Binary("fmod" if fmod else "mod"), n.need(0), n.need(1)),)


def import_pow(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Pow: the result has the base's type; mixed types (opset 12) are computed in a common one."""
    x, y = n.need(0), n.need(1)
    if x.dtype == y.dtype:
        return (g.add1(Binary("pow"), x, y),)
    if not x.dtype.is_float:
        common = F64 if y.dtype.is_float else I64
    elif F64 in (x.dtype, y.dtype) or not _is_exact_in_float32(y, g):
        common = F64
    else:
        common = compute_type(x.dtype)
    z = g.add1(Binary("pow"), cast_to(g, x, common), cast_to(g, y, common))
    return (cast_to(g, z, x.dtype),)


def _is_exact_in_float32(exponent: Value, g: GraphBuilder) -> bool:
    """False for integers that may be beyond 2**24, where float32 loses even and odd."""
    if not exponent.dtype.is_int or exponent.dtype.bits < 32:
        return True
    array = g.array(exponent)
    return array is not None and bool((np.abs(array.astype(np.float64)) <= 2**24).all())


def import_bit_shift(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """BitShift LEFT or RIGHT; amounts outside the word shift every bit out."""
    direction = n.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise n.invalid(f"direction {direction!r} is not LEFT or RIGHT")
    op = "shl" if direction == "LEFT" else "shr"
    return (g.add1(Binary(op), n.need(0), n.need(1)),)
