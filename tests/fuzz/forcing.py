"""The one place that knows how builds and runs are steered: targets, levels, which tactic is taken,
and guards around outputs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from braze.builder import build_plan
from braze.codegen.catalog import find_backend, target_names
from braze.core.config import BuildConfig
from braze.core.errors import TargetError
from braze.core.trace import Trace
from braze.frontend.onnx.importer import Imported
from braze.runtime import context, hooks
from braze.runtime.arrays import OUTPUT_ALIGN
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
    """Takes tactic number `turn` of every kernel, or the first; notes what it took."""

    def __init__(self, turn: int | None) -> None:
        self.turn = turn
        self.used: set[tuple[str, str]] = set()
        self.tactics: set[str] = set()

    def __call__(self, kernels: Sequence[Candidates]) -> list[int]:
        chosen = [0 if self.turn is None else self.turn % len(k.tactics) for k in kernels]
        for k, index in zip(kernels, chosen, strict=True):
            self._note(k.kernel, k.tactics[index].template)
            self.tactics.add(str(k.tactics[index]))
        return chosen

    def _note(self, kernel: Any, template: str) -> None:
        output = kernel.output if hasattr(kernel, "output") else kernel.outputs[0]
        rank = len(output.shape)
        axes = f"{rank - 2}-D" if template in CONVOLUTIONS else f"rank {rank}"
        self.used.add((template, axes))


def build(
    imported: Imported, level: int, target: str = "cpu", turn: int | None = None
) -> tuple[Engine, Chooser]:
    """An engine of an imported network, and what was chosen for it (unknown where it measures).

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
    return backend.load(plan), chooser


@contextlib.contextmanager
def guarded_outputs() -> Iterator[Callable[[], list[str]]]:
    """Runs inside get outputs with guard bytes on both sides; the result names those written to.

    A store behind the end of a row is seen by nothing else: the next row is written over it, and
    behind the last one there is memory of someone else.
    """
    made: list[tuple[str, np.ndarray[Any, Any], int, int]] = []

    def guarded(name: str, shape: Any, storage: Any, size: int) -> tuple[Any, int]:
        raw = np.full(size + 3 * OUTPUT_ALIGN, 0xA5, np.uint8)
        start = raw.ctypes.data
        offset = -start % OUTPUT_ALIGN + OUTPUT_ALIGN
        made.append((name, raw, offset, size))
        return np.ndarray(shape, storage, raw.data, offset), start + offset

    def strayed() -> list[str]:
        return [
            name for name, raw, offset, size in made
            if not ((raw[:offset] == 0xA5).all() and (raw[offset + size :] == 0xA5).all())
        ]  # fmt: skip

    with (
        mock.patch.object(context, "empty_output", guarded),
        mock.patch.object(hooks, "empty_output", guarded),
    ):
        yield strayed
