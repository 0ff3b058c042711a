"""ctypes binding to the native runtime (native/include/braze.h); the only place that knows it.

The library lies in the package, at braze/lib/libbraze_runtime.so. Calls release the GIL.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from braze.core.errors import (
    BindingError,
    BrazeError,
    CompileError,
    ConfigError,
    EngineFormatError,
    EngineVersionError,
    ExecutionError,
    ProfileError,
    ShapeError,
    TargetError,
)
from braze.core.words import shown
from braze.runtime.libraries import package_folders

ABI_VERSION: Final = 2
BORROW: Final = 1
NO_GRAPH: Final = 1
SLEEP: Final = 2
MAX_THREADS: Final = 1024
LIBRARY_PATH: Final = Path(__file__).resolve().parent.parent / "lib" / "libbraze_runtime.so"

ERRORS: Final[dict[int, type[BrazeError]]] = {
    1: EngineFormatError,
    2: EngineVersionError,
    3: TargetError,
    4: ShapeError,
    5: ProfileError,
    6: BindingError,
    7: ExecutionError,
    8: CompileError,
}


class Memory(ctypes.Structure):
    """braze_memory."""

    _fields_ = (("data", c_void_p), ("bytes", c_int64))


class TensorInfo(ctypes.Structure):
    """braze_tensor_info."""

    _fields_ = (
        ("struct_size", c_uint64),
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("dtype_bytes", c_int32),
        ("rank", c_int32),
        ("is_output", c_int32),
        ("has_value", c_int32),
        ("dims", POINTER(c_int64)),
        ("shape_from_run", c_int32),
    )


class StepInfo(ctypes.Structure):
    """braze_step_info."""

    _fields_ = (
        ("struct_size", c_uint64),
        ("name", c_char_p),
        ("tactic", c_char_p),
        ("origins", c_char_p),
        ("parallel", c_int32),
    )


PROFILE_FN: Final = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_int64)
DEBUG_FN: Final = ctypes.CFUNCTYPE(
    None, c_void_p, c_int32, c_void_p, POINTER(c_int64), c_int32, c_int64
)
ALLOCATE_FN: Final = ctypes.CFUNCTYPE(
    c_void_p, c_void_p, c_int32, POINTER(c_int64), c_int32, c_int64
)
HOST_FN: Final = ctypes.CFUNCTYPE(None, c_void_p)


class RunTimes(ctypes.Structure):
    """braze_run_times."""

    _fields_ = (
        ("struct_size", c_uint64),
        ("h2d_ns", c_int64),
        ("enqueue_ns", c_int64),
        ("compute_ns", c_int64),
        ("d2h_ns", c_int64),
    )


class RunOptions(ctypes.Structure):
    """braze_run_options."""

    _fields_ = (
        ("struct_size", c_uint64),
        ("num_workers", c_int32),
        ("flags", c_int32),
        ("profile", PROFILE_FN),
        ("debug", DEBUG_FN),
        ("user", c_void_p),
        ("allocate", ALLOCATE_FN),
        ("times", POINTER(RunTimes)),
    )


class EngineOptions(ctypes.Structure):
    """braze_engine_options."""

    _fields_ = (
        ("struct_size", c_uint64),
        ("threads", c_int32),
        ("flags", c_uint32),
        ("weight_budget", c_int64),
    )


class ContextOptions(ctypes.Structure):
    """braze_context_options."""

    _fields_ = (
        ("struct_size", c_uint64),
        ("profile", c_int32),
        ("priority", c_int32),
        ("extra_streams", c_int32),
    )


_DIMS: Final = POINTER(c_int64)
_OUT: Final = POINTER(c_void_p)

# name -> (result, arguments); c_int32 results of functions not in _PLAIN are statuses.
_PLAIN: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "braze_abi_version": (c_int32, ()),
    "braze_last_error": (c_char_p, ()),
    "braze_host_isa": (c_char_p, ()),
    "braze_host_features": (c_char_p, ()),
    "braze_host_cpus": (c_int32, ()),
    "braze_engine_destroy": (None, (c_void_p,)),
    "braze_engine_num_inputs": (c_int32, (c_void_p,)),
    "braze_engine_num_outputs": (c_int32, (c_void_p,)),
    "braze_engine_num_profiles": (c_int32, (c_void_p,)),
    "braze_engine_num_steps": (c_int32, (c_void_p,)),
    "braze_engine_num_debug_tensors": (c_int32, (c_void_p,)),
    "braze_engine_threads": (c_int32, (c_void_p,)),
    "braze_context_destroy": (None, (c_void_p,)),
    "braze_stream_destroy": (None, (c_void_p,)),
    "braze_event_destroy": (None, (c_void_p,)),
    "braze_kernel_destroy": (None, (c_void_p,)),
    "braze_buffer_destroy": (None, (c_void_p,)),
    "braze_buffer_data": (c_void_p, (c_void_p,)),
}
_CHECKED: Final[dict[str, tuple[Any, ...]]] = {
    "braze_host_supports": (c_char_p,),
    "braze_set_library_folders": (c_char_p,),
    "braze_engine_load_with": (c_char_p, c_void_p, c_uint64, POINTER(EngineOptions), _OUT),
    "braze_engine_verify": (c_void_p,),
    "braze_engine_bytes": (c_void_p, _OUT, POINTER(c_uint64)),
    "braze_engine_binding": (c_void_p, c_int32, POINTER(TensorInfo)),
    "braze_engine_debug_tensor": (c_void_p, c_int32, POINTER(TensorInfo)),
    "braze_engine_step": (c_void_p, c_int32, POINTER(StepInfo)),
    "braze_engine_device": (c_void_p, POINTER(c_int32), POINTER(c_int32)),
    "braze_engine_copy": (c_void_p, c_void_p, c_void_p, c_int64),
    "braze_engine_wait_cuda": (c_void_p, c_void_p),
    "braze_buffer_create": (c_void_p, c_int32, c_int64, _OUT),
    "braze_buffer_dlpack": (c_void_p, c_int32, c_int32, _DIMS, c_int32, _OUT),
    "braze_context_create_with": (c_void_p, POINTER(ContextOptions), _OUT),
    "braze_context_enqueue_cuda": (c_void_p, c_void_p, POINTER(RunOptions)),
    "braze_context_synchronize": (c_void_p,),
    "braze_context_set_shapes": (c_void_p, _DIMS, c_int64),
    "braze_context_set_input_shape": (c_void_p, c_int32, _DIMS, c_int32),
    "braze_context_binding_shape": (c_void_p, c_int32, _DIMS, _DIMS),
    "braze_context_profile": (c_void_p, POINTER(c_int32), _DIMS),
    "braze_context_run": (
        c_void_p,
        _DIMS,
        c_int64,
        POINTER(Memory),
        c_int64,
        POINTER(RunOptions),
    ),
    "braze_context_bind": (c_void_p, c_int32, c_void_p, c_int64),
    "braze_context_execute": (c_void_p, POINTER(RunOptions)),
    "braze_context_enqueue": (c_void_p, c_void_p, POINTER(RunOptions)),
    "braze_stream_create": (_OUT,),
    "braze_stream_synchronize": (c_void_p,),
    "braze_stream_query": (c_void_p, POINTER(c_int32)),
    "braze_stream_progress": (c_void_p, _DIMS, _DIMS),
    "braze_stream_call": (c_void_p, HOST_FN, c_void_p),
    "braze_stream_wait_event": (c_void_p, c_void_p),
    "braze_event_create": (_OUT,),
    "braze_event_record": (c_void_p, c_void_p),
    "braze_event_synchronize": (c_void_p,),
    "braze_event_query": (c_void_p, POINTER(c_int32)),
    "braze_event_elapsed_ms": (c_void_p, c_void_p, POINTER(c_double)),
    "braze_kernel_load": (c_char_p, c_uint64, c_char_p, _OUT),
    "braze_kernel_run": (c_void_p, _OUT, _DIMS, c_int32, POINTER(c_int32)),
    "braze_kernel_time": (c_void_p, _OUT, _DIMS, c_int32, c_int32, c_int32, _DIMS),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library with typed functions; raises ExecutionError when it is not there."""
    try:
        lib = ctypes.CDLL(str(LIBRARY_PATH))
    except OSError as e:
        raise ExecutionError(
            f"the native runtime cannot be loaded ({e}); reinstall braze, "
            "or in a source tree run `make native`"
        ) from e
    for name, (result, arguments) in _PLAIN.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    if lib.braze_abi_version() != ABI_VERSION:
        raise ExecutionError(
            f"the native runtime at {LIBRARY_PATH} has ABI {lib.braze_abi_version()} but this "
            f"package needs {ABI_VERSION}; reinstall braze, or in a source tree run `make native`"
        )
    for name, arguments in _CHECKED.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = c_int32, arguments
    lib.braze_set_library_folders(os.pathsep.join(package_folders()).encode())
    return lib


