"""Whether a plan's steps wait for each other where they must.

Steps run in order here, so a dependency that the planner forgot would not show; natively it
would be a race between workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from braze.core.errors import EngineFormatError
from braze.engine.steps import BufferRef


@dataclass(frozen=True, slots=True)
class Use:
    """What a step waits for and uses.

    number, after: steps as Plan.every_step counts them; serial: it is a copy or library call, which
    run one after the other.
    """

    number: int
    after: Sequence[int]
    reads: Sequence[BufferRef]
    writes: Sequence[BufferRef]
    serial: bool


@dataclass(slots=True)
class _Users:
    """The steps that used a buffer since one that waited for all others wrote it."""

    readers: list[int] = field(default_factory=list)
    writers: list[tuple[Use, int]] = field(default_factory=list)  # with the displacement

    def before_write(self, use: Use, displacement: int) -> list[int]:
        """What a step that writes must wait for: serial steps may write pieces in any order."""
        apart = [u.number for u, d in self.writers if u.serial and use.serial and d != displacement]
        needed = [u.number for u, _ in self.writers if u.number not in apart]
        needed += self.readers
        if not apart:
            self.readers, self.writers = [], []
        self.writers.append((use, displacement))
        return needed


def check_order(steps: Sequence[Use]) -> None:
    """Check steps between two that decide what runs next, which wait for everything before them.

    Raises EngineFormatError for a step that does not wait, through others or directly, for the
    writers of what it reads and for all users of what it writes.
    """
    users: dict[int, _Users] = {}
    position = {step.number: i for i, step in enumerate(steps)}
    waits: list[int] = []  # bit j of waits[i]: step i of these runs after step j of these
    for step in steps:
        mask = 0
        for j in step.after:
            if j in position:
                mask |= waits[position[j]] | 1 << position[j]
        waits.append(mask)
        needed: dict[int, int] = {}
        for ref in step.reads:
            before = users.setdefault(ref.buffer, _Users())
            needed |= {u.number: ref.buffer for u, _ in before.writers}
        for ref in step.writes:
            before = users.setdefault(ref.buffer, _Users())
            needed |= dict.fromkeys(before.before_write(step, ref.displacement), ref.buffer)
        for ref in step.reads:
            users[ref.buffer].readers.append(step.number)
        for j, buffer in needed.items():
            if j != step.number and not mask >> position[j] & 1:
                raise EngineFormatError(
                    f"step {step.number} does not wait for step {j} although both use buffer "
                    f"{buffer}; this is a mistake of the planner, please report it"
                )
