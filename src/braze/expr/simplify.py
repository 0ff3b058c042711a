"""Algebra on scalar expressions: fewer operations, same value for every input.

Integer index arithmetic is brought to a sum of terms (`Linear`), so that quotients and remainders
of reshaped indexes cancel; comparisons, minima and selects are decided from intervals. Floating
point is never reassociated: only exact identities and exact foldings are applied to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from braze.core.dims import Dim, exact_div, may_wrap
from braze.core.dtypes import BOOL, I64
from braze.expr.affine import content
from braze.expr.bounds import at_most, index_range, positive_symbols
from braze.expr.evaluate import evaluate
from braze.expr.fold import bottom_up, rewrite
from braze.expr.scalar import Expr, binary, const, dim, unary

# operations whose result on constants is exact, so folding cannot change a bit
_FOLDED = {
    "add", "sub", "mul", "div", "floordiv", "mod", "fmod", "min", "max", "and", "or", "xor", "shl",
    "shr", "lt", "le", "eq", "neg", "abs", "sign", "floor", "ceil", "round", "trunc", "not",
    "isnan", "isinf", "cast", "select",
}  # fmt: skip


class Linear:
    """const + sum of coefficient * term, for int64; terms are not sums themselves."""

    def __init__(self, constant: Dim, terms: dict[Expr, Dim]) -> None:
        self.constant = constant
        self.terms = {t: c for t, c in terms.items() if c != 0}

    def plus(self, other: Linear, factor: Dim = 1) -> Linear:
        terms = dict(self.terms)
        for t, c in other.terms.items():
            terms[t] = terms.get(t, 0) + c * factor
        return Linear(self.constant + other.constant * factor, terms)

    def times(self, factor: Dim) -> Linear:
        return Linear(self.constant * factor, {t: c * factor for t, c in self.terms.items()})

    def expr(self) -> Expr:
        """The sum as an expression."""
        total: Expr | None = None
        for t, c in self.terms.items():
            piece = t if c == 1 else binary("mul", t, dim(c))
            total = piece if total is None else binary("add", total, piece)
        if total is None:
            return dim(self.constant)
        return total if self.constant == 0 else binary("add", total, dim(self.constant))


def linear(root: Expr) -> Linear:
    """An int64 expression as a sum of terms."""

    def visit(e: Expr, args: tuple[Linear, ...]) -> Linear:
        if e.op in ("dim", "const"):
            return Linear(e.size, {})
        if e.op in ("add", "sub"):
            return args[0].plus(args[1], 1 if e.op == "add" else -1)
        if e.op == "neg":
            return args[0].times(-1)
        if e.op == "mul":
            a, b = args
            if not b.terms:
                return a.times(b.constant)
            if not a.terms:
                return b.times(a.constant)
        return Linear(0, {e: 1})

    return bottom_up(root, visit, lambda e: e.op in ("add", "sub", "neg", "mul"))


def simplify(e: Expr, extents: Mapping[int, Dim] | None = None) -> Expr:
    """An expression with the same value wherever axes stay within `extents`."""
    known = extents or {}

    def change(x: Expr) -> Expr | None:
        folded = _fold_constants(x)
        if folded is not None:
            return folded
        rule = _RULES.get(x.op)
        result = rule(x, known) if rule is not None else None
        if result is None and x.dtype is I64 and x.op in ("add", "sub", "mul", "neg"):
            result = _sum(x)
        return result

    return rewrite(e, change)


def _fold_constants(e: Expr) -> Expr | None:
    if e.op not in _FOLDED or not e.args or any(a.op != "const" for a in e.args):
        return None
    value = np.asarray(evaluate(e, {}, (), {})).item()
    return const(value, e.dtype)


def _is_const(e: Expr, value: int | bool) -> bool:
    return e.op == "const" and type(e.value) is type(value) and e.value == value


def _sum(e: Expr) -> Expr | None:
    total = linear(e)
    merged = _join_division(total)
    if any(may_wrap(d) for d in (merged.constant, *merged.terms.values())):
        return None
    result = merged.expr()
    return None if result == e else result


def _join_division(total: Linear) -> Linear:
    """k*d * (x // d) + k * (x % d) is k * x."""
    joined: Linear | None = total
    while joined is not None:
        total, joined = joined, _joined_once(joined)
    return total


def _joined_once(total: Linear) -> Linear | None:
    for rest, coefficient in total.terms.items():
        if rest.op != "mod":
            continue
        x, d = rest.args
        whole = Expr("floordiv", (x, d), I64)
        divisor = linear(d)
        if divisor.terms or whole not in total.terms:
            continue
        if total.terms[whole] == coefficient * divisor.constant:
            terms = {t: c for t, c in total.terms.items() if t not in (rest, whole)}
            return Linear(total.constant, terms).plus(linear(x), coefficient)
    return None


def _split_by(total: Linear, divisor: Dim) -> tuple[Linear, Linear]:
    """(q, r) with total = divisor * q + r, taking into q what the divisor divides."""
    quotient: dict[Expr, Dim] = {}
    rest: dict[Expr, Dim] = {}
    for t, c in total.terms.items():
        part = exact_div(c, divisor)
        if part is None:
            rest[t] = c
        else:
            quotient[t] = part
    whole: Dim = 0
    left = total.constant
    part = exact_div(left, divisor)
    if part is not None:
        whole, left = part, 0
    elif isinstance(left, int) and isinstance(divisor, int):
        whole, left = left // divisor, left % divisor
    return Linear(whole, quotient), Linear(left, rest)


def _division(e: Expr, extents: Mapping[int, Dim]) -> Expr | None:
    if e.dtype is not I64:
        return None
    x, d = e.args
    by = linear(d)
    positive = positive_symbols(extents)
    if by.terms or not at_most(1, by.constant, positive):
        return None
    divisor = by.constant
    quotient, rest = _split_by(linear(x), divisor)
    left = rest.expr()
    low, high = index_range(left, extents)
    small = low is not None and high is not None and at_most(0, low, positive)
    if small and high is not None and at_most(high, divisor - 1, positive):
        return quotient.expr() if e.op == "floordiv" else left
    coarse = _coarser(rest, divisor, extents)
    if coarse is not None:
        scale, upper, lower = coarse
        inner = binary(e.op, upper.expr(), dim(divisor // scale))
        if e.op == "mod":
            return Linear(0, {inner: scale}).plus(lower).expr()
        return quotient.plus(Linear(0, {inner: 1})).expr()
    if e.op == "mod":
        if left.op == "mod" and exact_div(linear(left.args[1]).constant, divisor) is not None:
            left = left.args[0]
        return None if left == x else binary("mod", left, d)
    inner = left
    if left.op == "floordiv" and not linear(left.args[1]).terms:
        inner = left.args[0]
        d = dim(linear(left.args[1]).constant * divisor)
    if inner == x:
        return None
    return quotient.plus(Linear(0, {binary("floordiv", inner, d): 1})).expr()


def _coarser(
    rest: Linear, divisor: Dim, extents: Mapping[int, Dim]
) -> tuple[int, Linear, Linear] | None:
    """(g, x, r) with rest = g * x + r, 0 <= r < g and g > 1 a divisor of the divisor.

    Then rest // d is x // (d / g), and rest % d is g * (x % (d / g)) + r.
    """
    if not isinstance(divisor, int):
        return None
    for coefficient in rest.terms.values():
        scale = math.gcd(divisor, content(coefficient))
        if scale in (1, divisor):
            continue
        upper, lower = _split_by(rest, scale)
        low, high = index_range(lower.expr(), extents)
        if low is None or high is None:
            continue
        positive = positive_symbols(extents)
        if at_most(0, low, positive) and at_most(high, scale - 1, positive):
            return scale, upper, lower
    return None


def _compare(e: Expr, extents: Mapping[int, Dim]) -> Expr | None:
    x, y = e.args
    if x.dtype is not I64:
        return None
    positive = positive_symbols(extents)
    low, high = index_range(linear(y).plus(linear(x), -1).expr(), extents)
    strict = 1 if e.op == "lt" else 0
    if e.op == "eq":
        if low is not None and low == high == 0:
            return const(True, BOOL)
        above = low is not None and at_most(1, low, positive)
        below = high is not None and at_most(high, -1, positive)
        return const(False, BOOL) if above or below else None
    if low is not None and at_most(strict, low, positive):
        return const(True, BOOL)
    if high is not None and at_most(high, strict - 1, positive):
        return const(False, BOOL)
    return None


def _extreme(e: Expr, extents: Mapping[int, Dim]) -> Expr | None:
    x, y = e.args
    if x == y:
        return x
    if x.dtype is not I64:
        return None
    positive = positive_symbols(extents)
    low, high = index_range(linear(y).plus(linear(x), -1).expr(), extents)
    smaller, larger = (x, y) if e.op == "min" else (y, x)
    if low is not None and at_most(0, low, positive):
        return smaller
    return larger if high is not None and at_most(high, 0, positive) else None


def _select(e: Expr, _: Mapping[int, Dim]) -> Expr | None:
    condition, x, y = e.args
    if condition.op == "const":
        return x if condition.value else y
    if x == y:
        return x
    if condition.op == "not":
        return Expr("select", (condition.args[0], y, x), e.dtype)
    return None


def _logic(e: Expr, _: Mapping[int, Dim]) -> Expr | None:
    x, y = e.args
    if x.dtype is not BOOL:
        return None
    if x == y:
        return x if e.op != "xor" else const(False, BOOL)
    for a, b in ((x, y), (y, x)):
        if a.op == "const":
            neutral = bool(a.value) is (e.op == "and")
            if e.op == "xor":
                return unary("not", b) if a.value else b
            return b if neutral else a
    return None


def _not(e: Expr, _: Mapping[int, Dim]) -> Expr | None:
    return e.args[0].args[0] if e.args[0].op == "not" else None


def _cast(e: Expr, _: Mapping[int, Dim]) -> Expr | None:
    return e.args[0] if e.args[0].dtype == e.dtype else None


def _multiply(e: Expr, _: Mapping[int, Dim]) -> Expr | None:
    if not e.dtype.is_int:
        return None
    for a, b in (e.args, e.args[::-1]):
        if _is_const(a, 1):
            return b
        if _is_const(a, 0):
            return a
    return None


_RULES = {
    "floordiv": _division, "mod": _division, "lt": _compare, "le": _compare, "eq": _compare,
    "min": _extreme, "max": _extreme, "select": _select, "and": _logic, "or": _logic,
    "xor": _logic, "not": _not, "cast": _cast, "mul": _multiply,
}  # fmt: skip
