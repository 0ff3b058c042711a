"""`pycuda` on the host device."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final

VERSION: Final = (2024, 1)
VERSION_STATUS: Final = ""
VERSION_TEXT: Final = "2024.1"
_ALIASES: Final = {
    **{name: name for name in ("autoinit", "compiler", "driver", "gpuarray", "tools")},
    "autoprimaryctx": "autoinit",
}


def __getattr__(name: str) -> ModuleType:
    """A module under one of its names."""
    if name not in _ALIASES:
        raise AttributeError(f"module 'pycuda' has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{_ALIASES[name]}")
