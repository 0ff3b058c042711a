"""Elementary functions of two operands as arithmetic: x ** y with the special cases of IEEE 754.

As in braze.expr.decompose, for what needs its functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from braze.expr.arith import Arith, X
from braze.expr.decompose import exp64, log64, polynomial, split_log


def two_product(a: Arith, x: X, y: X) -> tuple[X, X]:
    """x * y as a rounded product and its error (T. Dekker's splitting: no fused operation)."""
    high = a.mul(x, y)
    x1, x2 = _halve(a, x)
    y1, y2 = _halve(a, y)
    error = a.sub(a.mul(x1, y1), high)
    error = a.add(a.add(error, a.mul(x1, y2)), a.mul(x2, y1))
    return high, a.add(error, a.mul(x2, y2))


def _halve(a: Arith, x: X) -> tuple[X, X]:
    scaled = a.mul(x, a.const(x, 134217729.0))
    high = a.sub(scaled, a.sub(scaled, x))
    return high, a.sub(x, high)


def two_sum(a: Arith, x: X, y: X) -> tuple[X, X]:
    """x + y as a rounded sum and its error, for |x| >= |y| or x = 0."""
    total = a.add(x, y)
    return total, a.sub(y, a.sub(total, x))


def log_pair(a: Arith, x: X) -> tuple[X, X]:
    """log(x) of a positive finite float64 as a sum of two numbers, to about 2**-68 relative."""
    k, f = split_log(a, x, 52)
    two = a.const(x, 2.0)
    below, below_error = two_sum(a, two, f)
    s = a.div(f, below)
    product, product_error = two_product(a, s, below)
    rest = a.sub(a.sub(a.sub(f, product), product_error), a.mul(s, below_error))
    s_low = a.div(rest, below)
    z = a.mul(s, s)
    series = [2.0 / (2 * i + 1) for i in range(1, 12)]
    tail = a.mul(a.mul(s, z), polynomial(a, z, series))
    # the largest terms first: k * log(2) in two pieces, then 2 s and what is small
    base = a.mul(k, a.const(x, 0.693147180559663))
    total, error = two_sum(a, base, a.add(s, s))
    flip, flip_error = two_sum(a, a.add(s, s), base)
    zero_k = a.compare("==", base, a.const(x, 0.0))
    total, error = a.select(zero_k, flip, total), a.select(zero_k, flip_error, error)
    low = a.mul(k, a.const(x, 2.8235290563031577e-13))
    first, first_error = two_sum(a, total, low)
    second, second_error = two_sum(a, first, tail)
    small = a.add(a.add(error, first_error), a.add(second_error, a.add(s_low, s_low)))
    return two_sum(a, second, small)


def power64(a: Arith, x: X, y: X) -> X:
    """x ** y in float64: exp(y * log|x|) with the logarithm and the product in two pieces."""
    limit = a.const(y, 1e20)
    bounded = a.select(a.lt(limit, a.abs(y)), a.copysign(limit, y), y)
    high, low = log_pair(a, a.abs(x))
    top, rest = two_product(a, bounded, high)
    rest = a.add(rest, a.mul(bounded, low))
    e = exp64(a, top)
    size = a.select(a.lt(a.abs(rest), a.const(x, 1.0)), a.fma(e, rest, e), e)
    usual = a.both(_positive_finite(a, a.abs(x)), a.lt(e, a.const(x, math.inf)))
    size = a.select(usual, size, exp64(a, a.mul(y, log64(a, a.abs(x)))))
    exact, product = _whole_power(a, a.abs(x), y)
    return finish_power(a, x, y, a.select(exact, product, size))


def _whole_power(a: Arith, x: X, y: X) -> tuple[X, X]:
    """(is it exact, x ** y by squaring) for whole x and y in 0 .. 63: integers stay integers."""
    one = a.const(x, 1.0)
    product, square, left = one, x, y
    for _ in range(6):
        half = a.floor(a.mul(left, a.const(y, 0.5)))
        odd = a.compare("!=", a.add(half, half), left)
        product = a.select(odd, a.mul(product, square), product)
        square, left = a.mul(square, square), half
    whole = a.both(a.compare("==", a.floor(x), x), a.compare("==", a.floor(y), y))
    small = a.both(a.lt(a.const(y, -1.0), y), a.lt(y, a.const(y, 64.0)))
    return a.both(a.both(whole, small), a.lt(product, a.const(x, 2.0**53))), product


def power32(a: Arith, x: X, y: X) -> X:
    """x ** y of float32 values held in float64."""
    return finish_power(a, x, y, exp64(a, a.mul(y, log64(a, a.abs(x)))))


def _positive_finite(a: Arith, x: X) -> X:
    return a.both(a.lt(a.const(x, 0.0), x), a.lt(x, a.const(x, math.inf)))


def finish_power(a: Arith, x: X, y: X, size: X) -> X:
    """Signs and special cases, given |x| ** y (NaN where it is 0 * inf)."""
    zero, one, inf = a.const(x, 0.0), a.const(x, 1.0), a.const(x, math.inf)
    half = a.mul(y, a.const(y, 0.5))
    whole = a.compare("==", a.floor(y), y)
    odd = a.both(whole, a.compare("!=", a.floor(half), half))
    odd = a.both(odd, a.lt(a.abs(y), inf))
    size = a.select(a.compare("==", a.abs(x), one), one, size)
    signed = a.select(odd, a.copysign(size, x), size)
    undefined = a.both(a.lt(x, zero), a.compare("!=", a.floor(y), y))
    undefined = a.both(undefined, a.lt(a.abs(x), inf))
    result = a.select(undefined, a.const(x, math.nan), signed)
    nan = a.either(a.is_nan(x), a.is_nan(y))
    result = a.select(nan, a.const(x, math.nan), result)
    certain = a.either(a.compare("==", y, zero), a.compare("==", x, one))
    return a.select(certain, one, result)


# (of float32 values held in float64, of float64 values); engines round the first to float32
PAIRS: Final[Mapping[str, tuple[Callable[..., X], Callable[..., X]]]] = {
    "pow": (power32, power64),
}
