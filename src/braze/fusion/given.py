"""Indexes read from tensors whose content turned out to be known: they stay checked.

Code generation checks places that depend on data. Where a tensor of indexes is a constant of one
element, or made of sizes, fusion puts what it holds in place of the load, and the place would seem
to be one that an op computed in range. So it is marked (`given`), unless it is proven to be inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from braze.core.bounds import bounds
from braze.core.dims import Dim, Interval
from braze.expr.bounds import in_range
from braze.expr.fold import leaves, reachable, rewrite
from braze.expr.guards import depends_on_data
from braze.expr.index import size_of
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec, map_nest
from braze.expr.scalar import Expr
from braze.expr.simplify import simplify


def index_slots(kernel: LoopKernel) -> frozenset[int]:
    """The operands whose elements decide where others are accessed."""
    found: set[int] = set()

    def look(e: Expr) -> Expr:
        for one in leaves(e, "load"):
            for place in one.args:
                found.update(x.slot for x in leaves(place, "load"))
        return e

    for nest in kernel.nests:
        map_nest(nest, look)
        for store in nest.stores:
            for place in store.index:
                found.update(x.slot for x in leaves(place, "load"))
    return frozenset(found)


def settle(kernel: LoopKernel, env: Mapping[str, Interval]) -> LoopKernel:
    """`kernel` without the marks of what is surely inside; env: bounds of symbols."""
    tensors = (*kernel.inputs, *kernel.outputs)

    def change(e: Expr) -> Expr | None:
        if e.op != "load" or not any(_is_marked(i) for i in e.args):
            return None
        return Expr("load", _settled(e.args, tensors[e.slot], env), e.dtype, e.attr)

    def stored(store: Store) -> Store:
        spec = kernel.outputs[store.slot]
        return replace(store, index=_settled(store.index, spec, env))

    def nest_of(nest: LoopNest) -> LoopNest:
        nest = map_nest(nest, lambda e: rewrite(e, change))
        return replace(nest, stores=tuple(stored(s) for s in nest.stores))

    return replace(kernel, nests=tuple(nest_of(n) for n in kernel.nests))


def _is_marked(e: Expr) -> bool:
    return any(x.op == "given" for x in reachable(e))


def _settled(
    index: tuple[Expr, ...], spec: TensorSpec, env: Mapping[str, Interval]
) -> tuple[Expr, ...]:
    return tuple(
        _one(i, size, env) if _is_marked(i) else i
        for i, size in zip(index, spec.shape, strict=True)
    )


def _one(index: Expr, size: Dim, env: Mapping[str, Interval]) -> Expr:
    plain = simplify(rewrite(index, lambda e: e.args[0] if e.op == "given" else None), {})
    if depends_on_data(plain):
        return plain  # checked as it is
    return plain if in_range((plain,), (size,), {}) or _inside(plain, size, env) else index


def _inside(e: Expr, size: Dim, env: Mapping[str, Interval]) -> bool:
    """Whether a place that is a size lies in 0 .. size - 1 for all sizes that may be."""
    place = size_of(e)
    if place is None:
        return False
    return bounds(place, env)[0] >= 0 and bounds(size - place, env)[0] >= 1
