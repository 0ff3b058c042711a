"""Elementary functions as arithmetic: exp, log, trigonometry, erf and friends.

Each is written once over an `Arith` (LLVM lanes, or numpy in a test) from add, multiply, divide,
square root, comparisons and bit operations, because engines call no mathematics library. Methods:
Cody-Waite argument reduction, the identities stated at each function, and polynomials that
interpolate the function at Chebyshev points of the reduced interval, or truncated Taylor series;
coefficients were computed with 50 digits. Results below the smallest normal number are zero (the
runtime flushes denormals anyway).

float32 has its own exp, log, tanh and erf (within 2 units in the last place); the other functions
of float32 are computed in float64 and rounded. float64 results are within a few units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from braze.expr.angles import reduce_quarter
from braze.expr.arith import Arith, X, nearest
from braze.expr.coefficients import (
    ASIN,
    ATAN,
    COS,
    ERF32,
    ERF64,
    ERFC32,
    ERFCX,
    EXP32,
    EXP64,
    HALF_PI,
    LN2,
    LOG2_E,
    SIN,
    TANH32,
)


def polynomial(a: Arith, x: X, coefficients: Sequence[float]) -> X:
    """sum coefficients[k] * x**k by Horner's rule."""
    total = a.const(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = a.fma(total, x, a.const(x, c))
    return total


def exp32(a: Arith, x: X) -> X:
    """exp(x) in float32."""
    return _exp_ends(a, x, _bounded_exp32(a, x), 88.72283172607422, -87.3365447505531)


def _bounded_exp32(a: Arith, x: X) -> X:
    """exp(x) = 2**n * exp(r), |r| <= log(2) / 2, for |x| < 87."""
    n, bits = nearest(a, a.mul(x, a.const(x, LOG2_E)), 12582912.0)
    r = a.fma(n, a.const(x, -0.693145751953125), x)
    r = a.fma(n, a.const(x, -1.428606765330187e-06), r)
    p = a.fma(polynomial(a, r, EXP32), a.mul(r, r), r)
    return a.from_bits(a.add(a.bits(a.add(p, a.const(x, 1.0))), a.shift_left(bits, 23)))


def exp64(a: Arith, x: X) -> X:
    """exp(x) = 2**n * exp(r), |r| <= log(2) / 2, in float64."""
    _, bits, r = _reduce_exp64(a, x)
    p = a.fma(polynomial(a, r, EXP64), a.mul(r, r), r)
    power = a.add(a.bits(a.add(p, a.const(x, 1.0))), a.shift_left(bits, 52))
    return _exp_ends(a, x, a.from_bits(power), 709.782712893384, -708.3964185322641)


def _reduce_exp64(a: Arith, x: X) -> tuple[X, X, X]:
    n, bits = nearest(a, a.mul(x, a.const(x, LOG2_E)), 6755399441055744.0)
    r = a.fma(n, a.const(x, -0.693147180559663), x)
    return n, bits, a.fma(n, a.const(x, -2.8235290563031577e-13), r)


def _exp_ends(a: Arith, x: X, result: X, high: float, low: float) -> X:
    result = a.select(a.lt(x, a.const(x, low)), a.const(x, 0.0), result)
    # x + inf is inf for large x and NaN for NaN
    beyond = a.add(x, a.const(x, math.inf))
    return a.select(a.compare("<=", x, a.const(x, high)), result, beyond)


def expm1_64(a: Arith, x: X) -> X:
    """exp(x) - 1 for 0 <= x < 709: 2**n * (exp(r) - 1) + (2**n - 1)."""
    _, bits, r = _reduce_exp64(a, x)
    p = a.fma(polynomial(a, r, EXP64), a.mul(r, r), r)
    power = a.from_bits(a.add(a.shift_left(bits, 52), a.bits(a.const(x, 1.0))))
    return a.fma(power, p, a.sub(power, a.const(x, 1.0)))


def _log(a: Arith, x: X, single: bool) -> X:
    """log(x) = k * log(2) + log(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).

    With s = f / (2 + f): log(1 + f) = 2 * atanh(s) = f - (f*f/2 - s * (f*f/2 + R(s*s))), the
    arrangement of W. Cody and of fdlibm, which loses nothing near x = 1; R is Taylor's series.
    """
    digits, terms = (23, 4) if single else (52, 10)
    high, low = (0.693145751953125, 1.428606765330187e-06) if single else (
        0.693147180559663, 2.8235290563031577e-13,
    )  # fmt: skip
    k, f = split_log(a, x, digits)
    s = a.div(f, a.add(f, a.const(x, 2.0)))
    z = a.mul(s, s)
    series = [2.0 / (2 * i + 1) for i in range(1, terms + 1)]
    rest = a.mul(z, polynomial(a, z, series))
    half_square = a.mul(a.mul(f, f), a.const(x, 0.5))
    tail = a.fma(s, a.add(half_square, rest), a.mul(k, a.const(x, low)))
    result = a.fma(k, a.const(x, high), a.sub(f, a.sub(half_square, tail)))
    return _log_ends(a, x, result)


def split_log(a: Arith, x: X, digits: int) -> tuple[X, X]:
    """(k, f) with x = 2**k * (1 + f), also for denormal x."""
    tiny = a.lt(x, a.const(x, 2.0**-126 if digits == 23 else 2.0**-1022))
    y = a.select(tiny, a.mul(x, a.const(x, 2.0 ** (digits + 1))), x)
    bits = a.bits(y)
    root = 0x3F3504F3 if digits == 23 else 0x3FE6A09E667F3BCD
    k = a.shift_right(a.sub(bits, a.const(bits, root)), digits, signed=True)
    m = a.from_bits(a.sub(bits, a.shift_left(k, digits)))
    count = a.to_float(k)
    count = a.select(tiny, a.sub(count, a.const(x, digits + 1.0)), count)
    return count, a.sub(m, a.const(x, 1.0))


def _log_ends(a: Arith, x: X, result: X) -> X:
    zero, inf = a.const(x, 0.0), a.const(x, math.inf)
    result = a.select(a.lt(x, inf), result, x)
    outside = a.select(a.compare("==", x, zero), a.neg(inf), a.const(x, math.nan))
    return a.select(a.lt(zero, x), result, outside)


def log32(a: Arith, x: X) -> X:
    """log(x) in float32."""
    return _log(a, x, True)


def log64(a: Arith, x: X) -> X:
    """log(x) in float64."""
    return _log(a, x, False)


def log1p64(a: Arith, x: X) -> X:
    """log(1 + x): the rounding error of u = 1 + x is put back as (x - (u - 1)) / u."""
    one = a.const(x, 1.0)
    u = a.add(x, one)
    lost = a.div(a.sub(x, a.sub(u, one)), u)
    result = a.add(log64(a, u), lost)
    finite = a.lt(a.abs(u), a.const(x, math.inf))
    return a.select(a.both(finite, a.compare("!=", u, a.const(x, 0.0))), result, log64(a, u))


def tanh32(a: Arith, x: X) -> X:
    """A polynomial for |x| < 0.56, else 1 - 2 / (exp(2 |x|) + 1)."""
    size, one = a.abs(x), a.const(x, 1.0)
    z = a.mul(x, x)
    small = a.fma(a.mul(polynomial(a, z, TANH32), z), x, x)
    e = exp32(a, a.add(size, size))
    large = a.sub(one, a.div(a.const(x, 2.0), a.add(e, one)))
    return a.select(a.lt(size, a.const(x, 0.56)), small, a.copysign(large, x))


def tanh64(a: Arith, x: X) -> X:
    """t / (t + 2) with t = exp(2 |x|) - 1; 1 beyond |x| = 20."""
    size = a.abs(x)
    far = a.lt(a.const(x, 20.0), size)
    t = expm1_64(a, a.select(far, a.const(x, 0.0), a.add(size, size)))
    result = a.select(far, a.const(x, 1.0), a.div(t, a.add(t, a.const(x, 2.0))))
    return a.copysign(result, x)


def sinh64(a: Arith, x: X) -> X:
    """(t + t / (t + 1)) / 2 with t = exp(|x|) - 1; exp(|x| / 2)**2 / 2 for large |x|."""
    size, half = a.abs(x), a.const(x, 0.5)
    far = a.lt(a.const(x, 20.0), size)
    t = expm1_64(a, a.select(far, a.const(x, 0.0), size))
    near = a.mul(half, a.add(t, a.div(t, a.add(t, a.const(x, 1.0)))))
    e = exp64(a, a.mul(size, half))
    large = a.mul(a.mul(half, e), e)
    return a.copysign(a.select(a.compare("<=", size, a.const(x, 20.0)), near, large), x)


def cosh64(a: Arith, x: X) -> X:
    """(e + 1 / e) / 2 with e = exp(|x|); exp(|x| / 2)**2 / 2 for large |x|."""
    size, half = a.abs(x), a.const(x, 0.5)
    e = exp64(a, a.mul(size, half))
    square = a.mul(e, e)
    near = a.mul(half, a.add(square, a.div(a.const(x, 1.0), square)))
    large = a.mul(a.mul(half, e), e)
    return a.select(a.lt(size, a.const(x, 20.0)), near, large)


def asinh64(a: Arith, x: X) -> X:
    """log1p(v + v*v / (1 + sqrt(v*v + 1))) with v = |x|; log(v) + log(2) for large v."""
    size, one = a.abs(x), a.const(x, 1.0)
    square = a.mul(size, size)
    near = log1p64(a, a.add(size, a.div(square, a.add(one, a.sqrt(a.add(square, one))))))
    far = a.add(log64(a, size), a.const(x, LN2[0]))
    return a.copysign(a.select(a.lt(size, a.const(x, 1e9)), near, far), x)


def acosh64(a: Arith, x: X) -> X:
    """log1p(t + sqrt(2 t + t*t)) with t = x - 1; log(x) + log(2) for large x; NaN below 1."""
    t = a.sub(x, a.const(x, 1.0))
    root = a.sqrt(a.fma(t, t, a.add(t, t)))
    near = log1p64(a, a.add(t, root))
    far = a.add(log64(a, x), a.const(x, LN2[0]))
    result = a.select(a.lt(x, a.const(x, 1e9)), near, far)
    return a.select(a.lt(x, a.const(x, 1.0)), a.const(x, math.nan), result)


def atanh64(a: Arith, x: X) -> X:
    """log1p(2 v / (1 - v)) / 2 with v = |x|."""
    size = a.abs(x)
    ratio = a.div(a.add(size, size), a.sub(a.const(x, 1.0), size))
    return a.copysign(a.mul(log1p64(a, ratio), a.const(x, 0.5)), x)


def _sin_cos(a: Arith, r: X) -> tuple[X, X]:
    """Taylor series on |r| <= pi / 4."""
    z = a.mul(r, r)
    sine = a.fma(a.mul(polynomial(a, z, SIN), z), r, r)
    rest = a.mul(a.mul(z, z), polynomial(a, z, COS))
    cosine = a.add(a.fma(z, a.const(r, -0.5), a.const(r, 1.0)), rest)
    return sine, cosine


def _quarter_bit(a: Arith, quarter: X, bit: int) -> X:
    """True where that bit of the quarter number is set: it is moved into the sign."""
    return a.lt(a.shift_left(quarter, 63 - bit), a.const(quarter, 0))


def sin64(a: Arith, x: X) -> X:
    """sin(x) by quarter turns."""
    r, q = reduce_quarter(a, x)
    sine, cosine = _sin_cos(a, r)
    value = a.select(_quarter_bit(a, q, 0), cosine, sine)
    value = a.select(_quarter_bit(a, q, 1), a.neg(value), value)
    return a.select(a.compare("==", x, a.const(x, 0.0)), x, _periodic_ends(a, x, value))


def cos64(a: Arith, x: X) -> X:
    """cos(x) by quarter turns."""
    r, q = reduce_quarter(a, x)
    sine, cosine = _sin_cos(a, r)
    value = a.select(_quarter_bit(a, q, 0), sine, cosine)
    negative = a.exclusive(_quarter_bit(a, q, 0), _quarter_bit(a, q, 1))
    return _periodic_ends(a, x, a.select(negative, a.neg(value), value))


def tan64(a: Arith, x: X) -> X:
    """sin / cos, or -cos / sin in odd quarters."""
    r, q = reduce_quarter(a, x)
    sine, cosine = _sin_cos(a, r)
    odd = _quarter_bit(a, q, 0)
    value = a.div(a.select(odd, a.neg(cosine), sine), a.select(odd, sine, cosine))
    return a.select(a.compare("==", x, a.const(x, 0.0)), x, _periodic_ends(a, x, value))


def _periodic_ends(a: Arith, x: X, value: X) -> X:
    """NaN for infinities and NaN."""
    finite = a.lt(a.abs(x), a.const(x, math.inf))
    return a.select(finite, value, a.const(x, math.nan))


def _asin_core(a: Arith, x: X) -> tuple[X, X, X]:
    """(|x| > 1/2, reduced argument t, asin(t)): t = |x|, or sqrt((1 - |x|) / 2) when large."""
    size, half = a.abs(x), a.const(x, 0.5)
    large = a.lt(half, size)
    z = a.select(large, a.mul(a.sub(a.const(x, 1.0), size), half), a.mul(size, size))
    t = a.select(large, a.sqrt(z), size)
    return large, t, a.fma(a.mul(polynomial(a, z, ASIN), z), t, t)


def asin64(a: Arith, x: X) -> X:
    """asin(x) for |x| <= 1/2, else pi / 2 - 2 asin(sqrt((1 - |x|) / 2)); NaN beyond 1."""
    large, _, core = _asin_core(a, x)
    turned = a.sub(a.const(x, HALF_PI[0]), a.sub(a.add(core, core), a.const(x, HALF_PI[1])))
    return a.copysign(a.select(large, turned, core), x)


def acos64(a: Arith, x: X) -> X:
    """pi / 2 - asin(x) for |x| <= 1/2, else 2 asin(sqrt((1 - |x|) / 2)) or pi minus that."""
    large, _, core = _asin_core(a, x)
    negative = a.lt(x, a.const(x, 0.0))
    signed = a.select(negative, a.neg(core), core)
    middle = a.sub(a.const(x, HALF_PI[0]), a.sub(signed, a.const(x, HALF_PI[1])))
    double = a.add(core, core)
    pi, rest = a.const(x, 2 * HALF_PI[0]), a.const(x, 2 * HALF_PI[1])
    outer = a.select(negative, a.sub(pi, a.sub(double, rest)), double)
    return a.select(large, outer, middle)


def atan64(a: Arith, x: X) -> X:
    """Reduced to |t| <= tan(pi / 8) by atan(v) = pi/4 + atan((v-1)/(v+1)) = pi/2 - atan(1/v)."""
    size, one = a.abs(x), a.const(x, 1.0)
    middle = a.lt(a.const(x, 0.41421356237309503), size)
    high = a.lt(a.const(x, 2.414213562373095), size)
    top = a.select(high, a.neg(one), a.select(middle, a.sub(size, one), size))
    bottom = a.select(high, size, a.select(middle, a.add(size, one), one))
    t = a.div(top, bottom)
    z = a.mul(t, t)
    core = a.fma(a.mul(polynomial(a, z, ATAN), z), t, t)
    zero = a.const(x, 0.0)
    offset = a.select(high, a.const(x, HALF_PI[0]), a.const(x, HALF_PI[0] / 2))
    rest = a.select(high, a.const(x, HALF_PI[1]), a.const(x, HALF_PI[1] / 2))
    offset, rest = a.select(middle, offset, zero), a.select(middle, rest, zero)
    return a.copysign(a.add(offset, a.add(core, rest)), x)


def erf32(a: Arith, x: X) -> X:
    """x times a polynomial for |x| < 1, else 1 - exp(-P(|x|)) with P = -log(erfc)."""
    size, one = a.abs(x), a.const(x, 1.0)
    z = a.mul(x, x)
    small = a.fma(polynomial(a, z, ERF32), x, x)
    near = a.select(a.lt(size, a.const(x, 4.0)), size, a.const(x, 4.0))
    large = a.sub(one, _bounded_exp32(a, a.neg(polynomial(a, near, ERFC32))))
    result = a.select(a.lt(size, one), small, a.copysign(large, x))
    return a.select(a.is_nan(x), x, result)


def erf64(a: Arith, x: X) -> X:
    """x times a polynomial for |x| < 1, else 1 - exp(-x*x) * Q(|x|); 1 beyond |x| = 6."""
    size, one = a.abs(x), a.const(x, 1.0)
    z = a.mul(x, x)
    small = a.fma(polynomial(a, z, ERF64), x, x)
    two = a.const(x, 2.0)
    u = a.div(a.sub(size, two), a.add(size, two))
    large = a.sub(one, a.mul(exp64(a, a.neg(z)), polynomial(a, u, ERFCX)))
    large = a.select(a.lt(size, a.const(x, 6.0)), large, one)
    result = a.select(a.lt(size, one), small, a.copysign(large, x))
    return a.select(a.is_nan(x), x, result)


SINGLE: Final[Mapping[str, Callable[[Arith, X], X]]] = {
    "exp": exp32, "log": log32, "tanh": tanh32, "erf": erf32,
}  # fmt: skip
DOUBLE: Final[Mapping[str, Callable[[Arith, X], X]]] = {
    "exp": exp64, "log": log64, "sin": sin64, "cos": cos64, "tan": tan64, "asin": asin64,
    "acos": acos64, "atan": atan64, "sinh": sinh64, "cosh": cosh64, "tanh": tanh64,
    "asinh": asinh64, "acosh": acosh64, "atanh": atanh64, "erf": erf64,
}  # fmt: skip
FUNCTIONS: Final = tuple(DOUBLE)
