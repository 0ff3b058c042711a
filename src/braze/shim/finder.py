"""Imports of `tensorrt`, `pycuda` and `cuda` that come to braze's modules.

`tensorrt` is always braze's: that is what the program is run for. `pycuda` and `cuda` are the
program's own where they are installed and there is a GPU for them.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.abc
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

TENSORRT: Final = {
    "tensorrt": "braze.tensorrt",
    "tensorrt_bindings": "braze.tensorrt",
    "tensorrt_lean": "braze.tensorrt",
    "tensorrt_dispatch": "braze.tensorrt",
    "tensorrt.plugin": "braze.tensorrt.plugin",
    "tensorrt.tensorrt": "braze.tensorrt",
    "tensorrt_bindings.tensorrt": "braze.tensorrt",
}
CUDA: Final = {
    "pycuda": "braze.shim.pycuda",
    "pycuda.driver": "braze.shim.pycuda.driver",
    "pycuda.autoinit": "braze.shim.pycuda.autoinit",
    "pycuda.autoprimaryctx": "braze.shim.pycuda.autoinit",
    "pycuda.compiler": "braze.shim.pycuda.compiler",
    "pycuda.gpuarray": "braze.shim.pycuda.gpuarray",
    "pycuda.tools": "braze.shim.pycuda.tools",
    "cuda": "braze.shim.cuda",
    "cuda.cuda": "braze.shim.cuda.driver",
    "cuda.cudart": "braze.shim.cuda.runtime",
    "cuda.nvrtc": "braze.shim.cuda.nvrtc",
    "cuda.bindings": "braze.shim.cuda",
    "cuda.bindings.driver": "braze.shim.cuda.driver",
    "cuda.bindings.runtime": "braze.shim.cuda.runtime",
    "cuda.bindings.nvrtc": "braze.shim.cuda.nvrtc",
}
TARGET: Final = "BRAZE_TARGET"  # what engines are built for, as `braze.build` names it
CUDART: Final = re.compile(r"(.*/)?libcudart\.so[.0-9]*$")


class ShimFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the names of a table, whose values are the modules that stand for them."""

    def __init__(self, table: dict[str, str]) -> None:
        self._table = table

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a name in the table."""
        if fullname not in self._table:
            return None
        package = any(name.startswith(f"{fullname}.") for name in self._table)
        return ModuleSpec(fullname, self, is_package=package)

    def create_module(self, spec: ModuleSpec) -> None:
        """An empty one, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module that stands for the name in its place."""
        name = module.__name__
        sys.modules[name] = importlib.import_module(self._table[name])


def has_gpu() -> bool:
    """Whether the driver of an NVIDIA GPU is here and finds one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        return (
            driver.cuInit(0) == 0
            and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
            and (count.value > 0)
        )
    except OSError:
        return False


def install() -> bool:
    """Let later imports find the stand-ins; returns whether they stand for CUDA too.

    With a GPU and a program's own pycuda or CUDA Python those are left alone.
    """
    own = any(PathFinder.find_spec(name) is not None for name in ("pycuda", "cuda"))
    host = not (own and has_gpu())
    table = {**TENSORRT, **CUDA} if host else TENSORRT
    for name in table:  # what was imported before would be found in place of ours
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, ShimFinder(table))
    if host:
        os.environ.setdefault(TARGET, "cpu")  # engines run where the program's memory is
        _replace_cudart()
    return host


def _replace_cudart() -> None:
    """Let ctypes give the host device where a program loads the CUDA runtime by its file name."""
    real: Any = ctypes.CDLL

    class CDLL(real):  # type: ignore[misc]
        """ctypes.CDLL, and the host device for `libcudart.so`."""

        def __new__(cls, name: Any = None, *arguments: Any, **named: Any) -> Any:
            if isinstance(name, str) and CUDART.match(name):
                library = importlib.import_module("braze.shim.cuda.library")
                return library.CudartLibrary(name)
            return super().__new__(cls)

    CDLL.__name__ = CDLL.__qualname__ = "CDLL"
    ctypes.CDLL = CDLL  # type: ignore[misc]
    ctypes.cdll = ctypes.LibraryLoader(CDLL)
