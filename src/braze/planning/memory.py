"""Memory planning: lifetimes -> arena offsets. A pure function of sizes and steps.

Offsets are found greedily, largest buffer first, each at the lowest gap among the buffers whose
lifetimes overlap its own (the "greedy by size" method of Pisarchyk and Lee, "Efficient Memory
Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `bytes` that is live from step `first` to step `last`, both included."""

    bytes: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def aligned(size: int) -> int:
    """`size` rounded up to the arena's alignment; an empty buffer still gets an address."""
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


def plan_offsets(buffers: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """Byte offset of each buffer and the size of the arena that holds them all."""
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].first, i))
    offsets = [0] * len(buffers)
    placed: list[int] = []
    total = 0
    for i in order:
        size = aligned(buffers[i].bytes)
        busy = sorted(
            (offsets[j], offsets[j] + aligned(buffers[j].bytes))
            for j in placed
            if buffers[j].overlaps(buffers[i])
        )
        at = 0
        for start, end in busy:
            if start - at >= size:
                break
            at = max(at, end)
        offsets[i] = at
        total = max(total, at + size)
        placed.append(i)
    return tuple(offsets), total


def lower_bound(buffers: Sequence[Lifetime]) -> int:
    """Bytes of the largest set of buffers that are live at once: no layout can use less."""
    points = sorted({b.first for b in buffers})
    return max(
        (sum(aligned(b.bytes) for b in buffers if b.first <= p <= b.last) for p in points),
        default=0,
    )