def check(status: int) -> None:
    """Raise the typed error of a failed call on this thread."""
    if status:
        message = library().braze_last_error().decode("utf-8", "replace")
        raise ERRORS.get(status, ExecutionError)(message)


def host_isa() -> str:
    """The widest instruction set of this machine: "avx512", "avx2", "x86-64" or "aarch64"."""
    return str(library().braze_host_isa().decode())


def host_features() -> tuple[str, ...]:
    """The processor features found here, by their LLVM names."""
    return tuple(library().braze_host_features().decode().split())


def host_cpus() -> int:
    """CPUs this process may run on."""
    return int(library().braze_host_cpus())


def require_isa(isa: str) -> None:
    """Raise TargetError unless this machine runs `isa` (a name, then any "+feature")."""
    check(library().braze_host_supports(isa.encode()))


def thread_count(value: object) -> int:
    """`value` as a number of threads for the native runtime; raises ConfigError."""
    if not isinstance(value, int) or not 0 <= value <= MAX_THREADS:
        raise ConfigError(
            f"{shown(value)} is not a number of threads from 0 (all) to {MAX_THREADS}"
        )
    return int(value)


def engine_options(threads: object, weight_budget: int | None) -> EngineOptions:
    """Options of loading an engine, whose bytes are borrowed; raises ConfigError."""
    budget = -1 if weight_budget is None else weight_budget
    if not isinstance(budget, int) or (weight_budget is not None and not 0 <= budget < 1 << 63):
        raise ConfigError(
            f"a weight budget of {shown(weight_budget)} bytes cannot be; give 0 or more"
        )
    return EngineOptions(ctypes.sizeof(EngineOptions), thread_count(threads), BORROW, budget)


