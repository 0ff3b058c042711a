"""Device memory of `pycuda.driver`."""

from __future__ import annotations

import ctypes

from braze.shim.device import host_device
from braze.shim.errors import DeviceError
from braze.shim.pycuda.errors import Error, LogicError, refuse


class PointerHolderBase:
    """Something with an address: `get_pointer` gives it."""

    def get_pointer(self) -> int:
        """The address; to be written by the program."""
        raise NotImplementedError

    def __int__(self) -> int:
        return self.get_pointer()

    __index__ = __int__


class DeviceAllocation(PointerHolderBase):
    """Device memory that is freed with its last reference."""

    def __init__(self, size: int) -> None:
        try:
            self._address = host_device().memory.allocate(size)
        except DeviceError as e:
            refuse(e)

    def get_pointer(self) -> int:
        """The address."""
        return self._address

    @property
    def ptr(self) -> int:
        """The address."""
        return self._address

    def free(self) -> None:
        """Give the memory back now."""
        address, self._address = self._address, 0
        if not address:
            raise LogicError("this allocation is freed already")
        try:
            host_device().free(address)
        except DeviceError as e:
            refuse(e)

    def as_buffer(self, size: int, offset: int = 0) -> memoryview:
        """The memory as a buffer (device memory of the host can be read in place)."""
        return memoryview((ctypes.c_ubyte * size).from_address(self._address + offset))

    def __del__(self) -> None:
        if getattr(self, "_address", 0):
            try:
                self.free()
            except Error:
                return  # what failed on a stream shows where that is waited for
