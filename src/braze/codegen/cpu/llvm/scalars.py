"""LLVM code of every scalar operation: a table {op: function(lanes, expr, *values)}.

Values are in register form (see emit.py). The meaning of each operation is the one of
`braze.expr.scalar`; functions of analysis come from `braze.expr.decompose`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llvmlite import ir

from braze.codegen.cpu.llvm import halves
from braze.codegen.cpu.llvm.elementary import (
    counts_as_zero,
    elementary,
    of_two,
    power,
    remainder,
)
from braze.codegen.cpu.llvm.function import I8, storage_type
from braze.codegen.cpu.llvm.vector import F32, F64, I16, Lanes, with_element
from braze.core.dtypes import BF16, BOOL, F16, DType
from braze.core.dtypes import F64 as FLOAT64
from braze.expr.decompose import FUNCTIONS
from braze.expr.decompose_pairs import PAIRS
from braze.expr.limits import limit
from braze.expr.scalar import Expr

V = Any  # an LLVM value


def settle(a: Lanes, dtype: DType, x: V) -> V:
    """Round a float32 result to the half type it stands for."""
    if dtype is F16:
        return halves.round_f16(a, x)
    return halves.round_bf16(a, x) if dtype is BF16 else x


def _rounded(function: Callable[..., V]) -> Callable[..., V]:
    """An operation whose result may not be exact in a half type."""
    return lambda a, e, *args: settle(a, e.dtype, function(a, e, *args))


def _add(a: Lanes, e: Expr, x: V, y: V) -> V:
    return a.either(x, y) if e.dtype is BOOL else a.add(x, y)


def _mul(a: Lanes, e: Expr, x: V, y: V) -> V:
    return a.both(x, y) if e.dtype is BOOL else a.mul(x, y)


def _sub(a: Lanes, e: Expr, x: V, y: V) -> V:
    return a.sub(x, y)


def _literal(e: Expr) -> int | None:
    """The value of an integer constant."""
    return int(e.value) if e.op == "const" and not e.dtype.is_float else None


def _quotient(a: Lanes, e: Expr, x: V, y: V) -> tuple[V, V]:
    """(x / y toward zero, x - y * that) for integers; a zero divisor gives zeros."""
    signed = e.dtype.is_signed
    divide = a.b.sdiv if signed else a.b.udiv
    rest = a.b.srem if signed else a.b.urem
    x, y = a.match(x, y)
    value = _literal(e.args[1])
    if value not in (None, 0, -1):
        return divide(x, y), rest(x, y)
    zero, one = a.const(y, 0), a.const(y, 1)
    is_zero = a.compare("==", y, zero)
    special = is_zero
    if signed:
        minus = a.compare("==", y, a.const(y, -1))
        special = a.either(is_zero, minus)
    safe = a.select(special, one, y)
    quotient, remainder_ = divide(x, safe), rest(x, safe)
    if signed:
        # the smallest integer divided by -1 wraps
        quotient = a.select(minus, a.sub(zero, x), quotient)
    return a.select(is_zero, zero, quotient), remainder_


def _div(a: Lanes, e: Expr, x: V, y: V) -> V:
    return a.div(x, y) if e.dtype.is_float else _quotient(a, e, x, y)[0]


def _floordiv(a: Lanes, e: Expr, x: V, y: V) -> V:
    if e.dtype.is_float:
        return _float_floor(a, x, y)[0]
    value = _literal(e.args[1])
    if value is not None and value > 0 and value & (value - 1) == 0:
        x, y = a.match(x, y)
        shift = a.b.ashr if e.dtype.is_signed else a.b.lshr
        return shift(x, a.const(x, value.bit_length() - 1))
    quotient, rest = _quotient(a, e, x, y)
    if not e.dtype.is_signed:
        return quotient
    return a.add(quotient, a.resize(_crosses(a, rest, y), quotient_type(quotient), signed=True))


def quotient_type(x: V) -> ir.Type:
    return x.type.element if isinstance(x.type, ir.VectorType) else x.type


def _crosses(a: Lanes, rest: V, y: V) -> V:
    """True where truncation and flooring of a division differ."""
    rest, y = a.match(rest, y)
    apart = a.lt(a.exclusive(rest, y), a.const(rest, 0))
    return a.both(a.compare("!=", rest, a.const(rest, 0)), apart)


def _mod(a: Lanes, e: Expr, x: V, y: V) -> V:
    if e.dtype.is_float:
        return _float_floor(a, x, y)[1]
    value = _literal(e.args[1])
    if value is not None and value > 0 and value & (value - 1) == 0:
        return a.b.and_(*a.match(x, a.const(y, value - 1)))
    _, rest = _quotient(a, e, x, y)
    if not e.dtype.is_signed:
        return _zero_divisor(a, rest, y)
    fixed = a.select(_crosses(a, rest, y), a.add(rest, y), rest)
    return _zero_divisor(a, fixed, y)


def _zero_divisor(a: Lanes, result: V, y: V) -> V:
    return a.select(a.compare("==", y, a.const(y, 0)), a.const(result, 0), result)


def _fmod(a: Lanes, e: Expr, x: V, y: V) -> V:
    if e.dtype.is_float:
        return remainder(a, *a.match(x, y))
    return _zero_divisor(a, _quotient(a, e, x, y)[1], y)


def _float_floor(a: Lanes, x: V, y: V) -> tuple[V, V]:
    """(floor(x / y), x mod y) of floats as Python and numpy define them, from an exact fmod."""
    x, y = a.match(x, y)
    zero, one = a.const(x, 0.0), a.const(x, 1.0)
    exact = rest = remainder(a, x, y)
    quotient = a.div(a.sub(x, rest), y)
    nonzero = a.compare("!=", rest, zero)
    apart = a.both(nonzero, a.exclusive(a.lt(y, zero), a.lt(rest, zero)))
    quotient = a.select(apart, a.sub(quotient, one), quotient)
    rest = a.select(apart, a.add(rest, y), rest)
    rest = a.select(nonzero, rest, a.copysign(zero, y))
    whole = a.floor(quotient)
    whole = a.select(a.lt(a.const(x, 0.5), a.sub(quotient, whole)), a.add(whole, one), whole)
    plain = a.div(x, y)
    whole = a.select(a.compare("!=", quotient, zero), whole, a.copysign(zero, plain))
    by_zero = counts_as_zero(a, y)
    # fmod by zero is NaN, and so is the modulus
    return a.select(by_zero, plain, whole), a.select(by_zero, exact, rest)


def _pow(a: Lanes, e: Expr, x: V, y: V) -> V:
    if e.dtype.is_float:
        return power(a, e, x, y)
    x, y = a.match(x, y)
    result, base, exponent = a.const(x, 1), x, y
    bits = e.dtype.bits
    value = _literal(e.args[1])
    steps = bits if value is None else max(1, value.bit_length())
    with a.fn.carry_loop(0, steps, 1, [result, base, exponent]) as it:
        total, square, left = it.values
        odd = a.compare("!=", a.b.and_(left, a.const(left, 1)), a.const(left, 0))
        total = a.select(odd, a.mul(total, square), total)
        it.next = [total, a.mul(square, square), a.b.lshr(left, a.const(left, 1))]
    result = it.results[0]
    if not e.dtype.is_signed:
        return result
    zero, one, minus = a.const(x, 0), a.const(x, 1), a.const(x, -1)
    is_odd = a.compare("!=", a.b.and_(y, one), zero)
    unit = a.select(a.compare("==", x, minus), a.select(is_odd, minus, one), zero)
    unit = a.select(a.compare("==", x, one), one, unit)
    return a.select(a.lt(y, zero), unit, result)


def _extreme(op: str) -> Callable[..., V]:
    def apply(a: Lanes, e: Expr, x: V, y: V) -> V:
        if e.dtype is BOOL:
            return a.either(x, y) if op == ">" else a.both(x, y)
        return a.extreme(op, x, y, e.dtype.is_signed)

    return apply


def _shift(left: bool) -> Callable[..., V]:
    def apply(a: Lanes, e: Expr, x: V, y: V) -> V:
        x, y = a.match(x, y)
        bits = e.dtype.bits
        inside = a.compare("<", y, a.const(y, bits), signed=False)
        if left:
            return a.select(inside, a.b.shl(x, a.select(inside, y, a.const(y, 0))), a.const(x, 0))
        if e.dtype.is_signed:
            return a.b.ashr(x, a.select(inside, y, a.const(y, bits - 1)))
        moved = a.b.lshr(x, a.select(inside, y, a.const(y, 0)))
        return a.select(inside, moved, a.const(x, 0))

    return apply


def _compare(op: str) -> Callable[..., V]:
    def apply(a: Lanes, e: Expr, x: V, y: V) -> V:
        return a.compare(op, x, y, e.args[0].dtype.is_signed)

    return apply


def _sign(a: Lanes, e: Expr, x: V) -> V:
    zero, one = a.const(x, 0), a.const(x, 1)
    positive = a.compare("<", zero, x, e.dtype.is_signed)
    if not e.dtype.is_signed:
        return a.select(positive, one, zero)
    result = a.select(positive, one, a.select(a.lt(x, zero), a.const(x, -1), zero))
    return a.select(a.is_nan(x), x, result) if e.dtype.is_float else result


def _abs(a: Lanes, e: Expr, x: V) -> V:
    return a.abs(x) if e.dtype.is_signed else x


def _not(a: Lanes, e: Expr, x: V) -> V:
    return a.b.xor(x, a.const(x, -1 if e.dtype is not BOOL else 1))


def _round_by(name: str) -> Callable[..., V]:
    def apply(a: Lanes, e: Expr, x: V) -> V:
        rounded: V = getattr(a, name)(x)
        return rounded

    return apply


def _isnan(a: Lanes, e: Expr, x: V) -> V:
    return a.is_nan(x)


def _isinf(a: Lanes, e: Expr, x: V) -> V:
    return a.compare("==", a.abs(x), a.const(x, float("inf")))


def _select(a: Lanes, e: Expr, c: V, x: V, y: V) -> V:
    kind = limit(e)
    return a.select(c, x, y) if kind is None else a.limited(kind, x, y)


def _cast(a: Lanes, e: Expr, x: V) -> V:
    source, target = e.args[0].dtype, e.dtype
    if target is BOOL:
        return a.compare("!=", x, a.const(x, 0))
    if source.is_float:
        return _float_to_float(a, x, target) if target.is_float else _truncate(a, x, target)
    if target.is_float:
        wide = F64 if target is FLOAT64 else F32
        return settle(a, target, a.as_float(x, wide, source.is_signed))
    return a.resize(x, storage_type(target), source.is_signed)


def _float_to_float(a: Lanes, x: V, target: DType) -> V:
    element = quotient_type(x)
    if target is FLOAT64:
        return a.b.fpext(x, with_element(x.type, F64)) if element != F64 else x
    if element == F64:
        if target is F16:
            return halves.round_f16(a, halves.narrow_odd(a, x))
        x = a.b.fptrunc(x, with_element(x.type, F32))
    return settle(a, target, x)


def _truncate(a: Lanes, x: V, target: DType) -> V:
    """Float to integer toward zero; what does not fit gives the least value of the type."""
    precision = 53 if quotient_type(x) == F64 else 24
    worst = -(2 ** (target.bits - 1)) if target.is_signed else 0
    exact = target.bits <= precision or not target.is_signed
    low = (
        a.compare("<", a.const(x, worst - 1), x) if exact else a.compare("<=", a.const(x, worst), x)
    )
    high = a.lt(x, a.const(x, 2.0 ** (target.bits - target.is_signed)))
    kind = with_element(x.type, storage_type(target))
    number = a.b.fptosi(x, kind) if target.is_signed else a.b.fptoui(x, kind)
    return a.select(a.both(low, high), number, a.const(number, worst))


def _bitcast(a: Lanes, e: Expr, x: V) -> V:
    source, target = e.args[0].dtype, e.dtype
    if source is BOOL:
        x = a.b.zext(x, with_element(x.type, I8))
    elif source is F16:
        x = halves.f32_to_f16(a, x)
    elif source is BF16:
        x = a.b.trunc(a.shift_right(a.bits(x), 16), with_element(x.type, I16))
    if target is BOOL:
        return a.compare("!=", x, a.const(x, 0))
    if target is F16:
        return halves.f16_to_f32(a, x)
    if target is BF16:
        return halves.bf16_to_f32(a, x)
    want = storage_type(target)
    return x if quotient_type(x) == want else a.b.bitcast(x, with_element(x.type, want))


def _function(name: str) -> Callable[..., V]:
    return lambda a, e, x: settle(a, e.dtype, elementary(a, name, x))


def _of_two(name: str) -> Callable[..., V]:
    return lambda a, e, x, y: settle(a, e.dtype, of_two(a, name, x, y))


PRIMITIVES: Mapping[str, Callable[..., V]] = {
    "neg": lambda a, e, x: a.neg(x), "abs": _abs, "sign": _sign, "not": _not,
    "floor": _round_by("floor"), "ceil": _round_by("ceil"), "trunc": _round_by("trunc"),
    "round": _round_by("round_even"), "sqrt": _rounded(lambda a, e, x: a.sqrt(x)),
    **{name: _function(name) for name in FUNCTIONS}, **{name: _of_two(name) for name in PAIRS},
    "isnan": _isnan, "isinf": _isinf, "given": lambda a, e, x: x,
    "add": _rounded(_add), "sub": _rounded(_sub), "mul": _rounded(_mul), "div": _rounded(_div),
    "floordiv": _rounded(_floordiv), "mod": _rounded(_mod), "fmod": _rounded(_fmod),
    "pow": _rounded(_pow), "min": _extreme("<"), "max": _extreme(">"),
    "and": lambda a, e, x, y: a.both(x, y), "or": lambda a, e, x, y: a.either(x, y),
    "xor": lambda a, e, x, y: a.exclusive(x, y), "shl": _shift(True), "shr": _shift(False),
    "lt": _compare("<"), "le": _compare("<="), "eq": _compare("=="),
    "cast": _cast, "bitcast": _bitcast, "select": _select,
}  # fmt: skip
