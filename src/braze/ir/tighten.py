"""Simplify sizes with what the profiles say of their symbols."""

from __future__ import annotations

from collections.abc import Mapping

from braze.core.bounds import bounds
from braze.core.dims import DIM_OPS, Atom, Dim, Interval, sym


def tighten(d: Dim, env: Mapping[str, Interval]) -> Dim:
    """A size equal to `d` for all symbol values within `env`, without choices they settle.

    max(x, 256) is x where x is never below 256; x // 8 is a constant where all x give the same;
    x % 8 is x where x stays in 0..7.
    """
    if isinstance(d, int):
        return d
    total: Dim = 0
    for monomial, coefficient in d.terms:
        term: Dim = coefficient
        for atom in monomial:
            term = term * _tighten_atom(atom, env)
        total = total + term
    return total


def _tighten_atom(atom: Atom, env: Mapping[str, Interval]) -> Dim:
    if atom.kind == "sym":
        return sym(str(atom.args[0]))
    a, b = (tighten(x, env) for x in atom.operands)
    if atom.kind in ("max", "min"):
        lo, hi = bounds(a - b, env)
        if lo >= 0:
            return a if atom.kind == "max" else b
        if hi <= 0:
            return b if atom.kind == "max" else a
    elif isinstance(b, int) and b > 0:
        lo, hi = bounds(a, env)
        if lo // b == hi // b:
            return lo // b if atom.kind == "floordiv" else a - b * (lo // b)
    return DIM_OPS[atom.kind](a, b)
