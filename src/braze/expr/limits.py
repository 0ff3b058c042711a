"""Comparisons and selections that are limits."""

from __future__ import annotations

import math

from braze.expr.scalar import Expr


def limit(e: Expr) -> str | None:
    """"max" or "min" where `e` is x beyond a constant number, else the number, which NaN becomes
    too: select(c < x, x, c), or select(x < c, x, c). None for everything else.

    Compilers of the LLVM family (seen in 22) take that for what it is without NaN: behind a limit
    of the same number that NaN passes they leave it out. So it is emitted as one operation. Of
    equal numbers the constant is taken, which only zeros of either sign tell. A constant that is
    NaN limits nothing: no comparison with it is true.
    """
    if e.op != "select":
        return None
    condition, x, number = e.args
    if number.op != "const" or not number.dtype.is_float or math.isnan(number.value):
        return None
    if condition.op != "lt" and (condition.op != "le" or number.value == 0):
        return None
    if condition.args == (number, x):
        return "max"
    return "min" if condition.args == (x, number) else None
