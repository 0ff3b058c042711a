"""May a value be computed inside the kernel that reads it? Each answer is Ok or a reason.

Correctness rules and cost rules stand apart: functions named `*_allowed` decide what is legal,
those named `*_worthwhile` what is likely to pay.
"""

from __future__ import annotations

from dataclasses import dataclass

from braze.core.bounds import bounds
from braze.core.dims import Dim, Interval, product, symbols
from braze.core.target import Preferences
from braze.expr.fold import leaves, reachable
from braze.expr.loops import LoopKernel
from braze.expr.scalar import FUNCTIONS, PAIR_FUNCTIONS, SLOW, Expr
from braze.ir.graph import Graph, Value
from braze.ops.lowering import Lowering, Pointwise, View

# Operations that cost `Preferences.heavy_cost` on floats: not to be computed twice.
HEAVY = FUNCTIONS | PAIR_FUNCTIONS | SLOW
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


def expression_cost(root: Expr, costs: Preferences) -> int:
    """Rough instruction count of one evaluation of `root`."""
    cost = 0
    for e in reachable(root):
        if e.op == "load":
            continue  # index arithmetic is folded into addressing
        if e.args and e.op not in ("cast", "bitcast"):
            is_float_heavy = e.op in HEAVY and (e.dtype.is_float or e.op in ("pow",))
            cost += costs.heavy_cost if is_float_heavy else 1
    return cost


def local_cost(lowering: Lowering, costs: Preferences) -> int:
    """Cost of one element of a pointwise op or a view."""
    if isinstance(lowering, Pointwise):
        return expression_cost(lowering.expr, costs)
    if isinstance(lowering, View) and not lowering.reshape:
        return sum(1 for e in lowering.index if e.op != "axis") + (lowering.inside is not None)
    return 0


def keeps_innermost(view: View, rank: int) -> bool:
    """True when stepping along the last output axis steps along the last input axis, or stays."""
    if not view.index or rank == 0:
        return True
    last = rank - 1
    uses = [any(a.number == last for a in leaves(e, "axis")) for e in view.index]
    if any(uses[:-1]):
        return False
    tail = view.index[-1]
    if not uses[-1]:
        return True
    if tail.op == "axis":
        return True
    return tail.op == "add" and any(a.op == "axis" and a.number == last for a in tail.args)


@dataclass(frozen=True, slots=True)
class SlotReads:
    """How a loop nest reads one of its slots.

    computed: some index depends on loaded elements; loads: how often elements are loaded in all.
    """

    computed: bool = False
    loads: float = 0.0


def nest_reads(kernel: LoopKernel, sizes: Sizes) -> dict[int, SlotReads]:
    """The reads of every slot of a kernel's loop nests, in one walk over them."""
    found: dict[int, SlotReads] = {}
    for nest in kernel.nests:
        outer = sizes.elements(nest.outer)
        every = outer * sizes.elements(nest.inner)
        roots = [(r.expr, every) for r in nest.reduces]
        for s in nest.stores:
            roots.append((s.expr, outer if s.over == "outer" else every))
            roots.extend((i, 0) for i in s.index)
        for root, times in roots:
            for e in leaves(root, "load"):
                old = found.get(e.slot, SlotReads())
                computed = old.computed or any(leaves(i, "load") for i in e.args)
                found[e.slot] = SlotReads(computed, old.loads + times)
    return found


def prologue_allowed(reads: SlotReads) -> Reason:
    """May loads of a slot be replaced by an expression? (Range checks must stay where they are.)"""
    return "its elements are picked by computed indexes" if reads.computed else None


def prologue_worthwhile(reads: SlotReads, value: Value, is_cheap: bool, sizes: Sizes) -> Reason:
    """Inline only what is not computed many times over."""
    ratio = reads.loads / max(1, sizes.elements(value.shape))
    if ratio > 4 or (ratio > 1.5 and not is_cheap):
        return f"it would be computed {ratio:.1f} times"
    return None
