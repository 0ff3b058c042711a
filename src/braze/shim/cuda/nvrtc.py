"""`cuda.nvrtc`: its status type, which error checks of scripts name; it compiles nothing here."""

from __future__ import annotations

from typing import Any

from braze.shim.cuda.types import nvrtcResult


def nvrtcGetErrorString(result: int) -> tuple[Any, ...]:
    """The name of a status."""
    return (nvrtcResult.NVRTC_SUCCESS, nvrtcResult(int(result)).name.encode())


__all__ = ["nvrtcGetErrorString", "nvrtcResult"]
