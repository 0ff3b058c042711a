"""Comparisons, tests for special values, and Where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.core.dtypes import BOOL
from braze.core.errors import DTypeError
from braze.expr import scalar
from braze.expr.scalar import Expr
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, Importer, InferContext, OnnxNode, Op
from braze.ops.lowering import Lowering, Pointwise
from braze.ops.writing.broadcast import broadcast_shapes
from braze.ops.writing.precision import holes, present, require_float, same_dtype
from braze.ops.writing.size_arithmetic import known_binary

COMPARE_NAMES: Final[Mapping[str, str]] = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual"}
COMPARE_NUMPY: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
}


@dataclass(frozen=True)
class Compare(Op):
    """z = x op y as bool under numpy broadcasting; op is "eq", "lt" or "le"."""

    op: str

    @property
    def name(self) -> str:
        return COMPARE_NAMES[self.op]

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        x, y = present(inputs, 2, self.name)
        dtype = same_dtype((x, y), self.name)
        if dtype is BOOL and self.op != "eq":
            raise DTypeError(f"{self.name}: bool operands have no order; insert a Cast")
        return (TensorType(BOOL, broadcast_shapes(ctx, (x.shape, y.shape), self.name)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (np.asarray(COMPARE_NUMPY[self.op](inputs[0], inputs[1])),)

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
        x, y = holes(inputs)
        if x.dtype is BOOL:
            return Pointwise(scalar.unary("not", scalar.binary("xor", x, y)))
        return Pointwise(scalar.binary(self.op, x, y))


@dataclass(frozen=True)
class IsNaN(Op):
    """True where x is NaN."""

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        require_float(x.dtype, self.name)
        return (TensorType(BOOL, x.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (np.asarray(np.isnan(inputs[0])),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = holes(inputs)
        return Pointwise(scalar.unary("isnan", x))


@dataclass(frozen=True)
class IsInf(Op):
    """True where x is an infinity of a sign that is asked for."""

    negative: bool = True
    positive: bool = True

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        require_float(x.dtype, self.name)
        return (TensorType(BOOL, x.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        return (np.asarray((np.isposinf(x) & self.positive) | (np.isneginf(x) & self.negative)),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = holes(inputs)
        return Pointwise(self._expr(x))

    def _expr(self, x: Expr) -> Expr:
        zero = scalar.const(0, x.dtype)
        infinite = scalar.unary("isinf", x)
        if self.negative and self.positive:
            return infinite
        if not self.negative and not self.positive:
            return scalar.const(False, BOOL)
        sign = (x, zero) if self.negative else (zero, x)
        return scalar.binary("and", infinite, scalar.binary("lt", *sign))


@dataclass(frozen=True)
class Where(Op):
    """x where the bool condition (input 0) holds, else y; all three broadcast."""

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        condition, x, y = present(inputs, 3, self.name)
        if condition.dtype is not BOOL:
            raise DTypeError(f"Where: the condition is {condition.dtype}, not bool; insert a Cast")
        dtype = same_dtype((x, y), self.name)
        shapes = (condition.shape, x.shape, y.shape)
        return (TensorType(dtype, broadcast_shapes(ctx, shapes, self.name)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        condition, x, y = inputs
        assert condition is not None and x is not None and y is not None
        return (np.asarray(np.where(condition, x, y)),)

    def known(
        self,
        contents: Sequence[Array | None],
        types: Sequence[TensorType | None],
        ctx: InferContext,
    ) -> tuple[Array, ...] | None:
        condition, x, y = contents
        if condition is None or x is None or y is None:
            return None
        shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
        picks, xs, ys = (np.broadcast_to(a, shape) for a in (condition, x, y))
        out = np.empty(shape, dtype=object)
        for i in np.ndindex(shape):
            out[i] = xs[i] if picks[i] else ys[i]
        return (out,)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        condition, x, y = (scalar.hole(i, t.dtype) for i, t in enumerate(inputs) if t is not None)
        return Pointwise(scalar.select(condition, x, y))


# --------------------------------------------------------------------------- importers


def compare_importer(op: str, swap: bool = False) -> Importer:
    """Importer of a comparison; Greater and GreaterOrEqual swap the operands of lt and le."""

    def import_compare(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        x, y = n.need(0), n.need(1)
        return (g.add1(Compare(op), *((y, x) if swap else (x, y))),)

    return import_compare


def import_is_nan(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """IsNaN."""
    return (g.add1(IsNaN(), n.need(0)),)


def import_is_inf(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """IsInf with detect_negative and detect_positive (both on by default)."""
    op = IsInf(bool(n.attr("detect_negative", 1)), bool(n.attr("detect_positive", 1)))
    return (g.add1(op, n.need(0)),)


def import_where(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Where."""
    return (g.add1(Where(), n.need(0), n.need(1), n.need(2)),)
