"""What the order of additions decides, and what taps beside the image do, where terms are huge,
infinite or NaN."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from braze.ir.graph import Graph, Node, Value
from braze.ops.base import Op
from braze.ops.lowering import Pointwise, View
from braze.ops.pool.pool import AveragePool
from braze.ops.product.conv import Conv
from braze.ops.product.conv_transpose import ConvTranspose
from braze.ops.product.einsum import Einsum
from braze.ops.product.matmul import MatMul
from braze.ops.recurrent.recurrence import Recurrence
from braze.ops.reduce.reduce import Reduce
from braze.ops.reduce.scan import Cumulative

Array = np.ndarray[Any, Any]
Given = Sequence[Array | None]
# Everything that is not float64 is summed in float32; a single term at the top does not overflow.
# Sums of float64 are looked at in numbers that are scaled down by a power of two, as their own
# overflow would hide what they are.
TOP, TOP_OF_DOUBLES, TOP_OF_HALVES = 3.4028235e38, 1.7976931348623157e308, 65504.0
SCALE_OF_DOUBLES = 2.0**-1030
FACTOR_BEHIND = 8.0
# A transformed convolution's own sums are larger than those of its terms (docs/semantics.md).
TRANSFORMED = 1024.0
# How often nothing of a sum is drawn: behind one that all overflows nothing else would be seen
STAYS = 0.4


def drawn_sums(
    node: Node, op: Op, values: Mapping[Value, Array], rng: np.random.Generator | None,
    factor: float,
) -> dict[Value, Array]:  # fmt: skip
    """The result of a linear op in which elements that some order of additions makes infinite or
    NaN are drawn from what such orders give; empty for all other ops. op: that of the node, in
    float64; factor: the largest behind the sum that may be in its terms (a scale), 1 for none."""
    v = node.outputs[0]
    if not v.dtype.is_float:
        return {}
    given = [None if i is None else values[i] for i in node.inputs]
    if isinstance(op, Recurrence):
        return _grown(node, op, given, values, rng)
    if rng is None:  # this run has taps beside the image left out, all of them
        return {v: _left_out(op, *given[:2])} if _has_odd_taps(op, given) else {}
    if isinstance(op, Reduce) and op.kind == "prod":
        return {v: _orders_of_factors(op, given, values[v], v.dtype.bits == 64, rng)}
    if getattr(op, "op", "") in ("add", "sub"):
        top = TOP_OF_DOUBLES if v.dtype.bits == 64 else TOP
        return {v: _scaled_terms(op, given, values[v], top / factor, rng)}
    if not _is_sum(op):
        return _inside(node, op, given, values[v], rng)
    # orders of all sums are drawn on their own: this one may overflow nowhere, and where it does so
    # a factor behind it need not be in its terms
    if rng.random() < STAYS:
        return {}
    factor = factor if rng.random() < 0.5 else 1.0
    top = TOP_OF_DOUBLES if v.dtype.bits == 64 else TOP
    double = v.dtype.bits == 64
    if isinstance(op, Conv) and v.dtype.bits == 32:
        top /= TRANSFORMED
    found = _overflowed(op, given, values[v], top / (factor * _mean_of(op, given)), double, rng)
    if isinstance(op, (Conv, ConvTranspose)):
        found = _beside(op, given, found, rng)
    return {} if found is values[v] else {v: found}


def _grown(
    node: Node, op: Recurrence, given: Given, values: Mapping[Value, Array],
    rng: np.random.Generator | None,
) -> dict[Value, Array]:  # fmt: skip
    """What a state that has left the range of its type is, and all that comes of it: infinite, NaN
    where two such meet in a gate, or 0 where it is divided by one. What huge weights reach is open
    too, as a sum of a gate may overflow in one order alone."""
    (v,) = node.outputs
    top = {"float64": TOP_OF_DOUBLES, "float16": TOP_OF_HALVES}.get(v.dtype.name, TOP)
    if rng is None:
        return {}
    finite = all(a is None or np.isfinite(a).all() for a in given)
    if not finite or (largest_state(op, given) <= top).all():
        return _inside(node, op, given, values[v], rng)
    if rng.random() < STAYS:
        return {}
    odd = rng.choice([np.nan, np.inf, -np.inf, 0.0], values[v].shape)
    return {v: np.where(rng.random(odd.shape) < 0.5, odd, values[v])}


def largest_state(op: Recurrence, given: Given) -> Array:
    """The largest number that each unit of a cell holds in any step and row, 1 at least."""
    (states,) = replace(op, sequence=True, finals=2 if op.cell == "lstm" else 1).reference(*given)
    given_first = [np.abs(a) for a in given[4:6] if a is not None]
    first = [a.max((1,), keepdims=True, initial=0.0)[None] for a in given_first]
    seen = [np.abs(states).max((0, 2), keepdims=True, initial=1.0), *first]
    return np.asarray(np.maximum.reduce(seen))


def largest_factor(graph: Graph) -> float:
    """The largest finite number that a constant multiplies by, or that one over a divisor is."""
    found = [1.0]
    for n in graph.nodes:
        kind = getattr(n.op, "op", "")
        arrays = [graph.constant(v) for v in n.inputs] if kind in ("mul", "div") else []
        for a in (np.abs(a.astype(np.float64)) for a in arrays if a is not None):
            some = a[np.isfinite(a) & (a > 0)]
            if some.size:
                found.append(float(some.max() if kind == "mul" else 1 / some.min()))
    return max(found)


def _mean_of(op: Op, given: Given) -> float:
    """How many numbers a mean divides the sum by, 1 for a sum."""
    x = given[0]
    assert x is not None
    if isinstance(op, Reduce) and op.kind == "mean":
        return float(max(1, math.prod(x.shape[a] for a in op.axes)))
    return float(math.prod(op.kernel)) if isinstance(op, AveragePool) else 1.0


def _parts(op: Op, given: Given) -> tuple[Array, Array]:
    """The sums of the positive and of the negative terms, both as they are above 0. Neither is a
    difference of sums, in which the smaller one would be lost."""
    up = [None if a is None else np.maximum(a, 0.0) for a in given]
    down = [None if a is None else np.maximum(-a, 0.0) for a in given]
    if len(given) == 1:
        return op.reference(*up)[0], op.reference(*down)[0]
    if len(given) == 2:
        plus = op.reference(*up)[0] + op.reference(*down)[0]
        return plus, op.reference(up[0], down[1])[0] + op.reference(down[0], up[1])[0]
    part = op.reference(*given)[0]
    whole = op.reference(*(None if a is None else np.abs(a) for a in given))[0]
    return (whole + part) / 2, (whole - part) / 2


def _overflowed(
    op: Op, given: Given, found: Array, top: float, double: bool, rng: np.random.Generator
) -> Array:
    """With P the sum of the positive terms and N that of the negative ones, a partial sum lies
    between -N and P. So nothing overflows where both are below the top; P alone above it may give
    infinity, N alone negative infinity, and both together NaN too."""
    scale = SCALE_OF_DOUBLES if double else 1.0
    finite = [None if a is None else np.nan_to_num(a, nan=0, posinf=0, neginf=0) for a in given]
    largest = max((float(np.abs(a).max()) for a in finite if a is not None and a.size), default=0.0)
    # the product of two such with any number of terms is below the top
    if top > 1 and largest < top**0.4:
        return found
    # linear in the second operand alone where there is one, in the sum of all others too
    small = [a if a is None or k == 1 else a * scale for k, a in enumerate(finite)]
    with np.errstate(all="ignore"):
        plus, minus = (p > top * scale for p in _parts(op, small))
    if not (plus | minus).any():
        return found
    # what an infinity among the terms made of it, an overflow of the other sign makes NaN
    both = (plus & minus) | ~np.isfinite(found)
    # in some runs all alike, as sums of like terms are
    choice = rng.integers(4, size=found.shape if rng.random() < 0.6 else (1,) * found.ndim)
    drawn = np.where((choice == 1) & plus, np.inf, found)
    if double:  # the float64 that is looked at has overflowed itself
        small = [a if a is None or k == 1 else a * scale for k, a in enumerate(given)]
        clean = op.reference(*small)[0]
        drawn = np.where((choice == 0) & ~np.isfinite(clean), clean, drawn)
        # another order may not overflow, and neither may a sum with a factor below 1 in its terms
        lost = (choice == 0) & np.isfinite(clean) & ~np.isfinite(found)
        part = op.reference(*small)[0]
        whole = np.where(np.abs(part) < top * scale, part / scale, np.nan)
        if top < TOP_OF_DOUBLES:
            anything = TOP_OF_DOUBLES * rng.uniform(-1.0, 1.0, found.shape)
            whole = np.where(np.isnan(whole), anything, whole)
        drawn = np.where(lost, whole, drawn)
    drawn = np.where((choice == 2) & minus, -np.inf, drawn)
    drawn = np.where((choice == 3) & both, np.nan, drawn)
    return np.where(plus | minus, drawn, found)


def _scaled_terms(
    op: Op, given: Given, found: Array, top: float, rng: np.random.Generator
) -> Array:
    """A factor behind an addition may be in both its terms, as in the weights and the bias of a
    convolution, and make each of them infinite on its own."""
    terms = [a for a in given if a is not None]
    huge = [np.isfinite(a) & (np.abs(a) > top) for a in terms]
    if not any(h.any() for h in huge) or rng.random() < STAYS:
        return found
    wide = [np.where(h, np.copysign(np.inf, a), a) for a, h in zip(terms, huge, strict=True)]
    return op.reference(*wide)[0]


def _orders_of_factors(
    op: Reduce, given: Given, found: Array, double: bool, rng: np.random.Generator
) -> Array:
    """Factors above 1 may overflow before those below it come, and those vanish before these come;
    then an infinity times what has vanished is NaN. Zeros have vanished from the start."""
    x = given[0]
    assert x is not None
    with np.errstate(divide="ignore"):
        powers = np.log2(np.abs(x))
    up, down = (p.sum(op.axes).reshape(found.shape) for p in
                (np.maximum(powers, 0.0), np.minimum(powers, 0.0)))  # fmt: skip
    bits, least = (1024, -1022) if double else (128, -126)
    grows, fades = up >= bits - 1, down <= least + 1
    choice = rng.integers(5, size=found.shape)
    drawn = np.where((choice == 1) & grows, np.copysign(np.inf, found), found)
    drawn = np.where((choice == 2) & grows & fades, -np.copysign(np.inf, found), drawn)
    drawn = np.where((choice == 3) & fades, 0.0, drawn)
    return np.where((choice == 4) & grows & fades, np.nan, drawn)


def _beside(
    op: Conv | ConvTranspose, given: Given, found: Array, rng: np.random.Generator
) -> Array:
    """Taps of infinite or NaN weights outside of the image: they are left out, or zero times the
    weight is NaN (docs/semantics.md)."""
    if not _has_odd_taps(op, given):
        return found
    x, w = given[0], given[1]
    assert x is not None and w is not None
    odd = (~np.isfinite(w)).astype(np.float64)
    inside = op.reference(np.ones_like(x), odd)[0]
    if isinstance(op, Conv):
        total = odd.sum(tuple(range(1, odd.ndim)))
    else:
        parts = odd.reshape(op.groups, w.shape[0] // op.groups, *w.shape[1:])
        total = parts.sum((1, *range(3, parts.ndim))).reshape(-1)
    total = total.reshape(-1) if op.layout == "NHWC" else total.reshape(-1, *[1] * (w.ndim - 2))
    outside = inside < total - 0.5
    if not outside.any():
        return found
    left_out = _left_out(op, x, w)
    huge = max(float(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in (x, w)) > TOP**0.4
    # in some runs all alike, as one kernel has it
    size = found.shape if rng.random() < 0.5 else (1,) * found.ndim
    choice = rng.integers(4 if huge else 2, size=size)
    drawn = np.where(choice == 1, left_out, np.nan)
    drawn = np.where(choice > 1, rng.choice([np.inf, -np.inf], found.shape), drawn)
    return np.where(outside, drawn, found)


def _has_odd_taps(op: Op, given: Given) -> bool:
    return isinstance(op, (Conv, ConvTranspose)) and not np.isfinite(given[1]).all()  # type: ignore[arg-type]


def _left_out(op: Op, x: Array | None, w: Array | None) -> Array:
    """What the taps inside the image give, those of infinite or NaN weights among them."""
    assert x is not None and w is not None

    def met(data: Array, weight: Array) -> Array:
        return op.reference(data.astype(np.float64), weight.astype(np.float64))[0] > 0.5

    infinite, weighs = np.isinf(x), np.isinf(w)

    def has(weight: Array) -> Array:
        """Where an infinite product has the sign that it has with `weight`."""
        up, down = (x > 0, weight > 0), (x < 0, weight < 0)
        found = [met(a & infinite, b) | met(a, b & weighs) for a, b in (up, down)]
        return np.asarray(found[0] | found[1])

    odd = met((x == 0) | np.isnan(x), weighs) | met(infinite | np.isnan(x), w == 0)
    odd |= met(np.ones_like(x), np.isnan(w)) | met(np.isnan(x), np.ones_like(w))
    total = op.reference(*(np.where(np.isfinite(a), a, 0.0) for a in (x, w)))[0]
    total = total + np.where(has(w), np.inf, 0.0) - np.where(has(-w), np.inf, 0.0)
    return np.where(odd, np.nan, total)


def _inside(
    node: Node, op: Op, given: Given, found: Array, rng: np.random.Generator
) -> dict[Value, Array]:
    """Squares, exponentials and sums inside of an op may overflow where its result does not, or the
    other way; what is divided by them is 0. What huge numbers reach is what NaN in their places
    would."""
    top = (TOP_OF_DOUBLES if node.outputs[0].dtype.bits == 64 else TOP) ** 0.4
    hit = [None if a is None else a.dtype.kind == "f" and (np.abs(a) > top) & np.isfinite(a)
           for a in given]  # fmt: skip
    if not any(h is not None and np.any(h) for h in hit) or rng.random() < STAYS:
        return {}
    types = [None if i is None else i.type for i in node.inputs]
    if isinstance(node.op.lower(types, [o.type for o in node.outputs]), (Pointwise, View)):
        return {}
    odd = [a if a is None or h is None or not np.any(h) else np.where(h, np.nan, a)
           for a, h in zip(given, hit, strict=True)]  # fmt: skip
    with np.errstate(all="ignore"):
        reached = np.isnan(op.reference(*odd)[0]) & ~np.isnan(found)
    kinds = np.array([np.nan, np.inf, -np.inf, 0.0])[rng.integers(4, size=found.shape)]
    share = rng.choice([0.05, 0.5])  # few of many, too: what picks the largest sees which
    drawn = np.where(rng.random(found.shape) < share, kinds, found)
    return {node.outputs[0]: np.where(reached, drawn, found)}


def _is_sum(op: Op) -> bool:
    if isinstance(op, Reduce):
        return op.kind in ("sum", "mean")
    if isinstance(op, Cumulative):
        return op.kind == "sum"
    return isinstance(op, (MatMul, Conv, ConvTranspose, Einsum, AveragePool))
