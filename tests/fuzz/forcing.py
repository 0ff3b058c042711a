"""The one place that knows how builds are steered: target spelling, and which tactic is taken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import braze
import braze.api
from braze.codegen.backend import Backend
from braze.codegen.cpu.target import ISAS
from braze.core.config import EFFORTS, Effort
from braze.runtime.native import host_isa
from tests.fuzz.case import Case

# Templates are counted by the rank of what they write; convolutions by their spatial axes.
CONVOLUTIONS = ("conv", "winograd", "depthwise")
ALL_TACTICS = EFFORTS[5]


def host_isas() -> tuple[str, ...]:
    """The instruction sets this machine can run, best first."""
    names = list(ISAS)
    return tuple(names[names.index(host_isa()) :])


class Steered:
    """A backend that takes one tactic of each kernel, and notes which templates it compiled."""

    def __init__(self, turn: int | None) -> None:
        self.backend: Any = None
        self.turn = turn
        self.used: set[tuple[str, str]] = set()

    def tactics(self, kernel: Any, effort: Effort) -> tuple[Any, ...]:
        """All tactics of the level, or the one whose turn it is among all there are."""
        if self.turn is None:
            return tuple(self.backend.tactics(kernel, effort))
        found = tuple(self.backend.tactics(kernel, ALL_TACTICS))
        return (found[self.turn % len(found)],) if found else ()

    def compile(self, kernel: Any, tactic: Any) -> Any:
        """Compile, and note the template and the rank it is used at."""
        output = kernel.output if hasattr(kernel, "output") else kernel.outputs[0]
        rank = len(output.shape)
        axes = f"{rank - 2}-D" if tactic.template in CONVOLUTIONS else f"rank {rank}"
        self.used.add((tactic.template, axes))
        return self.backend.compile(kernel, tactic)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


@contextlib.contextmanager
def steered(turn: int | None = None) -> Iterator[Steered]:
    """Builds inside take tactic number `turn` of every kernel (None: as they like)."""
    find = braze.api.find_backend
    steering = Steered(turn)

    def find_steered(target: object, threads: int) -> Backend:
        steering.backend = find(target, threads)
        return steering  # type: ignore[return-value]

    braze.api.find_backend = find_steered
    try:
        yield steering
    finally:
        braze.api.find_backend = find


def build(case: Case, shapes: Any, level: int, isa: str | None) -> braze.Engine:
    """An engine of two workers for one instruction set (None: the host's)."""
    target = "cpu" if isa is None else f"cpu:{isa}"
    return braze.build(
        case.model(), shapes=shapes, optimization_level=level, target=target, threads=2
    )
