"""Whether a plan's steps wait for each other where they must.

Steps run in order here, so a dependency that the planner forgot would not show; natively it
would be a race between workers.
"""

from __future__ import annotations

from collections.abc import Sequence

from braze.core.errors import EngineFormatError


def check_order(
    after: Sequence[Sequence[int]], reads: Sequence[Sequence[int]], writes: Sequence[Sequence[int]]
) -> None:
    """after: the earlier steps that each step waits for; reads, writes: the buffers of each.

    Raises EngineFormatError for a step that does not wait, through others or directly, for the
    writer of what it reads and for all users of what it writes.
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    waits: list[int] = []  # bit j of waits[i]: step i runs after step j
    for i, earlier in enumerate(after):
        mask = 0
        for j in earlier:
            mask |= waits[j] | 1 << j
        waits.append(mask)
        needed = {writer[b]: b for b in (*reads[i], *writes[i]) if b in writer}
        for b in writes[i]:
            needed |= dict.fromkeys(readers.pop(b, ()), b)
        for j, b in needed.items():
            if not mask >> j & 1:
                raise EngineFormatError(
                    f"step {i} does not wait for step {j} although both use buffer {b}; this is a "
                    "mistake of the planner, please report it"
                )
        for b in reads[i]:
            readers.setdefault(b, []).append(i)
        for b in writes[i]:
            writer[b] = i
