"""Reduction of angles to a quarter turn, for every finite float64."""

from __future__ import annotations

import itertools

from braze.expr.arith import Arith, X, nearest
from braze.expr.coefficients import HALF_PI, HALF_PI_SPLIT, TWO_OVER_PI

# up to here three pieces of pi / 2 are enough
_MODERATE = 2.0**20


def reduce_quarter(a: Arith, x: X) -> tuple[X, X]:
    """(r, q): x = q * pi / 2 + r with |r| <= pi / 4; q in the low bits of an integer.

    Cody and Waite: subtract multiples of pi / 2 given in pieces short enough for exact products;
    large angles go through `_reduce_large`. Meaningless for infinities and NaN.
    """
    n, quarters = nearest(a, a.mul(x, a.const(x, 1 / HALF_PI[0])), 6755399441055744.0)
    r = x
    for part in HALF_PI_SPLIT:
        r = a.fma(n, a.const(x, -part), r)
    large = a.lt(a.const(x, _MODERATE), a.abs(x))
    r, quarters = a.rarely(large, lambda: list(_reduce_large(a, x)), [r, quarters])
    return r, quarters


def _reduce_large(a: Arith, x: X) -> tuple[X, X]:
    """The same for |x| >= 2**20 (Payne and Hanek).

    With x = m * 2**e, only 192 bits of 2 / pi matter to x * 2 / pi modulo 4: those before are
    multiples of 4, those after too small. Their product with m, modulo 2**192, has the quarter in
    its upper two bits and the fraction below, which is read as a signed number.
    """
    bits = a.bits(a.abs(x))
    start = a.sub(a.shift_right(bits, 52), a.const(bits, 1013))
    # lanes that do not need this may hold small numbers, for which there are no digits
    start = a.select(a.lt(start, a.const(bits, 0)), a.const(bits, 0), start)
    fraction = a.both(bits, a.const(bits, (1 << 52) - 1))
    m = a.either(fraction, a.const(bits, 1 << 52))
    high, middle, low = _window(a, start)
    lowest = a.mul(m, low)
    below, carried = _add_carry(a, a.mul_high(m, low), a.mul(m, middle))
    top = a.add(a.add(a.mul_high(m, middle), a.mul(m, high)), carried)
    part = a.either(a.shift_left(top, 2), a.shift_right(below, 62))
    rest = a.either(a.shift_left(below, 2), a.shift_right(lowest, 62))
    quarters = a.add(a.shift_right(top, 62), a.shift_right(part, 63))
    turn = a.mul(a.to_float(part), a.const(x, 2.0**-64))
    turn = a.fma(a.to_float(a.shift_right(rest, 1)), a.const(x, 2.0**-127), turn)
    r = a.fma(turn, a.const(x, HALF_PI[0]), a.mul(turn, a.const(x, HALF_PI[1])))
    negative = a.lt(x, a.const(x, 0.0))
    zero = a.const(bits, 0)
    return a.select(negative, a.neg(r), r), a.select(negative, a.sub(zero, quarters), quarters)


def _window(a: Arith, start: X) -> tuple[X, X, X]:
    """192 digits of 2 / pi from bit `start` of the table, the upper word first."""
    word = a.shift_right(start, 6)
    offset = a.both(start, a.const(start, 63))
    back = a.sub(a.const(start, 63), offset)
    words = [a.table(TWO_OVER_PI, a.add(word, a.const(word, k))) for k in range(4)]
    cut = []
    for upper, lower in itertools.pairwise(words):
        # a shift by 64 - offset in two steps, so that none is by 64
        entering = a.shift_by(a.shift_right(lower, 1), back, False)
        cut.append(a.either(a.shift_by(upper, offset, True), entering))
    return cut[0], cut[1], cut[2]


def _add_carry(a: Arith, x: X, y: X) -> tuple[X, X]:
    """(x + y modulo 2**64, the carry as 0 or 1)."""
    total = a.add(x, y)
    wrapped = a.compare("<", total, x, False)
    return total, a.select(wrapped, a.const(x, 1), a.const(x, 0))
