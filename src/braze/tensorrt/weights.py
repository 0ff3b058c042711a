"""Weights, which point to arrays of the script, and IHostMemory, which owns bytes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from braze.tensorrt.deprecation import Scoped
from braze.tensorrt.dtypes import from_numpy, numpy_type, packed_bytes
from braze.tensorrt.enums_runtime import DataType

Array = np.ndarray[Any, Any]


class Weights:
    """Numbers that a layer is made of. The array is pointed to, not copied.

    Weights(), Weights(type): none; Weights(array); Weights(type, address, count).
    """

    def __init__(
        self, a: Any = None, ptr: int | None = None, count: int | None = None, *, type: Any = None
    ) -> None:
        if isinstance(a, DataType):
            a, type = None, a
        kind = DataType.FLOAT if type is None else type
        if not isinstance(kind, DataType):
            raise TypeError(f"Weights: type={kind!r} is no DataType")
        self._array: Array
        if a is not None:
            if not isinstance(a, np.ndarray):
                raise TypeError(f"Weights: an array is expected, not {a!r}")
            self._array = np.ascontiguousarray(a).reshape(-1)
            self._dtype, self._size = from_numpy(a.dtype), a.size
        else:
            self._dtype, self._size = kind, count or 0
            self._array = _at(ptr, packed_bytes(kind, self._size))
            if numpy_type(kind) is not None:
                self._array = self._array.view(numpy_type(kind))

    @property
    def dtype(self) -> DataType:
        """The type of an element."""
        return self._dtype

    @property
    def size(self) -> int:
        """How many there are."""
        return self._size

    @property
    def nbytes(self) -> int:
        """How many bytes they fill."""
        return packed_bytes(self._dtype, self._size)

    def numpy(self) -> Any:
        """The weights as an array over the same memory; self where numpy has no such type."""
        return self if numpy_type(self._dtype) is None else self._array

    def elements(self) -> Array:
        """The array itself; of types that numpy lacks, its bytes."""
        return self._array

    def key(self) -> tuple[int, int, int]:
        """What two Weights share that are the same: type, address and count."""
        return int(self._dtype), self._array.ctypes.data, self._size

    def __len__(self) -> int:
        return self._size


def _at(address: int | None, nbytes: int) -> Array:
    """Bytes at an address."""
    if not address or not nbytes:
        return np.zeros(0, np.uint8)
    memory = memoryview((ctypes.c_uint8 * nbytes).from_address(address))
    return np.frombuffer(memory.cast("B"), np.uint8)


def as_weights(value: Any, what: str) -> Weights:
    """What may stand for Weights; None and an empty one are the same."""
    if value is None:
        return Weights()
    if isinstance(value, Weights):
        return value
    if isinstance(value, np.ndarray):
        return Weights(value)
    raise TypeError(f"{what}: Weights or an array are expected, not {value!r}")


class IHostMemory(bytes, Scoped):
    """Bytes that the library hands out: a serialized engine or timing cache."""

    @property
    def dtype(self) -> DataType:
        """Bytes have the type of small integers."""
        return DataType.INT8

    @property
    def nbytes(self) -> int:
        """How many there are."""
        return len(self)
