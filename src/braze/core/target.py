"""Targets: what code is generated for. Frozen, hashable, part of every cache key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from braze.core.errors import ConfigError

# isa name -> (LLVM cpu, LLVM feature string, vector bits)
ISAS: Final = {
    "avx512": ("x86-64-v4", "+avx512f,+avx512bw,+avx512dq,+avx512vl,-prefer-256-bit", 512),
    "avx2": ("x86-64-v3", "", 256),
    "x86-64": ("x86-64", "", 128),
}


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """A CPU: instruction set (a key of ISAS), worker threads, and cache sizes in bytes."""

    isa: str
    threads: int
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        if self.isa not in list(ISAS):
            raise ConfigError(f"isa {self.isa!r} is not one of {', '.join(ISAS)}")
        if not 1 <= self.threads <= 1024:
            raise ConfigError(f"threads={self.threads} is outside 1..1024; use 0 for all")

    @property
    def vector_bits(self) -> int:
        return ISAS[self.isa][2]

    @property
    def fingerprint(self) -> str:
        """What compiled code and timings depend on."""
        return f"cpu-{self.isa}-t{self.threads}"
