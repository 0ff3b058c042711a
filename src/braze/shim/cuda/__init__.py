"""The `cuda` package of CUDA Python on the host device: `cuda.cudart`, `cuda.bindings`, …"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Final

# the names that CUDA Python has for them, before and since `cuda.bindings`
_ALIASES: Final = {
    "cudart": "runtime",
    "runtime": "runtime",
    "cuda": "driver",
    "driver": "driver",
    "nvrtc": "nvrtc",
}


def __getattr__(name: str) -> ModuleType:
    """A module under one of its names; `bindings` is this package again."""
    if name == "bindings":
        return sys.modules[__name__]
    if name not in _ALIASES:
        raise AttributeError(f"module 'cuda' has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{_ALIASES[name]}")
