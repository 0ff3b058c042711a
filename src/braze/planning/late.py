"""Sizes that the run gives: where in a list of launches they become known.

Before the first launch that needs a symbol which nothing has given yet stand Sizes steps that give
it and every other symbol whose source is there, so that a list is cut as few times as it must be.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from braze.core.bounds import bounds
from braze.core.dims import Dim, Interval, substitute, symbols
from braze.fusion.kernel import CompiledKernel, GridLaunch
from braze.ir.graph import RunSize, Value
from braze.ir.run_sizes import shape_symbols
from braze.tuning.select import Launch

Group = tuple[RunSize, ...]  # what one Sizes step gives
# A buffer of a size that the run gives has its place in the arena up to this many bytes; a larger
# one gets memory when its size is known.
MAX_BOUND: Final = 64 << 20


def has_useful_bound(size: Dim, given: Mapping[str, RunSize], env: Mapping[str, Interval]) -> bool:
    """Whether a buffer of `size` bytes is to be planned at its largest size in a profile."""
    late = [given[s] for s in symbols(size) if s in given]
    if not late:
        return True
    return all(s.high is not None for s in late) and bounds(size, env)[1] <= MAX_BOUND


@dataclass(frozen=True)
class Schedule:
    """before[i]: the Sizes steps in front of launch i; the last entry is behind all launches."""

    before: tuple[tuple[Group, ...], ...]

    def readers(self) -> dict[Value, int]:
        """Of each value that a size is read from, the launch it is read before."""
        return {
            s.value: i
            for i, groups in enumerate(self.before)
            for group in groups
            for s in group
            if s.value is not None
        }


def schedule_sizes(
    launches: Sequence[Launch],
    sizes: Sequence[RunSize],
    base: Mapping[Value, Value],
    threads: int,
    known: Collection[str] = (),
) -> Schedule:
    """Where the sizes of a list of launches become known.

    base: reshape -> the value whose bytes it is; known: symbols that are given before the list.
    Every symbol of `sizes` is given in the end.
    """
    if not sizes:
        return Schedule(((),) * (len(launches) + 1))
    waiting = [s for s in sizes if s.symbol not in known]
    late = {base.get(v, v) for launch in launches for v in launch.lowered.region.outputs}
    before: list[tuple[Group, ...]] = []
    for launch in (*launches, None):
        open_ = {s.symbol for s in waiting}
        needed = open_ if launch is None else open_ & _needed(launch, threads)
        before.append(_groups(waiting, late, base) if needed else ())
        given = {s.symbol for group in before[-1] for s in group}
        assert needed <= given, f"sizes {needed - given} are used before they are computed"
        waiting = [s for s in waiting if s.symbol not in given]
        if launch is not None:
            late.difference_update(base.get(v, v) for v in launch.lowered.region.outputs)
    return Schedule(tuple(before))


def _groups(
    waiting: Sequence[RunSize], late: Collection[Value], base: Mapping[Value, Value]
) -> tuple[Group, ...]:
    """All that can be given while the values in `late` are not computed, level by level."""
    groups: list[Group] = []
    left = list(waiting)
    while left:
        open_ = {s.symbol for s in left}
        group = tuple(
            s
            for s in left
            if not symbols(s.size) & open_
            and (s.value is None or base.get(s.value, s.value) not in late)
        )
        if not group:
            break
        groups.append(group)
        left = [s for s in left if s not in group]
    return tuple(groups)


def _needed(launch: Launch, threads: int) -> set[str]:
    """The symbols that a launch uses: in its tensors, params, grid and workspace."""
    low = launch.lowered
    found: set[str] = set()
    for v in (*low.inputs, *low.region.outputs):
        found |= shape_symbols(v)
    piece: CompiledKernel | None = launch.compiled
    while piece is not None:
        used: list[Dim] = [*piece.params, piece.launch.workspace(threads)]
        if isinstance(piece.launch, GridLaunch):
            used.append(piece.launch.grid)
            for m in piece.launch.maps:
                used += [*m.shape, *m.strides]
        for d in used:
            found |= symbols(substitute(d, low.places))
        piece = piece.then
    return found
