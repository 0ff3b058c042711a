"""Loop nests brought to a form that is easy to vectorise.

Indexes are simplified; axes that reshapes cut into quotient and remainder are split; accesses that
are linear in the axes become flat (one index into the tensor as a vector); neighbouring axes that
every access walks through evenly are merged; axes of one step disappear. Values do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from braze.core.dims import Dim, exact_div, product
from braze.core.dtypes import I64
from braze.expr.fold import rewrite
from braze.expr.guards import topological
from braze.expr.loops import LoopKernel, LoopNest, TensorSpec, map_nest
from braze.expr.scalar import FUNCTIONS, PAIR_FUNCTIONS, Expr, axis, const, load
from braze.expr.simplify import Linear, linear, simplify

_MAX_SPLITS = 8
# operations worth a store and a load to do only once
COSTLY = FUNCTIONS | PAIR_FUNCTIONS


@dataclass(frozen=True)
class Form:
    """One nest: `nest` names tensors by `slots`, a list of (buffer, type and shape).

    Stores name slots too (not outputs). A buffer may have several slots: its own shape, and flat.
    """

    nest: LoopNest
    slots: tuple[tuple[int, TensorSpec], ...]

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        return tuple(spec for _, spec in self.slots)

    @property
    def extents(self) -> dict[int, Dim]:
        return dict(enumerate((*self.nest.outer, *self.nest.inner)))

    @property
    def roots(self) -> list[Expr]:
        return nest_roots(self.nest)


def nest_roots(nest: LoopNest) -> list[Expr]:
    """Every expression of a nest."""
    found = [r.expr for r in nest.reduces]
    for s in nest.stores:
        found.extend((*s.index, s.expr))
    return found


def form(kernel: LoopKernel, nest: LoopNest) -> Form:
    """The nest in easy form."""
    slots = tuple(enumerate((*kernel.inputs, *kernel.outputs)))
    shift = len(kernel.inputs)
    nest = replace(nest, stores=tuple(replace(s, slot=s.slot + shift) for s in nest.stores))
    nest = _keep_heavy(_simplified(nest), slots)
    for _ in range(_MAX_SPLITS):
        split = _find_split(nest)
        if split is None:
            break
        nest = _simplified(_split_axis(nest, *split))
    nest = _without_units(nest)
    return _merged(_flattened(Form(nest, slots)))


def _keep_heavy(nest: LoopNest, slots: Sequence[tuple[int, TensorSpec]]) -> LoopNest:
    """Compute what the last reduction sums up only once when it is costly and stored afterwards.

    Softmax sums exp(x - max) and stores exp(x - max) / sum: the reduction's pass leaves its terms
    in the output (over="pass"), and the last pass loads them from there.
    """
    if not nest.reduces or nest.serial or any(s.over != "all" for s in nest.stores):
        return nest
    term = nest.reduces[-1].expr
    if not any(e.op in COSTLY for e in topological([term])):
        return nest
    for number, s in enumerate(nest.stores):
        others = [o for o in nest.stores if o is not s and o.slot == s.slot]
        inside = term in topological([s.expr])
        if others or s.mode != "set" or not inside or slots[s.slot][1].dtype != term.dtype:
            continue
        last = _replace_term(s.expr, term, load(s.slot, s.index, term.dtype))
        early = replace(s, expr=term, over="pass")
        stores = list(nest.stores)
        stores[number] = replace(s, expr=last)
        return replace(nest, stores=(*stores, early))
    return nest


def _replace_term(root: Expr, term: Expr, value: Expr) -> Expr:
    return rewrite(root, lambda e: value if e == term else None)


def replace_axes(e: Expr, values: Mapping[int, Expr]) -> Expr:
    """`e` with axes replaced by expressions."""

    def change(x: Expr) -> Expr | None:
        return values.get(x.number) if x.op == "axis" else None

    return rewrite(e, change)


def _simplified(nest: LoopNest) -> LoopNest:
    extents = dict(enumerate((*nest.outer, *nest.inner)))
    return map_nest(nest, lambda e: simplify(e, extents))


def _find_split(nest: LoopNest) -> tuple[int, Dim] | None:
    """An axis that is divided by a size which divides its extent."""
    extents = (*nest.outer, *nest.inner)
    for e in topological(nest_roots(nest)):
        if e.op not in ("floordiv", "mod") or e.args[0].op != "axis":
            continue
        number = e.args[0].number
        by = linear(e.args[1])
        if by.terms or by.constant == 1:
            continue
        if exact_div(extents[number], by.constant) not in (None, 1):
            return number, by.constant
    return None


def _split_axis(nest: LoopNest, number: int, size: Dim) -> LoopNest:
    """Axis `number` as an axis of quotients and one of remainders by `size`."""
    extents = [*nest.outer, *nest.inner]
    values = {}
    for k in range(len(extents)):
        values[k] = axis(k if k <= number else k + 1)
    low = axis(number + 1)
    values[number] = Linear(0, {axis(number): size, low: 1}).expr()
    count = exact_div(extents[number], size)
    assert count is not None
    extents[number : number + 1] = [count, size]
    cut = len(nest.outer) + (number < len(nest.outer))
    changed = map_nest(nest, lambda e: replace_axes(e, values))
    return replace(changed, outer=tuple(extents[:cut]), inner=tuple(extents[cut:]))


def _without_units(nest: LoopNest) -> LoopNest:
    """Axes of one step removed."""
    extents = (*nest.outer, *nest.inner)
    if 1 not in extents:
        return nest
    values: dict[int, Expr] = {}
    for k, size in enumerate(extents):
        values[k] = const(0, I64) if size == 1 else axis(k - extents[:k].count(1))
    changed = map_nest(nest, lambda e: replace_axes(e, values))
    outer = tuple(d for d in nest.outer if d != 1)
    return _simplified(replace(changed, outer=outer, inner=tuple(d for d in nest.inner if d != 1)))


def flat_index(index: Sequence[Expr], shape: Sequence[Dim]) -> Linear | None:
    """Position in row-major order as a sum over axes, or None when it is something else."""
    total = Linear(0, {})
    stride: Dim = 1
    for i, size in reversed(list(zip(index, shape, strict=True))):
        total = total.plus(linear(i), stride)
        stride = stride * size
    total = linear(simplify(total.expr()))
    return total if all(t.op == "axis" for t in total.terms) else None


def _flattened(given: Form) -> Form:
    """Accesses that are linear in the axes made flat."""
    slots = list(given.slots)
    flat_of: dict[int, int] = {}

    def flat_slot(slot: int) -> int:
        if len(slots[slot][1].shape) == 1:
            return slot
        if slot not in flat_of:
            buffer, spec = slots[slot]
            flat_of[slot] = len(slots)
            slots.append((buffer, TensorSpec(spec.dtype, (product(spec.shape),))))
        return flat_of[slot]

    def change(e: Expr) -> Expr | None:
        if e.op != "load":
            return None
        position = flat_index(e.args, slots[e.slot][1].shape)
        return None if position is None else load(flat_slot(e.slot), (position.expr(),), e.dtype)

    nest = map_nest(given.nest, lambda e: rewrite(e, change))
    stores = []
    for s in nest.stores:
        position = flat_index(s.index, slots[s.slot][1].shape)
        if position is not None:
            s = replace(s, slot=flat_slot(s.slot), index=(position.expr(),))  # noqa: PLW2901
        stores.append(s)
    return Form(replace(nest, stores=tuple(stores)), tuple(slots))


def _merged(given: Form) -> Form:
    """Neighbouring axes merged where every access moves evenly through both."""
    current = given
    number = 0
    while number + 1 < len(current.extents):
        if _mergeable(current, number):
            current = _merge(current, number)
            number = max(0, number - 1)
        else:
            number += 1
    return current


def _positions(given: Form) -> tuple[list[Linear], set[int]]:
    """(flat positions of all accesses, axes used in any other way)."""
    flat: list[Linear] = []
    other: set[int] = set()
    stack: list[Expr] = [r.expr for r in given.nest.reduces]
    for s in given.nest.stores:
        stack.append(s.expr)
        _place(s.index, given.specs[s.slot], flat, stack)
    seen: set[Expr] = set()
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if e.op == "axis":
            other.add(e.number)
        elif e.op == "load":
            _place(e.args, given.specs[e.slot], flat, stack)
        else:
            stack.extend(e.args)
    return flat, other


def _place(index: Sequence[Expr], spec: TensorSpec, flat: list[Linear], stack: list[Expr]) -> None:
    position = flat_index(index, spec.shape) if len(index) <= 1 else None
    if position is None:
        stack.extend(index)
    else:
        flat.append(position)


def _mergeable(given: Form, number: int) -> bool:
    nest = given.nest
    if number == len(nest.outer) - 1:
        return False
    if number < len(nest.outer) <= number + 1:
        return False
    flat, other = _positions(given)
    if number in other or number + 1 in other:
        return False
    size = given.extents[number + 1]
    high, low = axis(number), axis(number + 1)
    return all(p.terms.get(high, 0) == p.terms.get(low, 0) * size for p in flat)


def _merge(given: Form, number: int) -> Form:
    """Axes `number` and `number + 1` as one, in a form where both only occur in flat indexes."""
    nest = given.nest
    extents = [*nest.outer, *nest.inner]
    values: dict[int, Expr] = {number: const(0, I64)}
    for k in range(len(extents)):
        if k != number:
            values[k] = axis(k if k < number else k - 1)
    extents[number : number + 2] = [extents[number] * extents[number + 1]]
    cut = len(nest.outer) - (number + 1 < len(nest.outer))
    changed = map_nest(nest, lambda e: simplify(replace_axes(e, values)))
    merged = replace(changed, outer=tuple(extents[:cut]), inner=tuple(extents[cut:]))
    return replace(given, nest=merged)
