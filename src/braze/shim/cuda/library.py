"""`libcudart` as programs load it with ctypes: functions that take pointers and give a status."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from braze.shim.cuda import calls
from braze.shim.errors import Code, DeviceError

Function = Callable[..., int]


class CudartLibrary:
    """What `ctypes.CDLL("libcudart.so")` gives under `braze shim`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Function:
        if name not in FUNCTIONS:
            raise AttributeError(f"{self._name}: the host device has no {name}")
        function = _Function(FUNCTIONS[name])
        setattr(self, name, function)
        return function

    def __getitem__(self, name: str) -> Function:
        return self.__getattr__(name)


class _Function:
    """A function whose errors are its status; argtypes and restype may be set, as on a real one."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call
        self.argtypes: Any = None
        self.restype: Any = ctypes.c_int

    def __call__(self, *arguments: Any) -> int:
        try:
            self._call(*arguments)
        except DeviceError as e:
            calls.remember(e)
            return int(e.code)
        return int(Code.SUCCESS)


def _number(given: Any) -> int:
    """The value of an int or of a ctypes number or pointer."""
    if given is None:
        return 0
    if isinstance(given, (ctypes._Pointer, ctypes.Array)):
        return ctypes.cast(given, ctypes.c_void_p).value or 0
    value = getattr(given, "value", given)
    return int(value or 0)


def _store(where: Any, value: Any) -> None:
    """Write a result where `byref` or a pointer says."""
    target = getattr(where, "_obj", None)
    if target is None:
        target = where.contents
    target.value = value


def _gives(call: Callable[..., Any]) -> Callable[..., None]:
    """A call whose result goes to its first argument."""
    return lambda where, *rest: _store(where, call(*(_number(a) for a in rest)))


def _takes(call: Callable[..., Any]) -> Callable[..., None]:
    """A call without a result."""

    def taken(*arguments: Any) -> None:
        call(*(_number(a) for a in arguments))

    return taken


def _mem_get_info(free: Any, total: Any) -> None:
    for where, value in zip((free, total), calls.mem_get_info(), strict=True):
        _store(where, value)


FUNCTIONS: dict[str, Callable[..., None]] = {
    "cudaMalloc": _gives(calls.malloc),
    "cudaMallocHost": _gives(calls.malloc),
    "cudaMallocManaged": _gives(lambda size, flags=1: calls.malloc(size)),
    "cudaHostAlloc": _gives(lambda size, flags=0: calls.malloc(size)),
    "cudaFree": _takes(calls.free),
    "cudaFreeHost": _takes(calls.free),
    "cudaMemcpy": _takes(calls.memcpy),
    "cudaMemcpyAsync": _takes(calls.memcpy_async),
    "cudaMemset": _takes(calls.memset),
    "cudaMemsetAsync": _takes(calls.memset_async),
    "cudaMemGetInfo": _mem_get_info,
    "cudaStreamCreate": _gives(calls.stream_create),
    "cudaStreamCreateWithFlags": _gives(lambda flags: calls.stream_create()),
    "cudaStreamDestroy": _takes(calls.stream_destroy),
    "cudaStreamSynchronize": _takes(calls.stream_synchronize),
    "cudaStreamQuery": _takes(calls.stream_query),
    "cudaStreamWaitEvent": _takes(lambda s, event, flags=0: calls.stream_wait_event(s, event)),
    "cudaEventCreate": _gives(calls.event_create),
    "cudaEventCreateWithFlags": _gives(lambda flags: calls.event_create()),
    "cudaEventDestroy": _takes(calls.event_destroy),
    "cudaEventRecord": _takes(calls.event_record),
    "cudaEventSynchronize": _takes(calls.event_synchronize),
    "cudaEventQuery": _takes(calls.event_query),
    "cudaEventElapsedTime": _gives(calls.event_elapsed),
    "cudaDeviceSynchronize": _takes(calls.synchronize),
    "cudaGetDeviceCount": _gives(calls.device_count),
    "cudaGetDevice": _gives(calls.get_device),
    "cudaSetDevice": _takes(calls.set_device),
    "cudaRuntimeGetVersion": _gives(lambda: calls.VERSION),
    "cudaDriverGetVersion": _gives(lambda: calls.VERSION),
    "cudaDeviceGetAttribute": _gives(calls.attribute),
}
