"""This machine's processor: what measured times depend on, and the caches that blocks are cut for.

Read from Linux's /proc and /sys; where these are missing, what is not known stays at the sizes that
nearly every processor has at least.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

L1_BYTES: Final = 32 << 10
L2_BYTES: Final = 1 << 20
_MODEL_FIELDS: Final = ("vendor_id", "cpu family", "model", "stepping", "model name")
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class HostCpu:
    """model: one line that tells processors apart; bytes of one core's data caches."""

    model: str
    l1_bytes: int = L1_BYTES
    l2_bytes: int = L2_BYTES


def host_cpu(root: Path = Path("/")) -> HostCpu:
    """What is known of this machine; `root`: where its /proc and /sys are."""
    return HostCpu(_model(root), *_caches(root))


def _model(root: Path) -> str:
    facts: dict[str, str] = {}
    with suppress(OSError, UnicodeDecodeError):
        for line in (root / "proc/cpuinfo").read_text().splitlines():
            key, colon, value = line.partition(":")
            if not line.strip() and facts:
                break  # one processor is enough
            if colon:
                facts[key.strip()] = value.strip()
    found = [f"{key} {facts[key]}" for key in _MODEL_FIELDS if key in facts]
    return ", ".join(found) or f"{platform.machine()} {platform.processor()}".strip()


def _caches(root: Path) -> tuple[int, int]:
    sizes = {1: L1_BYTES, 2: L2_BYTES}
    folder = root / "sys/devices/system/cpu/cpu0/cache"
    for index in _folders(folder):
        with suppress(OSError, ValueError):
            level = int((index / "level").read_text())
            if (index / "type").read_text().strip() != "Instruction" and level in sizes:
                sizes[level] = _size((index / "size").read_text())
    return sizes[1], sizes[2]


def _folders(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(folder.glob("index*"))


def _size(text: str) -> int:
    """Bytes of "48K"; raises ValueError for nothing, which no cache has."""
    text = text.strip()
    unit = _UNITS.get(text[-1:], 1)
    size = int(text[:-1] if unit > 1 else text) * unit
    if size <= 0:
        raise ValueError(text)
    return size
