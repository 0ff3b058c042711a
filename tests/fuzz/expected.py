"""What the outputs of a graph must be: exact values, and what roundings can make of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from braze.core.dtypes import DType
from braze.core.errors import ExecutionError
from braze.ir.graph import Graph
from braze.ops.evaluator import evaluate
from tests.fuzz.bounds import FACTOR, ROUNDOFF, RUNS, Perturbed, Run, has_movable_factor

Array = np.ndarray[Any, Any]
MANY = 10  # roundings of a float
FINITE, NAN, PLUS, MINUS = 1, 2, 4, 8  # kinds of floats


def kinds(a: Array) -> Array:
    """The kind of each float."""
    found = np.where(np.isnan(a), NAN, FINITE)
    return np.where(np.isinf(a), np.where(a > 0, PLUS, MINUS), found).astype(np.uint8)


@dataclass
class Expected:
    """One output. exact: in float64; spread: what roundings do to it; sure: only one result is
    right; may: the kinds that floats may be, as a sum; others: further results that are right, each
    within the same bound (they are finite where the exact one is too); open_axes: those whose size
    roundings decide, as that of the boxes that are kept."""

    dtype: DType
    exact: Array
    spread: Array
    sure: Array
    may: Array | None = None
    others: list[Array] = field(default_factory=list)
    open_axes: frozenset[int] = frozenset()

    def of_any_kind(self) -> Expected:
        """The same, and infinite or NaN anywhere."""
        if not self.dtype.is_float:
            return self
        may = kinds(self.exact) if self.may is None else self.may
        return replace(self, may=may | (NAN | PLUS | MINUS), sure=np.zeros(self.exact.shape, bool))

    def bound(self) -> Array:
        """The largest error allowed, for each element."""
        return self._bound(self.exact)

    def _bound(self, center: Array) -> Array:
        if not self.dtype.is_float:
            return np.zeros(self.exact.shape)
        unit, tiny, _ = ROUNDOFF[self.dtype.name]
        with np.errstate(all="ignore"):
            return FACTOR * (self.spread + tiny) + unit * np.abs(center)

    def error(self, got: Array) -> tuple[float, str]:
        """The largest error as a multiple of its bound (inf: of another kind), and where it is."""
        if got.shape != self.exact.shape:
            off = _unlike(got, self.exact)
            right = got.ndim == self.exact.ndim and off <= self.open_axes
            return 0.0 if right else math.inf, f"shape {got.shape} for {self.exact.shape}"
        if not got.size:
            return 0.0, ""
        y, want = as_float64(got, self.dtype), self.exact
        if not self.dtype.is_float:
            wrong = (got != want) & self.sure
            return (math.inf if wrong.any() else 0.0), _place(wrong, got, want)
        allowed = kinds(want) if self.may is None else self.may
        odd = (kinds(y) & allowed) == 0
        if odd.any():
            return math.inf, _place(odd, y, want)
        ratio = self._ratio(y, want)
        for other in self.others:
            ratio = np.fmin(ratio, self._ratio(y, other))
        ratio = np.nan_to_num(ratio, nan=0.0, posinf=np.inf)
        worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        mark = np.zeros(ratio.shape, bool)
        mark[worst] = True
        return float(ratio[worst]), _place(mark, y, want, int((ratio > 1).sum()))

    def _ratio(self, y: Array, center: Array) -> Array:
        """Error by bound; NaN where there is nothing to compare."""
        both = np.isfinite(y) & np.isfinite(center)
        with np.errstate(all="ignore"):
            return np.where(both, np.abs(y - center) / self._bound(center), np.nan)


def _unlike(a: Array, b: Array) -> frozenset[int]:
    """The axes whose sizes differ in two arrays of one rank."""
    pairs = enumerate(zip(a.shape, b.shape, strict=False))
    return frozenset(axis for axis, (one, other) in pairs if one != other)


def _place(wrong: Array, got: Array, want: Array, count: int | None = None) -> str:
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    many = int(wrong.sum()) if count is None else count
    return f"{many} of {wrong.size} elements; at {list(at)}: {got[at]!r} for {want[at]!r}"


def as_float64(a: Array, dtype: DType) -> Array:
    """What a run returns, as float64."""
    return a.astype(np.float64) if dtype.is_float else a


def expected(
    graph: Graph, feed: Mapping[str, Array], runs: int = RUNS, seed: int = 0, edges: bool = False
) -> dict[str, Expected]:
    """Exact outputs of an imported graph and what `runs` ways of rounding make of them.

    feed: stored arrays by input name; edges: data holds numbers at the edges of their types.
    Raises what the evaluator raises for a feed that does not fit; a perturbed run that fails (an
    index that a rounding moves out of range) leaves all unsure.
    """
    with np.errstate(all="ignore"):
        exact = Run(graph).evaluate(feed, frozenset())
        typed = evaluate(graph, feed) if edges else {}
        others: list[Mapping[str, Array]] = []
        try:
            others.append(Perturbed(graph, None).evaluate(feed, frozenset()))
            rng = np.random.default_rng(seed)
            for _ in range(runs):
                others.append(Perturbed(graph, rng).evaluate(feed, frozenset()))
        except ExecutionError:
            return {name: unsure(v.dtype, exact[name]) for name, v in graph.outputs}
        wide = not typed or _has_half(graph) or has_movable_factor(graph)
        return {
            name: _combine(
                v.dtype, exact[name], [o[name] for o in others],
                as_float64(typed[name], v.dtype) if typed else None, wide,
            )
            for name, v in graph.outputs
        }  # fmt: skip


def _has_half(graph: Graph) -> bool:
    values = {*graph.inputs, *graph.constants, *graph.producer}
    return any(v.dtype.is_float and v.dtype.bits < 32 for v in values)


def unsure(dtype: DType, exact: Array) -> Expected:
    """What is open everywhere."""
    nowhere = np.zeros(exact.shape, bool)
    any_kind = np.full(exact.shape, FINITE | NAN | PLUS | MINUS, np.uint8)
    return Expected(dtype, exact, np.full(exact.shape, np.inf), nowhere, any_kind)


def _combine(
    dtype: DType, exact: Array, others: Sequence[Array], typed: Array | None, wide: bool
) -> Expected:
    """wide: what overflows in single steps may not do so in kernels, as in float64."""
    axes = [_unlike(o, exact) for o in [*others, *([] if typed is None else [typed])]]
    if open_axes := frozenset[int]().union(*axes):
        return replace(unsure(dtype, exact), open_axes=open_axes)
    if not dtype.is_float:
        sure = np.ones(exact.shape, bool)
        # in steps of the types themselves something may overflow that does not in float64
        for o in [*others, *([] if typed is None else [typed])]:
            sure &= o == exact
        return Expected(dtype, exact, np.zeros(exact.shape), sure)
    # a result that some run gives, where the exact one is not finite and need not be the right one
    center = exact
    for o in others:
        center = np.where(np.isfinite(center), center, o)
    spread, may = np.zeros(exact.shape), np.zeros(exact.shape, np.uint8)
    for o in others:
        may |= kinds(o)
        with np.errstate(all="ignore"):
            moved = np.where(np.isfinite(center) & np.isfinite(o), np.abs(o - center), 0.0)
        spread = np.maximum(spread, moved)
    # what nearly all roundings make infinite or NaN, like a root of 0, no run tells the size of
    few = np.sum([np.isfinite(o) for o in others[1:]], axis=0) < min(2, len(others) - 1)
    spread = np.where(few & np.isfinite(others[0]), np.inf, spread)
    if wide:  # what overflows in all of them is known to some roundings all the same
        some = MANY * ROUNDOFF[dtype.name][0] * np.abs(exact)
        spread = np.where(few & np.isfinite(exact), np.maximum(spread, some), spread)
    if dtype.bits == 64:  # the float64 that is exact has overflowed itself
        spread = np.where(np.isfinite(exact), spread, np.inf)
    if typed is not None:
        may |= kinds(typed)
        # infinities of both signs met on the way: which of them there are, orders decide
        may[np.isnan(typed) & np.isfinite(exact)] |= NAN | PLUS | MINUS
    if wide:
        may |= kinds(exact) | kinds(exact.astype(dtype.numpy).astype(np.float64))
    sure = (may & (may - 1)) == 0
    return Expected(dtype, exact, spread, sure, may, [center, *([] if typed is None else [typed])])
