"""The calls of the CUDA runtime on the host device, once for all faces: results, or DeviceError.

`runtime.py` gives them as CUDA Python does, `library.py` as a C library does.
"""

from __future__ import annotations

import os
from typing import Any, Final

from braze.shim import memory as _memory
from braze.shim.cuda.types import cudaDeviceAttr, cudaDeviceProp
from braze.shim.device import host_device, wait
from braze.shim.errors import Code, DeviceError

VERSION: Final = 12040


def remember(error: DeviceError) -> None:
    """Keep the error for last_error."""
    host_device().last_error.code = error.code


def last_error(clear: bool) -> Code:
    """The last error of this thread."""
    kept = host_device().last_error
    code: Code = getattr(kept, "code", Code.SUCCESS)
    if clear:
        kept.code = Code.SUCCESS
    return code


# ---- memory -----------------------------------------------------------------------------


def malloc(size: int) -> int:
    """Device memory, or memory of the host: here they are one."""
    return host_device().memory.allocate(int(size))


def free(address: int) -> None:
    """Give memory back; nothing at 0."""
    if int(address):
        host_device().free(int(address))


def free_async(address: int, stream: int) -> None:
    """Give memory back when the stream has come here; waiting for that is allowed."""
    host_device().stream(int(stream))
    free(address)


def memcpy(target: int, source: int, size: int, kind: int) -> None:
    """Copy and wait."""
    host_device().copy(_address(target), _address(source), int(size))


def memcpy_async(target: int, source: int, size: int, kind: int, stream: int) -> None:
    """Copy in the order of a stream."""
    host_device().copy(_address(target), _address(source), int(size), int(stream))


def memset(target: int, value: int, size: int) -> None:
    """Fill with a byte and wait."""
    host_device().fill(_address(target), bytes([int(value) & 255]), int(size))


def memset_async(target: int, value: int, size: int, stream: int) -> None:
    """Fill with a byte in the order of a stream."""
    host_device().fill(_address(target), bytes([int(value) & 255]), int(size), int(stream))


def mem_get_info() -> tuple[int, int]:
    """(free, total) bytes."""
    return _memory.free_memory(), _memory.total_memory()


def _address(given: Any) -> int:
    """An address given as an int, a pointer object, or anything with an array's memory."""
    interface = getattr(given, "__array_interface__", None)
    if interface is not None:
        return int(interface["data"][0])
    return int(given)


# ---- streams and events -----------------------------------------------------------------


def stream_create() -> int:
    """A new stream."""
    return host_device().create_stream()


def stream_destroy(stream: int) -> None:
    """Let go of a stream."""
    host_device().destroy_stream(int(stream))


def stream_synchronize(stream: int) -> None:
    """Wait for a stream; for all of them on the default stream."""
    found = host_device().stream(int(stream))
    if found is None:
        host_device().synchronize()
    else:
        wait(found)


def stream_query(stream: int) -> None:
    """Raise NOT_READY unless everything is done."""
    found = host_device().stream(int(stream))
    if found is not None and not found.query():
        raise DeviceError(Code.NOT_READY, "the stream has work to do")


def stream_wait_event(stream: int, event: int) -> None:
    """Let later work on a stream wait for an event."""
    found, mark = host_device().stream(int(stream)), host_device().event(int(event))
    if found is None:
        mark.synchronize()
    else:
        found.wait_event(mark)


def event_create() -> int:
    """A new event."""
    return host_device().create_event()


def event_destroy(event: int) -> None:
    """Forget an event."""
    host_device().destroy_event(int(event))


def event_record(event: int, stream: int) -> None:
    """Mark where a stream is."""
    host_device().record_event(int(event), int(stream))


def event_synchronize(event: int) -> None:
    """Wait for a mark."""
    host_device().event(int(event)).synchronize()


def event_query(event: int) -> None:
    """Raise NOT_READY unless the stream has come to the mark."""
    if not host_device().event(int(event)).query():
        raise DeviceError(Code.NOT_READY, "the stream has not come to the event")


def event_elapsed(start: int, end: int) -> float:
    """Milliseconds between two marks."""
    return host_device().event(int(start)).elapsed_ms(host_device().event(int(end)))


# ---- the device -------------------------------------------------------------------------


def synchronize() -> None:
    """Wait for all streams."""
    host_device().synchronize()


def device_count() -> int:
    """One: the host."""
    return 1


def get_device() -> int:
    """The host's number."""
    return 0


def set_device(number: int) -> None:
    """Refuse any device but the host."""
    if int(number) != 0:
        raise DeviceError(Code.INVALID_DEVICE, f"there is no device {number}; the host is 0")


def device_number(number: int) -> int:
    """A device by its ordinal."""
    set_device(number)
    return int(number)


def properties(number: int) -> cudaDeviceProp:
    """What the host is as a device."""
    set_device(number)
    return cudaDeviceProp(b"braze host device", _memory.total_memory(), os.cpu_count() or 1)


def attribute(which: int, number: int) -> int:
    """Processors as multiprocessors; 0 for what a processor has not."""
    set_device(number)
    cores = cudaDeviceAttr.cudaDevAttrMultiProcessorCount
    return (os.cpu_count() or 1) if int(which) == cores else 0
