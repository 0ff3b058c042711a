"""Makers of steps whose indexes and bounds are made of sizes, as exporters write positions: in
range for all sizes, or out of range for some of them."""

from __future__ import annotations

from tests.fuzz.case import Fill
from tests.fuzz.make_views import size
from tests.fuzz.sketch import Ref, Sketch, static


def _length(s: Sketch, x: Ref, axis: int) -> Ref:
    """The size of an axis as a vector of one element."""
    return s.add1("Gather", s.add1("Shape", x), s.ints(axis), axis=0)


def _table(s: Sketch, x: Ref, least: int) -> Ref:
    """A vector to look up in: just long enough for the sample's sizes, or longer."""
    return s.constant(x.dtype.name, (least + s.r.choice([0, 0, 1, 4]),), Fill())


def last_position(s: Sketch, x: Ref) -> Ref:
    """x plus the entry of a table at size - 1, or at -size."""
    s.need(x.rank >= 1 and x.dtype.name in ("float32", "float16") and x.sample.size > 0)
    k = s.r.randrange(x.rank)
    n = _length(s, x, k)
    place = s.add1("Neg", n) if s.r.random() < 0.3 else s.add1("Sub", n, s.ints(1))
    return s.add1("Add", x, s.add1("Gather", _table(s, x, x.sample.shape[k]), place, axis=0))


def positions(s: Sketch, x: Ref) -> Ref:
    """x plus the entries of a table at 0 .. size - 1 of the last axis."""
    s.need(x.rank >= 1 and x.dtype.name in ("float32", "float16") and x.sample.size > 0)
    whole = s.add1("Shape", x)
    n = s.add1("Gather", whole, s.constant("int64", (), values=[x.rank - 1]), axis=0)
    zero, one = (s.constant("int64", (), values=[v]) for v in (0, 1))
    places = s.add1("Range", zero, n, one)
    table = _table(s, x, x.sample.shape[-1])
    return s.add1("Add", x, s.add1("Gather", table, places, axis=0))


def overwritten(s: Sketch, x: Ref) -> Ref:
    """The last row of a fixed number of rows is what another size counts."""
    s.need(x.rank == 2 and static(x.shape[1]) and size(x, 1) > 0 and x.sample.shape[0] > 0)
    s.need(x.dtype.name in ("float32", "int64", "float64"))
    base = s.constant(x.dtype.name, (x.sample.shape[0] + s.r.choice([0, 2]), size(x, 1)))
    at = s.add1("Unsqueeze", s.add1("Sub", _length(s, x, 0), s.ints(1)), s.ints(0))
    row = s.constant(x.dtype.name, (1, size(x, 1)))
    return s.add1("ScatterND", base, at, row)


def all_but_last(s: Sketch, x: Ref) -> Ref:
    """A slice that ends at a size less something, which may be nothing."""
    s.need(x.rank >= 1 and x.sample.size > 0)
    k = s.r.randrange(x.rank)
    end = s.add1("Sub", _length(s, x, k), s.ints(s.r.choice([0, 1, 2])))
    return s.add1("Slice", x, s.ints(s.r.choice([0, 0, 1])), end, s.ints(k))
