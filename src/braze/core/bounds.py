"""Intervals of symbolic sizes: what the limits of the symbols say of an expression.

`bounds` is sound (every value lies inside), not always tight: it intersects three intervals of
one polynomial, each blind to something else.

1. Term by term: blind to terms that move together, such as `n*h - h`.
2. The same after writing each atom as its least value plus a rest that is never negative. With
   h' = (h-1)//2 + 1 the product h' * w' is stored expanded; term by term it seems to fall below
   zero, but with (h-1)//2 = -1 + r and (w-1)//2 = -1 + s it is r * s.
3. The same with a//b written as (a - a%b) / b: `n - n//2` moves with n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from operator import attrgetter

from braze.core.dims import Atom, Dim, DimExpr, Interval, Monomial, mod
from braze.core.errors import ShapeError

Number = int | Fraction
Polynomial = Mapping[Monomial, Number]
# polynomials that would grow beyond this many terms are bounded term by term only
MAX_TERMS = 256


def bounds(d: Dim, env: Mapping[str, Interval]) -> Interval:
    """An interval that holds every value of `d` when each symbol stays within its interval.

    Raises ShapeError naming a symbol that `env` lacks.
    """
    if isinstance(d, int):
        return d, d
    terms: Polynomial = dict(d.terms)
    ranges = {a: _atom_bounds(a, env) for m in terms for a in m}
    low, high = _term_by_term(terms, ranges)
    if len(terms) > 1 and sum(2 ** len(m) for m in terms) <= MAX_TERMS:
        for other, known in _rewritten(terms, ranges, env):
            lo, hi = _term_by_term(other, known)
            low, high = max(low, lo), min(high, hi)
    return math.ceil(low), math.floor(high)


def _rewritten(
    terms: Polynomial, ranges: Mapping[Atom, Interval], env: Mapping[str, Interval]
) -> list[tuple[Polynomial, Mapping[Atom, Interval]]]:
    """The polynomial in other atoms, with their intervals, where that may tell more."""
    out = []
    if any(len(m) > 1 for m in terms):
        out.append(_from_least(terms, ranges))
    divided = _without_division(terms)
    if divided is not None and sum(2 ** len(m) for m in divided) <= MAX_TERMS:
        known = {a: _atom_bounds(a, env) for m in divided for a in m}
        out.append((divided, known))
        if any(len(m) > 1 for m in divided):
            out.append(_from_least(divided, known))
    return out


def _from_least(
    terms: Polynomial, ranges: Mapping[Atom, Interval]
) -> tuple[Polynomial, Mapping[Atom, Interval]]:
    """Each atom becomes its least value plus a rest, for which the same Atom stands."""
    rests: dict[Atom, Interval] = {a: (0, hi - lo) for a, (lo, hi) in ranges.items()}
    return _replaced(terms, {a: {(): lo, (a,): 1} for a, (lo, _) in ranges.items()}), rests


def _without_division(terms: Polynomial) -> Polynomial | None:
    """Each a//b with a positive number b becomes (a - a%b) / b; None when there is none."""
    new: dict[Atom, Polynomial] = {}
    for atom in {a for m in terms for a in m}:
        if atom.kind != "floordiv":
            continue
        a, b = atom.args
        if isinstance(a, DimExpr) and isinstance(b, int) and b > 0:
            rest = a - mod(a, b)
            whole = rest.terms if isinstance(rest, DimExpr) else (((), rest),)
            new[atom] = {m: Fraction(c, b) for m, c in whole}
    return _replaced(terms, new) if new else None


def _replaced(terms: Polynomial, new: Mapping[Atom, Polynomial]) -> Polynomial:
    total: dict[Monomial, Number] = {}
    for monomial, coefficient in terms.items():
        product: Polynomial = {(): coefficient}
        for atom in monomial:
            product = _multiplied(product, new.get(atom, {(atom,): 1}))
        for m, c in product.items():
            total[m] = total.get(m, 0) + c
    return {m: c for m, c in total.items() if c}


def _multiplied(a: Polynomial, b: Polynomial) -> Polynomial:
    out: dict[Monomial, Number] = {}
    for m1, c1 in a.items():
        for m2, c2 in b.items():
            key = tuple(sorted(m1 + m2, key=attrgetter("text")))
            out[key] = out.get(key, 0) + c1 * c2
    return out


def _term_by_term(terms: Polynomial, ranges: Mapping[Atom, Interval]) -> tuple[Number, Number]:
    low: Number = 0
    high: Number = 0
    for monomial, coefficient in terms.items():
        lo: Number = coefficient
        hi: Number = coefficient
        for atom in monomial:
            corners = [x * y for x in (lo, hi) for y in ranges[atom]]
            lo, hi = min(corners), max(corners)
        low, high = low + lo, high + hi
    return low, high


def _atom_bounds(atom: Atom, env: Mapping[str, Interval]) -> Interval:
    if atom.kind == "sym":
        name = str(atom.args[0])
        if name not in env:
            raise ShapeError(f"symbol {name} has no bounds; give shapes for it in the profile")
        return env[name]
    (a_lo, a_hi), (b_lo, b_hi) = (bounds(x, env) for x in atom.operands)
    if atom.kind == "max":
        return max(a_lo, b_lo), max(a_hi, b_hi)
    if atom.kind == "min":
        return min(a_lo, b_lo), min(a_hi, b_hi)
    if b_lo <= 0:
        largest = max(abs(a_lo), abs(a_hi), abs(b_lo), abs(b_hi))
        return -largest, largest
    if atom.kind == "mod":
        return (a_lo, a_hi) if a_lo >= 0 and a_hi < b_lo else (0, b_hi - 1)
    corners = [x // y for x in (a_lo, a_hi) for y in (b_lo, b_hi)]
    return min(corners), max(corners)
