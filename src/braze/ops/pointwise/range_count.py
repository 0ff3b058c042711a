"""How many elements a Range has whose limits the run computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import F64, I64, U64, DType
from braze.expr.scalar import Expr, binary, cast, const, hole, select, unary
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, Op
from braze.ops.lowering import Lowering, Pointwise
from braze.ops.writing.arguments import Types, array_of, type_of
from braze.ops.writing.run_contents import is_zero

MOST: Final = (1 << 63) - 1  # a count that int64 does not hold becomes this one
MOST_FLOAT: Final = math.nextafter(2.0**63, 0)  # the same among the numbers of float64
NO_STEP: Final = -1  # the count where delta is 0; less by one for each number that is not finite


@dataclass(frozen=True)
class RangeCount(Op):
    """Of start, limit and delta (one element each) max(0, ceil((limit - start) / delta)), int64.

    Integers are counted in integers, of all of which differences fit in 64 bits without sign;
    floats in float64. Where there is no count it is negative: see NO_STEP.
    """

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(I64, type_of(inputs, 0).shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        given = [array_of(inputs, i) for i in range(3)]
        count = _whole if given[0].dtype.kind in "iu" else _rounded
        numbers = [a.reshape(-1)[0].item() for a in given]
        return (np.full(given[0].shape, count(*numbers), np.int64),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        dtype = type_of(inputs, 0).dtype
        start, limit, delta = (hole(i, dtype) for i in range(3))
        if dtype.is_int:
            return Pointwise(_integer_count(start, limit, delta, dtype))
        return Pointwise(_float_count(*(cast(x, F64) for x in (start, limit, delta))))


def _whole(start: int, limit: int, delta: int) -> int:
    if delta == 0:
        return NO_STEP
    return min(max(0, -((start - limit) // delta)), MOST)


def _rounded(*numbers: float) -> int:
    start, limit, delta = map(np.float64, numbers)
    lost = sum(not math.isfinite(x) for x in numbers)
    if lost or delta == 0:
        return NO_STEP - lost
    with np.errstate(all="ignore"):
        return int(min(max(0.0, np.ceil((limit - start) / delta)), MOST_FLOAT))


def _integer_count(start: Expr, limit: Expr, delta: Expr, dtype: DType) -> Expr:
    """The span and the pace without sign, as no signed type holds all of them."""
    zero, one = const(0, U64), const(1, U64)
    forwards = binary("lt", const(0, dtype), delta)
    low, high = select(forwards, start, limit), select(forwards, limit, start)
    span = binary("sub", cast(high, U64), cast(low, U64))
    pace = select(forwards, cast(delta, U64), binary("sub", zero, cast(delta, U64)))
    steps = binary("add", binary("div", binary("sub", span, one), pace), one)
    count = cast(binary("min", steps, const(MOST, U64)), I64)
    found = select(binary("lt", low, high), count, const(0, I64))
    return select(binary("eq", delta, const(0, dtype)), const(NO_STEP, I64), found)


def _float_count(start: Expr, limit: Expr, delta: Expr) -> Expr:
    steps = unary("ceil", binary("div", binary("sub", limit, start), delta))
    steps = binary("max", binary("min", steps, const(MOST_FLOAT, F64)), const(0.0, F64))
    lost = const(0, I64)
    for x in (start, limit, delta):
        wrong = binary("or", unary("isnan", x), unary("isinf", x))
        lost = binary("add", lost, cast(wrong, I64))
    none = binary("sub", const(NO_STEP, I64), lost)
    still = binary("eq", delta, const(0.0, F64))
    bad = binary("or", still, binary("lt", const(0, I64), lost))
    return select(bad, none, cast(steps, I64))


def range_count(g: GraphBuilder, numbers: Sequence[Value], where: str, hint: str) -> Dim:
    """The number of elements, given start, limit and delta of one element each.

    Guards refuse what has none.
    """
    count = g.read_size(g.add1(RangeCount(), *numbers), 0, NO_STEP - 3, MOST, f"{hint}_or_none")
    lost = dims.dmax(NO_STEP - count, 0)
    g.guard(lost, 0, f"{where}: numbers of start, limit and delta that are not finite must be none")
    g.guard(is_zero(count - NO_STEP), 0, f"{where}: deltas that are 0 must be none")
    return g.name_size(dims.dmax(count, 0), 0, None, hint)
