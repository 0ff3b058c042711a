"""Memory planning: lifetimes -> arena offsets. A pure function of sizes and steps.

Offsets are found greedily, largest buffer first, each at the lowest gap among the buffers whose
lifetimes overlap its own (the "greedy by size" method of Pisarchyk and Lee, "Efficient Memory
Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from braze.engine.schema import MIN_ALIGN


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `bytes` that is live from step `first` to step `last`, both included."""

    bytes: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def aligned(size: int, alignment: int = MIN_ALIGN) -> int:
    """`size` rounded up to whole `alignment` bytes; an empty buffer still gets an address."""
    return max(alignment, -(-size // alignment) * alignment)


def plan_offsets(
    buffers: Sequence[Lifetime], alignment: int = MIN_ALIGN
) -> tuple[tuple[int, ...], int]:
    """Byte offset of each buffer and the size of the arena that holds them all."""
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].first, i))
    offsets = [0] * len(buffers)
    placed = _Placed(1 + max((b.last for b in buffers), default=0))
    total = 0
    for i in order:
        size = aligned(buffers[i].bytes, alignment)
        at = 0
        for start, end in sorted(placed.beside(buffers[i])):
            if start - at >= size:
                break
            at = max(at, end)
        offsets[i] = at
        total = max(total, at + size)
        placed.put(buffers[i], (at, at + size))
    return tuple(offsets), total


class _Placed:
    """Spans of placed buffers by step, so that only steps of a lifetime are looked at."""

    def __init__(self, steps: int) -> None:
        self._live: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
        self._begun: list[list[tuple[int, int]]] = [[] for _ in range(steps)]

    def put(self, life: Lifetime, span: tuple[int, int]) -> None:
        """Record a buffer's span (start, end)."""
        self._begun[life.first].append(span)
        for step in range(life.first, life.last + 1):
            self._live[step].append(span)

    def beside(self, life: Lifetime) -> Iterator[tuple[int, int]]:
        """Spans of buffers that are live at some step of `life`."""
        yield from self._live[life.first]
        for step in range(life.first + 1, life.last + 1):
            yield from self._begun[step]


def lower_bound(buffers: Sequence[Lifetime], alignment: int = MIN_ALIGN) -> int:
    """Bytes of the largest set of buffers that are live at once: no layout can use less."""
    change = [0] * (2 + max((b.last for b in buffers), default=0))
    for b in buffers:
        change[b.first] += aligned(b.bytes, alignment)
        change[b.last + 1] -= aligned(b.bytes, alignment)
    return max(accumulate(change))
