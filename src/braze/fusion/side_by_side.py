"""Small pointwise kernels that do not read each other become one kernel of several nests.

On a device each launch costs about a microsecond, whatever it does, and what lies between the
products of a small batch is many such launches: slices of a joint product, turned halves of
queries and of keys, concatenations. A kernel moves up to the first one that it may stand beside, so
that what reads it may move up as well; only small ones do, since what they write lives longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from braze.core.dims import product
from braze.expr.fold import rewrite
from braze.expr.loops import LoopKernel, LoopNest, map_nest
from braze.expr.scalar import Expr, load
from braze.fusion.lower import LoweredRegion
from braze.fusion.region import Partition, Region
from braze.ir.graph import RunSize, Value
from braze.ir.run_sizes import node_symbols, sources

LARGEST = 1 << 20  # elements that a joint kernel writes
MOST_NESTS = 8
WINDOW = 16  # kernels that a kernel may move up by


def side_by_side(
    kernels: Sequence[LoweredRegion], partition: Partition, sizes: Sequence[RunSize] = ()
) -> tuple[LoweredRegion, ...]:
    """The kernels in an order in which they may run, small ones joined where they can be.

    sizes: those that the run gives; what uses one stays behind what it is read from.
    """
    read_from = sources(sizes)
    groups: list[list[LoweredRegion]] = []
    place_of: dict[Value, int] = {}  # the group that writes a value
    for low in kernels:
        used = set().union(*map(node_symbols, low.region.nodes)) if read_from else set[str]()
        seen = (*low.inputs, *(v for s in used for v in read_from.get(s, ())))
        bases = [partition.base(v) for v in seen]
        first = 1 + max((place_of[v] for v in bases if v in place_of), default=-1)
        earlier = range(max(first, len(groups) - WINDOW), len(groups))
        place = next((i for i in earlier if _fit([*groups[i], low])), len(groups))
        if place == len(groups):
            groups.append([])
        groups[place].append(low)
        place_of.update((partition.base(v), place) for v in low.region.outputs)
    return tuple(g[0] if len(g) == 1 else _joined(g) for g in groups)


def _fit(group: Sequence[LoweredRegion]) -> bool:
    """Whether these kernels may be one."""
    kernels = [low.kernel for low in group]
    if any(low.places for low in group) or not all(map(_is_pointwise, kernels)):
        return False
    loops = [k for k in kernels if isinstance(k, LoopKernel)]
    written = sum(_elements(k) for k in loops)
    return written <= LARGEST and sum(len(k.nests) for k in loops) <= MOST_NESTS


def _is_pointwise(kernel: object) -> bool:
    return isinstance(kernel, LoopKernel) and all(
        not n.serial and not n.inner and all(s.mode == "set" for s in n.stores)
        for n in kernel.nests
    )


def _elements(kernel: LoopKernel) -> int:
    """How many a kernel writes; more than fit where that depends on the input shapes."""
    counts = [product(spec.shape) for spec in kernel.outputs]
    return sum(c if isinstance(c, int) else LARGEST + 1 for c in counts)


def _joined(group: Sequence[LoweredRegion]) -> LoweredRegion:
    kernels = [low.kernel for low in group if isinstance(low.kernel, LoopKernel)]
    inputs = tuple(spec for k in kernels for spec in k.inputs)
    outputs = tuple(spec for k in kernels for spec in k.outputs)
    nests: list[LoopNest] = []
    read = written = 0
    for k in kernels:
        nests += [_renumbered(n, len(k.inputs), read, len(inputs), written) for n in k.nests]
        read, written = read + len(k.inputs), written + len(k.outputs)
    region = Region(
        tuple(v for low in group for v in low.region.outputs),
        None,
        tuple(n for low in group for n in low.region.nodes),
        "small kernels side by side",
    )
    values = tuple(v for low in group for v in low.inputs)
    return LoweredRegion(region, LoopKernel(inputs, outputs, tuple(nests)), values)


def _renumbered(nest: LoopNest, own: int, read: int, inputs: int, written: int) -> LoopNest:
    """A nest of a kernel with `own` inputs, whose slots come behind `read` of the joint kernel's
    `inputs`, and `written` of its outputs."""

    def change(e: Expr) -> Expr | None:
        if e.op != "load":
            return None
        slot = e.slot + read if e.slot < own else e.slot - own + inputs + written
        return load(slot, e.args, e.dtype)

    moved = map_nest(nest, lambda e: rewrite(e, change))
    return replace(moved, stores=tuple(replace(s, slot=s.slot + written) for s in moved.stores))
