"""Weights, which point to arrays of the script, and IHostMemory, which owns bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from braze.tensorrt.addresses import bytes_at
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
        self._held: Array | None = None
        self._address = 0
        if a is not None:
            if not isinstance(a, np.ndarray):
                raise TypeError(f"Weights: an array is expected, not {a!r}")
            self._held = np.ascontiguousarray(a).reshape(-1)
            self._address = self._held.ctypes.data
            self._dtype, self._size = from_numpy(a.dtype), a.size
        else:
            self._dtype, self._size, self._address = kind, count or 0, ptr or 0

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
        """The weights as an array over the same memory; self where numpy has no such type.

        Raises ValueError where their address is not one of memory.
        """
        return self if numpy_type(self._dtype) is None else self.elements()

    def elements(self) -> Array:
        """The array itself; of types that numpy lacks, its bytes. Raises AddressError.

        An address is looked at each time, as its memory may be freed in between.
        """
        if self._held is not None:
            return self._held
        size = self.nbytes if self._address else 0
        array = bytes_at(self._address, size, f"{self._size} weights {self._dtype.name}")
        kind = numpy_type(self._dtype)
        return array if kind is None else array.view(kind)

    def key(self) -> tuple[int, int, int]:
        """What two Weights share that are the same: type, address and count."""
        return int(self._dtype), self._address, self._size

    def __len__(self) -> int:
        return self._size


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
