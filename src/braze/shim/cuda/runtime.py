"""`cuda.cudart` and `cuda.bindings.runtime`: every call gives its status and then its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from braze.shim.cuda import calls, pools
from braze.shim.cuda.pools import (
    cudaMemAllocationHandleType,
    cudaMemAllocationType,
    cudaMemLocation,
    cudaMemLocationType,
    cudaMemPoolAttr,
    cudaMemPoolProps,
)
from braze.shim.cuda.types import (
    cudaDeviceAttr,
    cudaDeviceProp,
    cudaError_t,
    cudaMemcpyKind,
    runtime_error,
)
from braze.shim.errors import Code, DeviceError, meaning

Result = tuple[Any, ...]

cudaStreamDefault: Final = 0
cudaStreamNonBlocking: Final = 1
cudaStreamLegacy: Final = 1
cudaStreamPerThread: Final = 2
cudaEventDefault: Final = 0
cudaEventBlockingSync: Final = 1
cudaEventDisableTiming: Final = 2
cudaHostAllocDefault: Final = 0
cudaHostAllocPortable: Final = 1
cudaHostAllocMapped: Final = 2
cudaHostAllocWriteCombined: Final = 4
cudaMemAttachGlobal: Final = 1
cudaMemAttachHost: Final = 2


class cudaStream_t(int):
    """A stream."""


class cudaEvent_t(int):
    """An event."""


def _told(call: Callable[..., Any], *arguments: Any, empty: Result = ()) -> Result:
    """The status and the result of a call; `empty` stands for results where it failed."""
    try:
        result = call(*arguments)
    except DeviceError as e:
        calls.remember(e)
        return (runtime_error(e.code), *empty)
    except (TypeError, ValueError) as e:
        calls.remember(DeviceError(Code.INVALID_VALUE, str(e)))
        return (cudaError_t.cudaErrorInvalidValue, *empty)
    if result is None:
        return (cudaError_t.cudaSuccess,)
    return (cudaError_t.cudaSuccess, *(result if isinstance(result, tuple) else (result,)))


def cudaMalloc(size: int) -> Result:
    """Device memory."""
    return _told(calls.malloc, size, empty=(0,))


def cudaMallocAsync(size: int, stream: int) -> Result:
    """Device memory in the order of a stream."""
    return _told(calls.malloc, size, empty=(0,))


def cudaMallocManaged(size: int, flags: int = cudaMemAttachGlobal) -> Result:
    """Memory both sides see."""
    return _told(calls.malloc, size, empty=(0,))


def cudaMallocHost(size: int) -> Result:
    """Memory of the host."""
    return _told(calls.malloc, size, empty=(0,))


def cudaHostAlloc(size: int, flags: int = 0) -> Result:
    """Memory of the host."""
    return _told(calls.malloc, size, empty=(0,))


def cudaFree(address: int) -> Result:
    """Give memory back."""
    return _told(calls.free, address)


def cudaFreeAsync(address: int, stream: int) -> Result:
    """Give memory back in the order of a stream."""
    return _told(calls.free_async, address, stream)


def cudaFreeHost(address: int) -> Result:
    """Give memory of the host back."""
    return _told(calls.free, address)


def cudaHostRegister(address: int, size: int, flags: int = 0) -> Result:
    """Nothing is to be done."""
    return (cudaError_t.cudaSuccess,)


def cudaHostUnregister(address: int) -> Result:
    """Nothing is to be done."""
    return (cudaError_t.cudaSuccess,)


def cudaMemcpy(dst: int, src: int, count: int, kind: int) -> Result:
    """Copy and wait."""
    return _told(calls.memcpy, dst, src, count, kind)


def cudaMemcpyAsync(dst: int, src: int, count: int, kind: int, stream: int) -> Result:
    """Copy in the order of a stream."""
    return _told(calls.memcpy_async, dst, src, count, kind, stream)


def cudaMemset(address: int, value: int, count: int) -> Result:
    """Fill with a byte."""
    return _told(calls.memset, address, value, count)


def cudaMemsetAsync(address: int, value: int, count: int, stream: int) -> Result:
    """Fill with a byte in the order of a stream."""
    return _told(calls.memset_async, address, value, count, stream)


def cudaMemGetInfo() -> Result:
    """(status, free, total)."""
    return _told(calls.mem_get_info)


def cudaMemPoolCreate(poolProps: Any) -> Result:
    """A pool."""
    return _told(pools.create, poolProps)


def cudaMemPoolSetAttribute(memPool: int, attr: int, value: Any) -> Result:
    """Nothing is to be done."""
    return (cudaError_t.cudaSuccess,)


def cudaMemPoolDestroy(memPool: int) -> Result:
    """Nothing is to be done."""
    return (cudaError_t.cudaSuccess,)


def cudaMallocFromPoolAsync(size: int, memPool: int, stream: int) -> Result:
    """Memory of a pool."""
    return _told(pools.malloc, size, memPool, stream, empty=(0,))


def cudaStreamCreate() -> Result:
    """A new stream."""
    return _told(lambda: cudaStream_t(calls.stream_create()))


def cudaStreamCreateWithFlags(flags: int) -> Result:
    """A new stream."""
    return _told(lambda: cudaStream_t(calls.stream_create()))


def cudaStreamCreateWithPriority(flags: int, priority: int) -> Result:
    """A new stream."""
    return _told(lambda: cudaStream_t(calls.stream_create()))


def cudaStreamDestroy(stream: int) -> Result:
    """Let go of a stream."""
    return _told(calls.stream_destroy, stream)


def cudaStreamSynchronize(stream: int) -> Result:
    """Wait for a stream."""
    return _told(calls.stream_synchronize, stream)


def cudaStreamQuery(stream: int) -> Result:
    """Whether a stream is done."""
    return _told(calls.stream_query, stream)


def cudaStreamWaitEvent(stream: int, event: int, flags: int = 0) -> Result:
    """Let later work wait for an event."""
    return _told(calls.stream_wait_event, stream, event)


def cudaStreamBeginCapture(stream: int, mode: int) -> Result:
    """CUDA graphs do not exist on the host."""
    return (cudaError_t.cudaErrorNotSupported,)


def cudaEventCreate() -> Result:
    """A new event."""
    return _told(lambda: cudaEvent_t(calls.event_create()))


def cudaEventCreateWithFlags(flags: int) -> Result:
    """A new event."""
    return _told(lambda: cudaEvent_t(calls.event_create()))


def cudaEventDestroy(event: int) -> Result:
    """Forget an event."""
    return _told(calls.event_destroy, event)


def cudaEventRecord(event: int, stream: int) -> Result:
    """Mark where a stream is."""
    return _told(calls.event_record, event, stream)


def cudaEventSynchronize(event: int) -> Result:
    """Wait for a mark."""
    return _told(calls.event_synchronize, event)


def cudaEventQuery(event: int) -> Result:
    """Whether the stream has come to a mark."""
    return _told(calls.event_query, event)


def cudaEventElapsedTime(start: int, end: int) -> Result:
    """Milliseconds between marks."""
    return _told(calls.event_elapsed, start, end, empty=(0.0,))


def cudaDeviceSynchronize() -> Result:
    """Wait for everything."""
    return _told(calls.synchronize)


def cudaGetDeviceCount() -> Result:
    """One."""
    return _told(calls.device_count)


def cudaGetDevice() -> Result:
    """The host's number."""
    return _told(calls.get_device)