def run_options(workers: object, *, graph: bool = True, sleep: bool = False) -> RunOptions:
    """Options of a run on `workers` threads; raises ConfigError.

    On a GPU: graph=False launches step by step, sleep=True waits without using a CPU.
    """
    for name, given in (("graph", graph), ("sleep", sleep)):
        if not isinstance(given, (bool, int)):
            raise ConfigError(f"{name}={shown(given)} is neither True nor False; give one of them")
    flags = (0 if graph else NO_GRAPH) | (SLEEP if sleep else 0)
    return RunOptions(ctypes.sizeof(RunOptions), thread_count(workers), flags)


class LoadedKernel:
    """One kernel from an ELF object in memory, to run and time on its own (for the tuner).

    Buffers are numpy arrays or integer addresses; arrays must be contiguous and are kept alive
    during the call.
    """

    def __init__(self, object_bytes: bytes, entry: str) -> None:
        self._lib = library()
        self._handle = c_void_p()
        data = bytes(object_bytes)
        out = ctypes.byref(self._handle)
        check(self._lib.braze_kernel_load(data, len(data), entry.encode(), out))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.braze_kernel_destroy(self._handle)
            del self._handle

    def run(
        self,
        buffers: Sequence[int | npt.NDArray[Any]],
        params: Sequence[int] = (),
        workers: int = 1,
    ) -> int:
        """Run once on `workers` threads; returns the kernel's status (0 is success)."""
        status = c_int32()
        check(
            self._lib.braze_kernel_run(
                self._handle, _pointers(buffers), _int64s(params), workers, ctypes.byref(status)
            )
        )
        return status.value

    def time(
        self,
        buffers: Sequence[int | npt.NDArray[Any]],
        params: Sequence[int] = (),
        workers: int = 1,
        warmup: int = 1,
        repeats: int = 5,
    ) -> list[float]:
        """Seconds of each of `repeats` runs after `warmup` runs."""
        ns = (c_int64 * max(1, repeats))()
        check(
            self._lib.braze_kernel_time(
                self._handle, _pointers(buffers), _int64s(params), workers, warmup, repeats, ns
            )
        )
        return [value * 1e-9 for value in ns[:repeats]]


def _pointers(buffers: Sequence[int | npt.NDArray[Any]]) -> ctypes.Array[c_void_p]:
    addresses = (c_void_p * max(1, len(buffers)))()
    for i, buffer in enumerate(buffers):
        if isinstance(buffer, np.ndarray):
            if not buffer.flags.c_contiguous:
                raise BindingError(f"kernel buffer {i} is not contiguous; copy it first")
            addresses[i] = buffer.ctypes.data
        else:
            addresses[i] = buffer
    return addresses


def _int64s(values: Sequence[int]) -> ctypes.Array[c_int64]:
    return (c_int64 * max(1, len(values)))(*values)
