"""The backends there are, by name: the only place that knows more of them than the protocol.

A new one is a folder beside this file and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from braze.codegen.backend import Backend
from braze.codegen.cpu.target import VARIANTS
from braze.codegen.cuda.target import SHARED_BYTES
from braze.codegen.reference.target import FLOAT64
from braze.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Entry:
    """make(variant, threads): a backend for one variant of its target; "" is this machine's."""

    make: Callable[[str, int], Backend]
    variants: tuple[str, ...] = ()


# Backends are imported when they are asked for: to load an engine of one of them must not need the
# compiler of another.


def _cpu(variant: str, threads: int) -> Backend:
    from braze.codegen.cpu.backend import cpu_backend

    return cpu_backend(variant, threads)


def _cuda(variant: str, threads: int) -> Backend:
    from braze.codegen.cuda.backend import cuda_backend

    return cuda_backend(variant, threads)


def _reference(variant: str, threads: int) -> Backend:
    from braze.codegen.reference.backend import reference_backend

    return reference_backend(variant, threads)


BACKENDS: Final[dict[str, Entry]] = {
    "cpu": Entry(_cpu, tuple(VARIANTS)),
    "cuda": Entry(_cuda, tuple(SHARED_BYTES)),
    "reference": Entry(_reference, (FLOAT64,)),
}


def find_backend(target: object, threads: int) -> Backend:
    """The backend for a target's name, "cpu" or "cpu:avx2"; `threads`: host threads of a run.

    Raises ConfigError that lists the names there are.
    """
    name, colon, variant = target.partition(":") if isinstance(target, str) else ("", "", "")
    entry = BACKENDS.get(name)
    if entry is None or (colon and variant not in entry.variants):
        raise ConfigError(
            f"target {target!r} is not available; use one of {', '.join(target_names())}"
        )
    return entry.make(variant, threads)


def target_names() -> tuple[str, ...]:
    """Every text that `find_backend` takes."""
    return tuple(
        text
        for name, entry in BACKENDS.items()
        for text in (name, *(f"{name}:{variant}" for variant in entry.variants))
    )
