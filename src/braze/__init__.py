"""braze: an open inference compiler. An ONNX model in, a tuned serialized engine out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from braze.core.version import __version__

if TYPE_CHECKING:
    from braze.api import build, compile
    from braze.core.errors import (
        BindingError,
        BrazeError,
        CompileError,
        ConfigError,
        DTypeError,
        EngineFormatError,
        EngineVersionError,
        ExecutionError,
        FileError,
        InternalError,
        ModelError,
        OptionError,
        ProfileError,
        ShapeError,
        TargetError,
        UnsupportedOpError,
        VerifyError,
    )
    from braze.quantization.face import quantize
    from braze.runtime.engine import Engine

    load = Engine.load

__all__ = [
    "BindingError",
    "BrazeError",
    "CompileError",
    "ConfigError",
    "DTypeError",
    "Engine",
    "EngineFormatError",
    "EngineVersionError",
    "ExecutionError",
    "FileError",
    "InternalError",
    "ModelError",
    "OptionError",
    "ProfileError",
    "ShapeError",
    "TargetError",
    "UnsupportedOpError",
    "VerifyError",
    "__version__",
    "build",
    "compile",
    "load",
    "quantize",
]


def __getattr__(name: str) -> Any:
    """Import what is used when it is first used: running an engine does not need the compiler."""
    if name in ("build", "compile"):
        home: Any = importlib.import_module("braze.api")
    elif name == "quantize":
        home = importlib.import_module("braze.quantization.face")
    elif name in ("load", "Engine"):
        home = importlib.import_module("braze.runtime.engine")
    elif name in __all__:
        home = importlib.import_module("braze.core.errors")
    else:
        raise AttributeError(f"module 'braze' has no attribute {name!r}")
    globals()[name] = home.Engine.load if name == "load" else getattr(home, name)
    return globals()[name]
