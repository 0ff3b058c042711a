"""Makers of ops of the domain com.microsoft."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.make_pointwise import FLOATS
from tests.fuzz.sketch import Ref, Sketch, static

DOMAIN = "com.microsoft."


def plain(op: str) -> Callable[[Sketch, Ref], Ref]:
    """An op of one float input and no attributes."""

    def make(s: Sketch, x: Ref) -> Ref:
        s.need(x.dtype.name in FLOATS)
        return s.add1(DOMAIN + op, x)

    return make


def bias_of(s: Sketch, x: Ref) -> Ref:
    """A vector along the last axis, constant or computed."""
    s.need(x.rank > 0 and x.dtype.is_float)
    size = x.shape[-1]
    s.need(static(size))
    make = s.input if s.r.random() < 0.3 else s.constant
    return make(x.dtype.name, (size,))


def biased(op: str) -> Callable[[Sketch, Ref], Ref]:
    """An op of x and a bias along its last axis."""

    def make(s: Sketch, x: Ref) -> Ref:
        return s.add1(DOMAIN + op, x, bias_of(s, x))

    return make


def fast_gelu(s: Sketch, x: Ref) -> Ref:
    """With and without a bias."""
    s.need(x.dtype.name in FLOATS)
    return s.add1(DOMAIN + "FastGelu", x, bias_of(s, x) if s.r.random() < 0.5 else None)


def quick_gelu(s: Sketch, x: Ref) -> Ref:
    """With alphas of both signs."""
    s.need(x.dtype.name in FLOATS)
    return s.add1(DOMAIN + "QuickGelu", x, alpha=s.r.choice([1.702, 1.0, -0.5]))
