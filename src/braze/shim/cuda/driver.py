"""`cuda.cuda` and `cuda.bindings.driver`: calls of the driver that scripts use beside cudart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from braze.shim.cuda import calls
from braze.shim.cuda.types import CUresult, driver_error
from braze.shim.errors import DeviceError, meaning

Result = tuple[Any, ...]


class CUdeviceptr(int):
    """A device address."""


class CUstream(int):
    """A stream."""


class CUevent(int):
    """An event."""


def _told(call: Callable[..., Any], *arguments: Any, empty: Result = ()) -> Result:
    try:
        result = call(*arguments)
    except DeviceError as e:
        return (driver_error(e.code), *empty)
    if result is None:
        return (CUresult.CUDA_SUCCESS,)
    return (CUresult.CUDA_SUCCESS, *(result if isinstance(result, tuple) else (result,)))


def cuInit(flags: int) -> Result:
    """Nothing is to be done."""
    return (CUresult.CUDA_SUCCESS,)


def cuDeviceGet(ordinal: int) -> Result:
    """The host."""
    return _told(calls.device_number, ordinal)


def cuDeviceGetCount() -> Result:
    """One."""
    return _told(calls.device_count)


def cuDeviceGetName(length: int, device: int) -> Result:
    """What the host is."""
    return _told(lambda: calls.properties(device).name[:length])


def cuCtxCreate(flags: int, device: int) -> Result:
    """A context; there is but one."""
    return (CUresult.CUDA_SUCCESS, 1)


def cuCtxDestroy(context: int) -> Result:
    """Nothing is to be done."""
    return (CUresult.CUDA_SUCCESS,)


def cuDevicePrimaryCtxRetain(device: int) -> Result:
    """The context."""
    return (CUresult.CUDA_SUCCESS, 1)


def cuCtxSetCurrent(context: int) -> Result:
    """Nothing is to be done."""
    return (CUresult.CUDA_SUCCESS,)


def cuCtxSynchronize() -> Result:
    """Wait for everything."""
    return _told(calls.synchronize)


def cuMemAlloc(size: int) -> Result:
    """Device memory."""
    return _told(lambda: CUdeviceptr(calls.malloc(size)), empty=(0,))


def cuMemFree(address: int) -> Result:
    """Give memory back."""
    return _told(calls.free, address)


def cuMemcpyHtoD(dst: int, src: int, size: int) -> Result:
    """Copy to the device."""
    return _told(calls.memcpy, dst, src, size, 1)


def cuMemcpyDtoH(dst: int, src: int, size: int) -> Result:
    """Copy to the host."""
    return _told(calls.memcpy, dst, src, size, 2)


def cuMemcpyHtoDAsync(dst: int, src: int, size: int, stream: int) -> Result:
    """Copy to the device in the order of a stream."""
    return _told(calls.memcpy_async, dst, src, size, 1, stream)


def cuMemcpyDtoHAsync(dst: int, src: int, size: int, stream: int) -> Result:
    """Copy to the host in the order of a stream."""
    return _told(calls.memcpy_async, dst, src, size, 2, stream)


def cuStreamCreate(flags: int) -> Result:
    """A new stream."""
    return _told(lambda: CUstream(calls.stream_create()))


def cuStreamDestroy(stream: int) -> Result:
    """Let go of a stream."""
    return _told(calls.stream_destroy, stream)


def cuStreamSynchronize(stream: int) -> Result:
    """Wait for a stream."""
    return _told(calls.stream_synchronize, stream)


def cuGetErrorName(error: int) -> Result:
    """The name of a status."""
    name = next((e.name for e in CUresult if e == int(error)), None)
    return (CUresult.CUDA_ERROR_INVALID_VALUE, None) if name is None else _named(name)


def cuGetErrorString(error: int) -> Result:
    """A status in words."""
    if int(error) not in list(CUresult):
        return (CUresult.CUDA_ERROR_INVALID_VALUE, None)
    return _named(meaning(int(error)))


def _named(text: str) -> Result:
    return (CUresult.CUDA_SUCCESS, text.encode())


def cuDriverGetVersion() -> Result:
    """The CUDA version whose names are here."""
    return (CUresult.CUDA_SUCCESS, calls.VERSION)
