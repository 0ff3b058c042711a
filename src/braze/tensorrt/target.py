"""What engines are built for where TensorRT's names do not say it."""

from __future__ import annotations

import importlib.util
import os

from braze.shim.finder import TARGET, has_gpu


def default_target() -> str:
    """That of BRAZE_TARGET; else the GPU, where one and a compiler for it are here; else the CPU.

    `braze shim` sets the variable where it gives programs memory of the host.
    """
    given = os.environ.get(TARGET)
    if given:
        return given
    compiles = importlib.util.find_spec("triton") is not None
    return "cuda" if compiles and has_gpu() else "cpu"
