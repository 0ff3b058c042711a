"""From an address that a program gives to an array over the memory there."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from braze.core.errors import BindingError
from braze.shim.device import host_device

Array = np.ndarray[Any, Any]


class AddressError(BindingError, ValueError):
    """An address is not one of memory that can be read."""


def as_address(value: Any, what: str) -> int:
    """What a program gives as an address or handle, as an int; TypeError for what is none.

    Objects of other packages that are addresses say so by `__int__`.
    """
    kind = type(value)
    if isinstance(value, (str, bytes, bytearray, float)) or not (
        hasattr(kind, "__int__") or hasattr(kind, "__index__")
    ):
        raise TypeError(f"{what}: an address is expected as an int, not {value!r}")
    address = int(value)
    if address < 0:
        raise TypeError(f"{what}: {value} is no address")
    return address


def bytes_at(address: int, nbytes: int, what: str) -> Array:
    """The bytes at an address; raises AddressError where this process has no such memory."""
    if nbytes == 0:
        return np.zeros(0, np.uint8)
    if nbytes < 0 or not host_device().memory.usable(address, nbytes):
        raise AddressError(
            f"{what}: {nbytes} bytes at {address:#x} are no memory of this process, which may have "
            "been freed; give the address of an array that is still there"
        )
    memory = memoryview((ctypes.c_uint8 * nbytes).from_address(address))
    return np.frombuffer(memory.cast("B"), np.uint8)
