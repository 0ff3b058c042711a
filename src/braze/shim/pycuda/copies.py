"""Memory and copies of `pycuda.driver`."""

from __future__ import annotations

from typing import Any

import numpy as np

from braze.shim.device import host_device
from braze.shim.errors import DeviceError
from braze.shim.pycuda.allocation import DeviceAllocation
from braze.shim.pycuda.errors import LogicError, refuse
from braze.shim.pycuda.streams import Stream, handle_or_default

Array = np.ndarray[Any, Any]


def mem_alloc(nbytes: int) -> DeviceAllocation:
    """Device memory."""
    return DeviceAllocation(nbytes)


def mem_alloc_pitch(width: int, height: int, access_size: int) -> tuple[DeviceAllocation, int]:
    """Rows of `width` bytes; the pitch is the width rounded up to 512."""
    pitch = -(-width // 512) * 512
    return DeviceAllocation(pitch * height), pitch


def pagelocked_empty(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> Array:
    """An array on the host; all of its memory is as fast for copies as any other."""
    return np.empty(shape, dtype, order="F" if order == "F" else "C")


def pagelocked_zeros(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> Array:
    """The same, zeroed."""
    return np.zeros(shape, dtype, order="F" if order == "F" else "C")


def pagelocked_empty_like(array: Array, mem_flags: int = 0) -> Array:
    """The same with the shape and type of another array."""
    return np.empty_like(array)


def pagelocked_zeros_like(array: Array, mem_flags: int = 0) -> Array:
    """The same, zeroed."""
    return np.zeros_like(array)


def managed_empty(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> Array:
    """An array both sides see: here every array is."""
    return np.empty(shape, dtype, order="F" if order == "F" else "C")


def register_host_memory(array: Array, flags: int = 0) -> Array:
    """The array itself."""
    return array


def to_device(array: Array) -> DeviceAllocation:
    """A copy of an array in device memory."""
    array = np.ascontiguousarray(array)
    target = mem_alloc(array.nbytes)
    memcpy_htod(target, array)
    return target


def from_device(pointer: Any, shape: Any, dtype: Any, order: str = "C") -> Array:
    """A copy of device memory as an array."""
    out = np.empty(shape, dtype, order="F" if order == "F" else "C")
    memcpy_dtoh(out, pointer)
    return out


def from_device_like(pointer: Any, like: Array) -> Array:
    """The same with the shape and type of another array."""
    return from_device(pointer, like.shape, like.dtype)


def memcpy_htod(dest: Any, src: Any) -> None:
    """Copy an array or buffer to device memory."""
    address, size, keep = _buffer(src)
    _copy(int(dest), address, size, keep, None)


def memcpy_htod_async(dest: Any, src: Any, stream: Stream | None = None) -> None:
    """The same in the order of a stream."""
    address, size, keep = _buffer(src)
    _copy(int(dest), address, size, keep, stream, asynchronous=True)


def memcpy_dtoh(dest: Any, src: Any) -> None:
    """Copy device memory to an array, as much as it holds."""
    address, size, keep = _buffer(dest, writable=True)
    _copy(address, int(src), size, keep, None)


def memcpy_dtoh_async(dest: Any, src: Any, stream: Stream | None = None) -> None:
    """The same in the order of a stream."""
    address, size, keep = _buffer(dest, writable=True)
    _copy(address, int(src), size, keep, stream, asynchronous=True)


def memcpy_dtod(dest: Any, src: Any, size: int) -> None:
    """Copy `size` bytes in device memory."""
    _copy(int(dest), int(src), size, None, None)


def memcpy_dtod_async(dest: Any, src: Any, size: int, stream: Stream | None = None) -> None:
    """The same in the order of a stream."""
    _copy(int(dest), int(src), size, None, stream, asynchronous=True)


def memset_d8(dest: Any, data: int, count: int) -> None:
    """Write a byte `count` times."""
    _fill(int(dest), bytes([data]), count)


def memset_d16(dest: Any, data: int, count: int) -> None:
    """Write two bytes `count` times."""
    _fill(int(dest), data.to_bytes(2, "little"), count)


def memset_d32(dest: Any, data: int, count: int) -> None:
    """Write four bytes `count` times."""
    _fill(int(dest), data.to_bytes(4, "little"), count)


def memset_d8_async(dest: Any, data: int, count: int, stream: Stream | None = None) -> None:
    """Write a byte `count` times in the order of a stream."""
    _fill(int(dest), bytes([data]), count, handle_or_default(stream))


def memset_d32_async(dest: Any, data: int, count: int, stream: Stream | None = None) -> None:
    """Write four bytes `count` times in the order of a stream."""
    _fill(int(dest), data.to_bytes(4, "little"), count, handle_or_default(stream))


def _fill(address: int, pattern: bytes, count: int, stream: int | None = None) -> None:
    try:
        host_device().fill(address, pattern, count, stream)
    except DeviceError as e:
        refuse(e)


def _copy(
    target: int,
    source: int,
    size: int,
    keep: Any,
    stream: Stream | None,
    asynchronous: bool = False,
) -> None:
    device = host_device()
    try:
        device.copy(target, source, size, handle_or_default(stream) if asynchronous else None)
        if stream is not None and keep is not None:
            found = device.stream(stream.handle)
            if found is not None:
                found.keep_alive(keep)
    except DeviceError as e:
        refuse(e)


def _buffer(given: Any, writable: bool = False) -> tuple[int, int, Any]:
    """(address, bytes, what keeps them) of an array or buffer."""
    if isinstance(given, np.ndarray):
        if not (given.flags.c_contiguous or given.flags.f_contiguous):
            raise LogicError("the array is not contiguous; copy it with numpy.ascontiguousarray")
        if writable and not given.flags.writeable:
            raise LogicError("the array to copy to is read-only")
        return given.ctypes.data, given.nbytes, given
    view = np.frombuffer(given, np.uint8)
    if writable and not view.flags.writeable:
        raise LogicError("the buffer to copy to is read-only")
    return view.ctypes.data, view.nbytes, view
