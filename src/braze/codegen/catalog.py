"""The backends there are, by name: the only place that knows more of them than the protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from braze.codegen.backend import Backend
from braze.codegen.cpu.backend import cpu_backend
from braze.codegen.cpu.target import ISAS
from braze.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Entry:
    """make(variant, threads): a backend for one variant of its target; "" is this machine's."""

    make: Callable[[str, int], Backend]
    variants: tuple[str, ...] = ()


BACKENDS: Final[dict[str, Entry]] = {
    "cpu": Entry(cpu_backend, tuple(ISAS)),
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