def cudaSetDevice(device: int) -> Result:
    """Only the host's number."""
    return _told(calls.set_device, device)


def cudaGetDeviceProperties(device: int) -> Result:
    """What the host is as a device."""
    return _told(calls.properties, device, empty=(None,))


def cudaDeviceGetAttribute(attribute: int, device: int) -> Result:
    """An attribute of the host."""
    return _told(calls.attribute, attribute, device, empty=(0,))


def cudaRuntimeGetVersion() -> Result:
    """The CUDA version whose names are here."""
    return (cudaError_t.cudaSuccess, calls.VERSION)


def cudaDriverGetVersion() -> Result:
    """The same."""
    return (cudaError_t.cudaSuccess, calls.VERSION)


def cudaGetLastError() -> Result:
    """The last error of this thread, which is forgotten."""
    return (runtime_error(calls.last_error(True)),)


def cudaPeekAtLastError() -> Result:
    """The last error of this thread."""
    return (runtime_error(calls.last_error(False)),)


def cudaGetErrorName(error: int) -> Result:
    """The name of a status."""
    known = {int(e): e.name for e in cudaError_t}
    return (cudaError_t.cudaSuccess, known.get(int(error), meaning(int(error))).encode())


def cudaGetErrorString(error: int) -> Result:
    """A status in words."""
    return (cudaError_t.cudaSuccess, meaning(int(error)).encode())


__all__ = [
    "cudaDeviceAttr",
    "cudaDeviceGetAttribute",
    "cudaDeviceProp",
    "cudaDeviceSynchronize",
    "cudaDriverGetVersion",
    "cudaError_t",
    "cudaEventBlockingSync",
    "cudaEventCreate",
    "cudaEventCreateWithFlags",
    "cudaEventDefault",
    "cudaEventDestroy",
    "cudaEventDisableTiming",
    "cudaEventElapsedTime",
    "cudaEventQuery",
    "cudaEventRecord",
    "cudaEventSynchronize",
    "cudaEvent_t",
    "cudaFree",
    "cudaFreeAsync",
    "cudaFreeHost",
    "cudaGetDevice",
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaGetLastError",
    "cudaHostAlloc",
    "cudaHostAllocDefault",
    "cudaHostAllocMapped",
    "cudaHostAllocPortable",
    "cudaHostAllocWriteCombined",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaMalloc",
    "cudaMallocAsync",
    "cudaMallocFromPoolAsync",
    "cudaMallocHost",
    "cudaMallocManaged",
    "cudaMemAllocationHandleType",
    "cudaMemAllocationType",
    "cudaMemAttachGlobal",
    "cudaMemAttachHost",
    "cudaMemGetInfo",
    "cudaMemLocation",
    "cudaMemLocationType",
    "cudaMemPoolAttr",
    "cudaMemPoolCreate",
    "cudaMemPoolDestroy",
    "cudaMemPoolProps",
    "cudaMemPoolSetAttribute",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemcpyKind",
    "cudaMemset",
    "cudaMemsetAsync",
    "cudaPeekAtLastError",
    "cudaRuntimeGetVersion",
    "cudaSetDevice",
    "cudaStreamBeginCapture",
    "cudaStreamCreate",
    "cudaStreamCreateWithFlags",
    "cudaStreamCreateWithPriority",
    "cudaStreamDefault",
    "cudaStreamDestroy",
    "cudaStreamLegacy",
    "cudaStreamNonBlocking",
    "cudaStreamPerThread",
    "cudaStreamQuery",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
    "cudaStream_t",
]
