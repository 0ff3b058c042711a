"""CUDA targets: compute capabilities, and what tactics ask about a card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from braze.engine.schema import MIN_ALIGN

# compute capability -> bytes of shared memory that one block may use (CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability")
SHARED_BYTES: Final = {
    "sm_80": 163 << 10, "sm_86": 99 << 10, "sm_89": 99 << 10, "sm_90": 227 << 10,
    "sm_100": 227 << 10, "sm_120": 99 << 10,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CudaTarget:
    """An NVIDIA GPU by compute capability; `card` and `driver` are known where one is present."""

    capability: str
    threads: int
    card: str = ""
    driver: str = ""

    @property
    def name(self) -> str:
        return f"cuda:{self.capability}"

    @property
    def alignment(self) -> int:
        return MIN_ALIGN

    @property
    def space(self) -> str:
        return "device"

    @property
    def number(self) -> int:
        """90 for sm_90."""
        return int(self.capability.removeprefix("sm_"))

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one block may use."""
        return SHARED_BYTES[self.capability]

    @property
    def fingerprint(self) -> str:
        return f"{self.name} {self.card} driver {self.driver}"

    def describe(self) -> dict[str, Any]:
        return {"arch": "cuda", "capability": self.capability}
