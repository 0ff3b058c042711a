"""The one place that knows how builds are steered: targets, levels, and which tactic is taken."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from braze.builder import build_plan
from braze.codegen.catalog import find_backend, target_names
from braze.core.config import BuildConfig
from braze.core.errors import TargetError
from braze.core.trace import Trace
from braze.frontend.onnx.importer import Imported
from braze.runtime.engine import Engine
from braze.tuning.select import Candidates

THREADS = 2
MEASURED_FROM_LEVEL = 3
# Convolutions are counted by their spatial axes, everything else by the rank of what it writes.
CONVOLUTIONS = ("conv", "winograd", "depthwise")


@functools.cache
def other_targets() -> tuple[str, ...]:
    """The targets besides the default one whose code this machine can run."""
    usual = find_backend("cpu", THREADS).target.name
    return tuple(t for t in target_names() if t not in ("cpu", usual) and _runs_here(t))


def _runs_here(target: str) -> bool:
    try:
        find_backend(target, THREADS).require()
    except TargetError:
        return False
    return True


class Chooser:
    """Takes tactic number `turn` of every kernel, or the first; notes the templates it took."""

    def __init__(self, turn: int | None) -> None:
        self.turn = turn
        self.used: set[tuple[str, str]] = set()

    def __call__(self, kernels: Sequence[Candidates]) -> list[int]:
        chosen = [0 if self.turn is None else self.turn % len(k.tactics) for k in kernels]
        for k, index in zip(kernels, chosen, strict=True):
            self._note(k.kernel, k.tactics[index].template)
        return chosen

    def _note(self, kernel: Any, template: str) -> None:
        output = kernel.output if hasattr(kernel, "output") else kernel.outputs[0]
        rank = len(output.shape)
        axes = f"{rank - 2}-D" if template in CONVOLUTIONS else f"rank {rank}"
        self.used.add((template, axes))


def build(
    imported: Imported, level: int, target: str = "cpu", turn: int | None = None
) -> tuple[Engine, set[tuple[str, str]]]:
    """An engine of an imported network, and the templates in it (unknown where it measures).

    Raises what `braze.build` raises; it does the same steps.
    """
    backend = find_backend(target, THREADS)
    chooser = Chooser(turn)
    measures = turn is None and level >= MEASURED_FROM_LEVEL
    plan = build_plan(
        imported.graph,
        imported.profiles,
        BuildConfig(optimization_level=level),
        backend,
        Trace(),
        None if measures else chooser,
    )
    return backend.load(plan), chooser.used
