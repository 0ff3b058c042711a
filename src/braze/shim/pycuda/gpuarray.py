"""`pycuda.gpuarray` as far as scripts of inference use it: arrays in device memory, to copy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from braze.shim.pycuda.copies import mem_alloc as _mem_alloc
from braze.shim.pycuda.copies import memcpy_dtoh, memcpy_dtoh_async, memcpy_htod, memcpy_htod_async
from braze.shim.pycuda.copies import memset_d8 as _memset
from braze.shim.pycuda.errors import LogicError
from braze.shim.pycuda.streams import Stream

Array = np.ndarray[Any, Any]


class GPUArray:
    """An array in device memory, in row-major order."""

    def __init__(self, shape: Any, dtype: Any, allocator: Any = None, gpudata: Any = None) -> None:
        self.shape: tuple[int, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        allocate = _mem_alloc if allocator is None else allocator
        self.gpudata = allocate(max(1, self.nbytes)) if gpudata is None else gpudata

    @property
    def ptr(self) -> int:
        """The address."""
        return int(self.gpudata)

    def __int__(self) -> int:
        return self.ptr

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    def get(self, ary: Array | None = None) -> Array:
        """A copy as an array of the host."""
        out = np.empty(self.shape, self.dtype) if ary is None else ary
        self._same(out)
        memcpy_dtoh(out, self.gpudata)
        return out

    def get_async(self, stream: Stream | None = None, ary: Array | None = None) -> Array:
        """The same in the order of a stream."""
        out = np.empty(self.shape, self.dtype) if ary is None else ary
        self._same(out)
        memcpy_dtoh_async(out, self.gpudata, stream)
        return out

    def set(self, ary: Array) -> None:
        """Take the content of an array of the host."""
        self._same(ary)
        memcpy_htod(self.gpudata, np.ascontiguousarray(ary))

    def set_async(self, ary: Array, stream: Stream | None = None) -> None:
        """The same in the order of a stream."""
        self._same(ary)
        memcpy_htod_async(self.gpudata, np.ascontiguousarray(ary), stream)

    def reshape(self, *shape: Any) -> GPUArray:
        """The same memory with another shape."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        sizes = np.empty(self.shape, np.bool_).reshape(sizes).shape
        return GPUArray(sizes, self.dtype, gpudata=self.gpudata)

    def fill(self, value: Any) -> GPUArray:
        """One number everywhere."""
        self.set(np.full(self.shape, value, self.dtype))
        return self

    def _same(self, array: Array) -> None:
        if array.size != self.size or array.dtype != self.dtype:
            raise LogicError(
                f"an array of {array.size} {array.dtype} is given for {self.size} {self.dtype}"
            )


def to_gpu(ary: Array, allocator: Any = None) -> GPUArray:
    """A copy of an array in device memory."""
    out = GPUArray(ary.shape, ary.dtype, allocator)
    out.set(ary)
    return out


def to_gpu_async(ary: Array, allocator: Any = None, stream: Stream | None = None) -> GPUArray:
    """The same in the order of a stream."""
    out = GPUArray(ary.shape, ary.dtype, allocator)
    out.set_async(ary, stream)
    return out


def empty(shape: Any, dtype: Any = np.float32, allocator: Any = None) -> GPUArray:
    """Device memory of a shape."""
    return GPUArray(shape, dtype, allocator)


def zeros(shape: Any, dtype: Any = np.float32, allocator: Any = None) -> GPUArray:
    """The same, zeroed."""
    out = GPUArray(shape, dtype, allocator)
    _memset(out.gpudata, 0, out.nbytes)
    return out


def empty_like(other: Any) -> GPUArray:
    """The same with the shape and type of another array."""
    return GPUArray(other.shape, other.dtype)


def zeros_like(other: Any) -> GPUArray:
    """The same, zeroed."""
    return zeros(other.shape, other.dtype)
