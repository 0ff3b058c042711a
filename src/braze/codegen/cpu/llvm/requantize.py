"""QuantizeLinear with the bits of its definition and without a division.

    cast(saturate(round(x / scale) + zero_point))        of a float32 x and a constant scale

The quotient must be the rounded one: a tie between two integers, to which the quotient may have
been rounded, goes to the even one. A constant divisor gives it in two instructions instead of one
long one, by the method of Brisebarre, Muller and Raina ("Accelerating correctly rounded
floating-point division when the divisor is known in advance", 2004): with `high` the reciprocal and
`low` the rest of it, fma(x, high, x * low) is the rounded quotient, except that for few divisors
there are x for which it is not; `reciprocal` finds out. x is saturated instead of the integer, so
that nothing overflows, and the integer is read from the sum with a large number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np

from braze.codegen.cpu.llvm.function import storage_type
from braze.codegen.cpu.llvm.vector import Lanes, with_element
from braze.core.dtypes import F32, I32, DType
from braze.expr.scalar import Expr

_MAGIC: Final = 1.5 * 2.0**23  # a sum with it has the integer in its low bits, ties to even
_MAGIC_BITS: Final = 0x4B400000
_BITS: Final = 24  # of a float32's significand
_FAR: Final = 2.0**100  # scales beyond have products that are no normal numbers


@dataclass(frozen=True, slots=True)
class Requantized:
    """What a cast of a saturated float32 is: `value` (x) as an integer of type `to`.

    least, most: of round(x / scale), which saturate it. `to` is int32 where the cast is to that, of
    such an integer of fewer bits, and float32 where that integer is one again, less a number
    (which `zero_point` is less then).
    """

    value: Expr
    scale: float
    zero_point: int
    least: int
    most: int
    to: DType


def requantized(e: Expr) -> Requantized | None:
    """`e` as a QuantizeLinear of float32 to 8 or 16 bits by a constant scale, or None."""
    if e.op == "cast" and e.dtype is F32:
        return _as_float(e.args[0])
    if e.op == "cast" and e.dtype is I32:
        narrow = requantized(e.args[0])
        return None if narrow is None or narrow.to is I32 else replace(narrow, to=I32)
    if e.op != "cast" or e.dtype.is_float or e.dtype.bits > 16 or e.args[0].dtype is not F32:
        return None
    below = _limited(e.args[0], upper=True)
    inside = None if below is None else _limited(below[0], upper=False)
    if below is None or inside is None:
        return None
    whole, zero = inside[0], 0
    if whole.op == "add":
        whole, offset = whole.args
        number = _number(offset)
        if number is None:
            return None
        zero = int(number)
    quotient = whole.args[0] if whole.op == "round" else None
    if quotient is None or quotient.op != "div" or quotient.args[1].op != "const":
        return None
    scale = float(np.float32(quotient.args[1].value))
    low, high = int(inside[1]) - zero, int(below[1]) - zero
    if not 1 / _FAR <= scale <= _FAR or not -(1 << 16) < low <= 0 <= high < 1 << 16:
        return None
    return Requantized(quotient.args[0], scale, zero, low, high, e.dtype)


def _as_float(e: Expr) -> Requantized | None:
    """What a cast of `e`, an integer of `requantized` less a number, to float32 is: the first half
    of a DequantizeLinear."""
    less = 0
    if e.op == "sub" and e.dtype is I32:
        e, number = e.args
        zero = _number(number)
        if zero is None or abs(zero) >= 1 << 16:
            return None
        less = int(zero)
    whole = requantized(e) if e.op == "cast" and not e.dtype.is_float else None
    if whole is None:
        return None
    return replace(whole, zero_point=whole.zero_point - less, to=F32)


def _limited(e: Expr, upper: bool) -> tuple[Expr, float] | None:
    """(x, limit) of select(x < limit, x, limit), or, not `upper`, of select(limit < x, x, limit):
    the first is a limit of x above, the second one below, which NaN becomes too."""
    if e.op != "select" or e.args[0].op != "lt":
        return None
    condition, x, limit = e.args
    number = _number(limit)
    expected = (x, limit) if upper else (limit, x)
    if number is None or condition.args != expected or number != int(number):
        return None
    return x, number


def _number(e: Expr) -> float | None:
    """The value of a finite constant, cast or not, that is a whole number."""
    inner = e.args[0] if e.op == "cast" else e
    if inner.op != "const" or not math.isfinite(inner.value) or inner.value != int(inner.value):
        return None
    return float(inner.value)


def emit_requantized(a: Lanes, r: Requantized, x: Any) -> Any:
    """LLVM code of `r` for its value `x`."""
    low, high = (float(np.float32(limit * r.scale)) for limit in (r.least, r.most))
    x = a.limited("max", x, a.const(x, low))  # NaN becomes the least
    x = a.limited("min", x, a.const(x, high))
    parts = reciprocal(r.scale) if a.features.has_fma else None
    if parts is None:
        quotient = a.div(x, a.const(x, r.scale))
    else:
        quotient = a.mul(x, a.const(x, parts[0]))
        if parts[1]:
            quotient = a.fma(x, a.const(x, parts[0]), a.mul(x, a.const(x, parts[1])))
    shifted = a.add(quotient, a.const(x, _MAGIC))
    if r.to is F32:  # an exact difference of two numbers of 24 bits
        return a.sub(shifted, a.const(x, _MAGIC - r.zero_point))
    bits = a.bits(shifted)
    if r.to is I32:
        return a.sub(bits, a.const(bits, _MAGIC_BITS - r.zero_point))
    number = a.b.trunc(bits, with_element(bits.type, storage_type(r.to)))
    return a.add(number, a.const(number, r.zero_point)) if r.zero_point else number


@lru_cache(maxsize=4096)
def reciprocal(divisor: float) -> tuple[float, float] | None:
    """(high, low) such that fma(x, high, x * low) is the float32 x / divisor for all x, or None.

    Barring overflow, and products below the least normal number. For a power of two, low is 0.
    """
    exact = 1 / Fraction(divisor)
    high = nearest(exact)
    low = nearest(exact - high)
    if all(_quotient(x, high, low) == nearest(x * exact) for x in _doubtful(divisor)):
        return float(high), float(low)
    return None


def _quotient(x: Fraction, high: Fraction, low: Fraction) -> Fraction:
    """fma(x, high, x * low)."""
    return nearest(x * high + nearest(x * low))


def _doubtful(divisor: float) -> Iterator[Fraction]:
    """All x, up to powers of two, whose quotient lies so near the middle between two numbers that
    the two roundings of the method could move it across.

    They add up to less than 2**-46 of the quotient. Of significands A (of x) and B as integers, the
    distance from A / B to a middle M / 2**w is |k| / (B * 2**w) with k = A * 2**w - B * M, where M
    is odd and w is 24, or 25 where A < B: so k is small, and M solves B * M = -k modulo 2**w.
    """
    significand = int(math.frexp(divisor)[0] * (1 << _BITS))
    for shift in (_BITS, _BITS + 1):
        modulus = 1 << shift
        for k in (k for n in range(1, 17) for k in (n, -n)):
            for middle in _solutions(significand, -k, modulus):
                for m in range(middle, 1 << (_BITS + 1), modulus):
                    x, rest = divmod(significand * m + k, modulus)
                    if rest == 0 and m >> _BITS == 1 and 1 << (_BITS - 1) <= x < 1 << _BITS:
                        yield Fraction(x)


def _solutions(factor: int, rest: int, modulus: int) -> Iterator[int]:
    """All m below `modulus`, a power of two, with factor * m = rest modulo it."""
    common = math.gcd(factor, modulus)
    if rest % common:
        return
    period = modulus // common
    first = rest // common * pow(factor // common, -1, period) % period if period > 1 else 0
    yield from range(first, modulus, period)


def nearest(x: Fraction) -> Fraction:
    """`x` with a significand of 24 bits, ties to even; exponents have no bound."""
    if x == 0:
        return x
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** (exponent - _BITS + 1)
    return round(x / unit) * unit
