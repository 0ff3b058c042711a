"""Sizes that the run gives: where in a list of items they become known.

Before the first item that needs a symbol which nothing has given yet stand Sizes steps that give it
and every other symbol whose source is there, so that a list is cut as few times as it must be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from braze.core.bounds import bounds
from braze.core.config import MAX_SIZE
from braze.core.dims import Dim, Interval, substitute, symbols
from braze.fusion.kernel import CompiledKernel, GridLaunch
from braze.fusion.lower import LoweredRegion
from braze.fusion.network import Item, LoweredFlow, LoweredGraph
from braze.ir.graph import RunSize, Value
from braze.ir.run_sizes import shape_symbols
from braze.tuning.select import Launch

Group = tuple[RunSize, ...]  # what one Sizes step gives
# A buffer of a size that the run gives has its place in the arena up to this many bytes; a larger
# one gets memory when its size is known.
MAX_BOUND: Final = 64 << 20


def has_useful_bound(size: Dim, given: Mapping[str, RunSize], env: Mapping[str, Interval]) -> bool:
    """Whether a buffer of `size` bytes is to be planned at its largest size in a profile."""
    used = symbols(size)
    if any(env[s][1] >= MAX_SIZE for s in used - given.keys()):
        return False
    late = [given[s] for s in used if s in given]
    if not late:
        return True
    return all(s.high is not None for s in late) and bounds(size, env)[1] <= MAX_BOUND


def all_run_sizes(network: LoweredGraph) -> Iterator[tuple[RunSize, LoweredGraph]]:
    """The sizes that the run gives, those in bodies too, and where."""
    for size in network.graph.sizes:
        yield size, network
    for item in network.items:
        for body in item.bodies if isinstance(item, LoweredFlow) else ():
            yield from all_run_sizes(body)


def sizes_before(
    network: LoweredGraph, launches: Mapping[int, Launch], threads: int
) -> tuple[tuple[Group, ...], ...]:
    """The Sizes steps in front of every item of a list; the last entry is behind all items.

    launches: of every kernel, by id. In the end every size of the list is given.
    """
    waiting = list(network.graph.sizes)
    if not waiting:
        return ((),) * (len(network.items) + 1)
    base = network.partition.base
    late = {base(v) for item in network.items for v in item.region.outputs}
    before: list[tuple[Group, ...]] = []
    for item in (*network.items, None):
        open_ = {s.symbol for s in waiting}
        needed = open_ if item is None else open_ & _needed(item, launches, threads)
        made = open_ & _made(item) if isinstance(item, LoweredFlow) else set[str]()
        groups = _groups(waiting, late, base) if needed | made else ()
        known = {s.symbol for group in groups for s in group}
        before.append(groups if needed or made & known else ())
        given = {s.symbol for group in before[-1] for s in group}
        assert needed <= given, f"sizes {needed - given} are used before they are computed"
        waiting = [s for s in waiting if s.symbol not in given]
        if item is not None:
            late.difference_update(base(v) for v in item.region.outputs)
    return tuple(before)


def _groups(
    waiting: Sequence[RunSize], late: Collection[Value], base: Callable[[Value], Value]
) -> tuple[Group, ...]:
    """All that can be given while the values in `late` are not computed, level by level."""
    groups: list[Group] = []
    left = list(waiting)
    while left:
        open_ = {s.symbol for s in left}
        group = tuple(
            s
            for s in left
            if not symbols(s.size) & open_ and (s.value is None or base(s.value) not in late)
        )
        if not group:
            break
        groups.append(group)
        left = [s for s in left if s not in group]
    return tuple(groups)


def _needed(item: Item, launches: Mapping[int, Launch], threads: int) -> set[str]:
    """The symbols that an item uses: in its tensors, params, grid and workspace, in its bodies."""
    found: set[str] = set()
    for v in item.inputs:
        found |= shape_symbols(v)
    if isinstance(item, LoweredRegion):
        for v in item.region.outputs:
            found |= shape_symbols(v)
        return found | _launched(launches[id(item)], threads)
    for body in item.bodies:
        for size in body.graph.sizes:
            found |= symbols(size.size)
        for inner in body.items:
            found |= _needed(inner, launches, threads)
    return found


def _made(item: LoweredFlow) -> set[str]:
    """The symbols in the shapes of what control flow makes; some it may itself give."""
    return {s for v in item.region.outputs for s in shape_symbols(v)}


def _launched(launch: Launch, threads: int) -> set[str]:
    found: set[str] = set()
    piece: CompiledKernel | None = launch.compiled
    while piece is not None:
        used: list[Dim] = [*piece.params, piece.launch.workspace(threads)]
        if isinstance(piece.launch, GridLaunch):
            used.append(piece.launch.grid)
            for m in piece.launch.maps:
                used += [*m.shape, *m.strides]
        for d in used:
            found |= symbols(substitute(d, launch.lowered.places))
        piece = piece.then
    return found
