"""Functions that scalar expressions have no operation for, written with those they have."""

from __future__ import annotations

from braze.core.dtypes import F64
from braze.expr.scalar import Expr, binary, const, select, unary


def number(value: float, like: Expr) -> Expr:
    """The literal `value` in the type of `like`."""
    return const(value, like.dtype)


def add(a: Expr, b: Expr) -> Expr:
    """a + b."""
    return binary("add", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    """a - b."""
    return binary("sub", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    """a * b."""
    return binary("mul", a, b)


def div(a: Expr, b: Expr) -> Expr:
    """a / b."""
    return binary("div", a, b)


def less(a: Expr, b: Expr) -> Expr:
    """a < b, as bool."""
    return binary("lt", a, b)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x)); exp overflowing to infinity gives the right limit 0."""
    return div(number(1, x), add(number(1, x), unary("exp", unary("neg", x))))


def expm1(x: Expr) -> Expr:
    """exp(x) - 1 with full relative precision: the Taylor series near 0, the formula elsewhere.

    For |x| < 0.35 the first term left out is below the rounding of the type (8 terms: 3e-10,
    16 terms: 5e-23, relative).
    """
    terms = 16 if x.dtype is F64 else 8
    series = number(1, x)
    for k in range(terms, 1, -1):
        series = add(number(1, x), mul(mul(x, number(1 / k, x)), series))
    near = less(unary("abs", x), number(0.35, x))
    return select(near, mul(x, series), sub(unary("exp", x), number(1, x)))


def log1p(x: Expr) -> Expr:
    """log(1 + x) for x >= 0 with full relative precision.

    With w = 1 + x rounded, log(w) * x / (w - 1) undoes the rounding of w (Higham, Accuracy and
    Stability of Numerical Algorithms, section 1.14).
    """
    w = add(number(1, x), x)
    exact = div(mul(unary("log", w), x), sub(w, number(1, x)))
    return select(binary("eq", w, number(1, x)), x, exact)
