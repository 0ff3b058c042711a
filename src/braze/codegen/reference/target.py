"""The target of the reference backend: numpy on the caller's thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from braze.engine.schema import MIN_ALIGN

FLOAT64: Final = "float64"


@dataclass(frozen=True, slots=True)
class ReferenceTarget:
    """variant: "" for the element types of kernels, FLOAT64 to accumulate in float64."""

    variant: str = ""

    @property
    def name(self) -> str:
        return f"reference:{self.variant}" if self.variant else "reference"

    @property
    def threads(self) -> int:
        return 1

    @property
    def alignment(self) -> int:
        return MIN_ALIGN

    @property
    def space(self) -> str:
        return "host"

    @property
    def fingerprint(self) -> str:
        return self.name

    def describe(self) -> dict[str, Any]:
        return {"backend": self.name}
