"""Makers of ops that draw numbers. All have a seed: without one a node's numbers are its name's,
and one that is moved into a branch has another name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.fuzz.make_pointwise import FLOATS, floating
from tests.fuzz.sketch import Ref, Sketch, static


def _spread(op: str, s: Sketch) -> dict[str, Any]:
    """A range of uniform numbers, or mean and deviation of normal ones."""
    if "Uniform" in op:
        return {"low": 0.5, "high": 1.5}
    return {"mean": s.r.choice([0.0, 1.0]), "scale": s.r.choice([1.0, 0.25])}


def of_sizes(op: str) -> Callable[[Sketch, Ref], Ref]:
    """x times drawn numbers of its sizes."""

    def make(s: Sketch, x: Ref) -> Ref:
        s.need(all(static(d) for d in x.shape) and x.dtype.name == "float32")
        shape = [int(d) for d in x.shape]
        return s.add1("Mul", x, s.add1(op, shape=shape, seed=7.0, **_spread(op, s)))

    return make


def like(op: str) -> Callable[[Sketch, Ref], Ref]:
    """x plus drawn numbers."""

    def make(s: Sketch, x: Ref) -> Ref:
        s.need(x.dtype.name in FLOATS)
        return s.add1("Add", x, s.add1(op, x, seed=s.r.choice([5.0, 3.0]), **_spread(op, s)))

    return make


def bernoulli(s: Sketch, x: Ref) -> Ref:
    """By probabilities made of x, as numbers of its type or of another."""
    s.need(x.dtype.name in FLOATS)
    kind = s.r.choice([{}, {"dtype": 7}, {"dtype": 9}])
    return s.add1("Bernoulli", s.add1("Sigmoid", x), seed=s.r.choice([5.0, 2.0]), **kind)


def multinomial(s: Sketch, x: Ref) -> Ref:
    """Classes by the softmax of a row."""
    floating(s, x)
    s.need(x.rank == 2 and x.dtype.name != "bfloat16" and all(d != 0 for d in x.shape))
    return s.add1("Multinomial", x, sample_size=s.r.choice([1, 4, 9]), seed=3.0,
                  dtype=s.r.choice([6, 7]))  # fmt: skip


def dropout_in_training(s: Sketch, x: Ref) -> Ref:
    """With the usual ratio or another; the mask stays available."""
    s.need(s.opset >= 13 and x.dtype.name in FLOATS)
    ratio = s.scalar("float32", s.r.choice([0.25, 0.75])) if s.r.random() < 0.6 else None
    training = s.constant("bool", (), values=[True])
    return s.add("Dropout", x, ratio, training, outputs=s.r.choice([1, 2]), seed=9)[0]
