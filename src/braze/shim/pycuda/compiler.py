"""`pycuda.compiler`: kernels of CUDA are not compiled for the host."""

from __future__ import annotations

from typing import Any

from braze.shim.pycuda.errors import RuntimeError


class SourceModule:
    """Refuses: a program with kernels of its own needs a GPU."""

    def __init__(self, source: str, *arguments: Any, **named: Any) -> None:
        raise RuntimeError(
            "kernels written in CUDA do not run on the host; run this program where there is a GPU"
        )
