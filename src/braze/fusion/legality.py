"""May a value be computed inside the kernel that reads it? Each answer is Ok or a reason.

Correctness rules and cost rules stand apart: functions named `*_allowed` decide what is legal,
those named `*_worthwhile` what is likely to pay.
"""

from __future__ import annotations

import math

from braze.core.bounds import bounds
from braze.core.dims import Dim, Interval, product, symbols
from braze.expr.fold import leaves
from braze.expr.loops import LoopKernel
from braze.expr.scalar import Expr
from braze.ir.graph import Graph, Value
from braze.ops.lowering import Lowering, Pointwise, View

# Operations that cost tens of instructions: not to be computed twice.
HEAVY = frozenset({
    "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh", "erf", "pow", "mod", "fmod", "floordiv", "sqrt",
})  # fmt: skip
HEAVY_COST = 20
CHEAP_COST = 4
MAX_COST = 400
Reason = str | None  # None: allowed


UNKNOWN_SIZE = 64  # what a symbol without bounds counts for


class Sizes:
    """Element counts for cost questions: symbols count as their upper bound."""

    def __init__(self, graph: Graph) -> None:
        self._env: dict[str, Interval] = dict(graph.bounds)
        for v in {*graph.inputs, *graph.producer}:
            for name in {s for d in v.shape for s in symbols(d)}:
                self._env.setdefault(name, (1, UNKNOWN_SIZE))

    def elements(self, shape: tuple[Dim, ...]) -> int:
        """Largest number of elements of `shape`."""
        total = product(shape)
        return total if isinstance(total, int) else bounds(total, self._env)[1]


def expression_cost(root: Expr) -> int:
    """Rough instruction count of one evaluation of `root`."""
    seen: set[Expr] = set()
    stack, cost = [root], 0
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        stack.extend(e.args)
        if e.op == "load":
            continue  # index arithmetic is folded into addressing
        if e.args and e.op not in ("cast", "bitcast"):
            is_float_heavy = e.op in HEAVY and (e.dtype.is_float or e.op in ("pow",))
            cost += HEAVY_COST if is_float_heavy else 1
    return cost


def local_cost(lowering: Lowering) -> int:
    """Cost of one element of a pointwise op or a view."""
    if isinstance(lowering, Pointwise):
        return expression_cost(lowering.expr)
    if isinstance(lowering, View) and not lowering.reshape:
        return sum(1 for e in lowering.index if e.op != "axis") + (lowering.inside is not None)
    return 0


def keeps_innermost(view: View, rank: int) -> bool:
    """True when stepping along the last output axis steps along the last input axis, or stays."""
    if not view.index or rank == 0:
        return True
    last = rank - 1
    uses = [any(a.attr == last for a in leaves(e, "axis")) for e in view.index]
    if any(uses[:-1]):
        return False
    tail = view.index[-1]
    if not uses[-1]:
        return True
    if tail.op == "axis":
        return True
    return tail.op == "add" and any(a.op == "axis" and a.attr == last for a in tail.args)


def nest_slot_reads(kernel: LoopKernel, slot: int) -> list[Expr]:
    """Every distinct load from `slot` in the kernel's loop nests, once per reduction or store."""
    found: list[Expr] = []
    for nest in kernel.nests:
        roots = [r.expr for r in nest.reduces] + [s.expr for s in nest.stores]
        roots += [i for s in nest.stores for i in s.index]
        for root in roots:
            found += [e for e in leaves(root, "load") if e.attr == slot]
    return found


def prologue_allowed(kernel: LoopKernel, slot: int) -> Reason:
    """May loads of `slot` be replaced by an expression? (Range checks must stay where they are.)"""
    for e in nest_slot_reads(kernel, slot):
        if any(leaves(i, "load") for i in e.args):
            return "its elements are picked by computed indexes"
    return None


def prologue_worthwhile(
    kernel: LoopKernel, slot: int, value: Value, cost: int, sizes: Sizes
) -> Reason:
    """Inline only what is not computed many times over."""
    have = max(1, sizes.elements(value.shape))
    reads = 0.0
    for nest in kernel.nests:
        points = math.prod((sizes.elements(nest.outer), sizes.elements(nest.inner)))
        for root, over_inner in [(r.expr, True) for r in nest.reduces] + [
            (s.expr, s.over != "outer") for s in nest.stores
        ]:
            here = [e for e in leaves(root, "load") if e.attr == slot]
            reads += len(here) * (points if over_inner else sizes.elements(nest.outer))
    ratio = reads / have
    if ratio > 1.5 and cost > CHEAP_COST:
        return f"it would be computed {ratio:.1f} times"
    if ratio > 4:
        return f"it would be computed {ratio:.1f} times"
    return None
