"""Intervals of index expressions, with sizes as end points: which checks can be left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Union

from braze.core.bounds import bounds
from braze.core.dims import Dim, DimExpr, symbols
from braze.expr.fold import fold
from braze.expr.scalar import Expr

# lowest and highest value; None where nothing is known
Range = tuple[Union[Dim, None], Union[Dim, None]]
UNKNOWN: Range = (None, None)
# any size a tensor of this world can have
_LARGEST = 1 << 48


def at_most(a: Dim, b: Dim, positive: frozenset[str] = frozenset()) -> bool:
    """True when a <= b for all sizes: symbols are never negative, those in `positive` not zero."""
    rest = b - a
    if isinstance(rest, int):
        return rest >= 0
    limits = {s: (1 if s in positive else 0, _LARGEST) for s in symbols(rest)}
    return bounds(rest, limits)[0] >= 0


def positive_symbols(extents: Mapping[int, Dim]) -> frozenset[str]:
    """Symbols that are not zero inside loops with these extents (else they would not run)."""
    found: set[str] = set()
    for size in extents.values():
        if isinstance(size, DimExpr) and len(size.terms) == 1:
            monomial, _ = size.terms[0]
            found.update(str(atom.args[0]) for atom in monomial if atom.kind == "sym")
    return frozenset(found)


def index_range(e: Expr, extents: Mapping[int, Dim]) -> Range:
    """An interval that holds every value of the int64 expression `e` inside its loops.

    extents: number of steps of each axis (axis values are 0 .. extent - 1).
    """

    def leaf(x: Expr) -> Range:
        if x.op == "axis" and x.number in extents:
            return 0, extents[x.number] - 1
        if x.op == "dim" or (x.op == "const" and type(x.value) is int):
            return x.size, x.size
        return UNKNOWN

    return fold(e, _Intervals(positive_symbols(extents)), leaf)


def in_range(index: Sequence[Expr], shape: Sequence[Dim], extents: Mapping[int, Dim]) -> bool:
    """True when every index is proven to lie in its tensor."""
    positive = positive_symbols(extents)
    for e, size in zip(index, shape, strict=True):
        low, high = index_range(e, extents)
        if low is None or high is None:
            return False
        if not at_most(0, low, positive) or not at_most(high, size - 1, positive):
            return False
    return True


class _Intervals(Mapping[str, Callable[..., Range]]):
    """The interval meaning of each operation; those without one are unknown."""

    def __init__(self, positive: frozenset[str]) -> None:
        self._positive = positive

    def __getitem__(self, op: str) -> Callable[..., Range]:
        return getattr(self, f"_{op}", self._unknown)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def _below(self, a: Dim, b: Dim) -> bool:
        return at_most(a, b, self._positive)

    def _unknown(self, *_: object) -> Range:
        return UNKNOWN

    def _add(self, _: Expr, a: Range, b: Range) -> Range:
        return (
            None if a[0] is None or b[0] is None else a[0] + b[0],
            None if a[1] is None or b[1] is None else a[1] + b[1],
        )

    def _neg(self, _: Expr, a: Range) -> Range:
        return (None if a[1] is None else a[1] * -1, None if a[0] is None else a[0] * -1)

    def _sub(self, e: Expr, a: Range, b: Range) -> Range:
        return self._add(e, a, self._neg(e, b))

    def _mul(self, _: Expr, a: Range, b: Range) -> Range:
        if a[0] is not None and a[0] == a[1]:
            a, b = b, a
        factor = b[0]
        if factor is None or factor != b[1]:
            return UNKNOWN
        low, high = (None if x is None else x * factor for x in a)
        if self._below(0, factor):
            return low, high
        return (high, low) if self._below(factor, 0) else UNKNOWN

    def _divisor(self, b: Range) -> Dim | None:
        """The divisor when it is one known positive size."""
        d = b[0]
        return d if d is not None and d == b[1] and self._below(1, d) else None

    def _floordiv(self, _: Expr, a: Range, b: Range) -> Range:
        d = self._divisor(b)
        if d is None:
            return UNKNOWN
        return (None if a[0] is None else a[0] // d, None if a[1] is None else a[1] // d)

    def _div(self, e: Expr, a: Range, b: Range) -> Range:
        # division toward zero is floordiv where nothing is negative
        return self._floordiv(e, a, b) if a[0] is not None and self._below(0, a[0]) else UNKNOWN

    def _mod(self, _: Expr, a: Range, b: Range) -> Range:
        d = self._divisor(b)
        if d is None:
            return UNKNOWN
        low, high = a
        known = low is not None and high is not None and self._below(0, low)
        return a if known and high is not None and self._below(high, d - 1) else (0, d - 1)

    def _smaller(self, a: Dim | None, b: Dim | None) -> Dim | None:
        """The lower of two ends, when they can be compared."""
        if a is None or b is None:
            return None
        return a if self._below(a, b) else b if self._below(b, a) else None

    def _larger(self, a: Dim | None, b: Dim | None) -> Dim | None:
        if a is None or b is None:
            return None
        return b if self._below(a, b) else a if self._below(b, a) else None

    def _min(self, _: Expr, a: Range, b: Range) -> Range:
        high = self._smaller(a[1], b[1])
        if high is None:
            # the minimum is below either end: any known one will do
            high = a[1] if a[1] is not None else b[1]
        return self._smaller(a[0], b[0]), high

    def _max(self, _: Expr, a: Range, b: Range) -> Range:
        low = self._larger(a[0], b[0])
        if low is None:
            low = a[0] if a[0] is not None else b[0]
        return low, self._larger(a[1], b[1])

    def _select(self, _: Expr, __: Range, a: Range, b: Range) -> Range:
        return self._smaller(a[0], b[0]), self._larger(a[1], b[1])
