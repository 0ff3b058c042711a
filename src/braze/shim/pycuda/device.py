"""Device, contexts and versions of `pycuda.driver`."""

from __future__ import annotations

import os
from typing import Final

from braze.shim import memory as _memory
from braze.shim.device import host_device
from braze.shim.errors import DeviceError
from braze.shim.pycuda.errors import LogicError, refuse

DRIVER_VERSION: Final = 12040


class device_attribute:
    """Numbers of device attributes that programs ask for."""

    MAX_THREADS_PER_BLOCK = 1
    WARP_SIZE = 10
    CLOCK_RATE = 13
    MULTIPROCESSOR_COUNT = 16
    COMPUTE_CAPABILITY_MAJOR = 75
    COMPUTE_CAPABILITY_MINOR = 76


class Device:
    """The host as device 0."""

    def __init__(self, number: int = 0) -> None:
        if number != 0:
            raise LogicError(f"there is no device {number}; the host is device 0")

    @staticmethod
    def count() -> int:
        """One."""
        return 1

    def name(self) -> str:
        """What it is."""
        return "braze host device"

    def compute_capability(self) -> tuple[int, int]:
        """None of NVIDIA's."""
        return (0, 0)

    def pci_bus_id(self) -> str:
        """A made-up one."""
        return "0000:00:00.0"

    def total_memory(self) -> int:
        """Bytes of memory of the machine."""
        return _memory.total_memory()

    def get_attribute(self, attribute: int) -> int:
        """The processors as multiprocessors; 0 for what a processor has not."""
        processors = os.cpu_count() or 1
        return processors if attribute == device_attribute.MULTIPROCESSOR_COUNT else 0

    def make_context(self, flags: int = 0) -> Context:
        """A context; there is but one."""
        return Context()

    def retain_primary_context(self) -> Context:
        """The context."""
        return Context()


class Context:
    """The state of the device for a thread; the host has none, so nothing changes."""

    @staticmethod
    def synchronize() -> None:
        """Wait for all streams."""
        try:
            host_device().synchronize()
        except DeviceError as e:
            refuse(e)

    @staticmethod
    def get_device() -> Device:
        """The host."""
        return Device(0)

    @staticmethod
    def get_current() -> Context:
        """The context."""
        return Context()

    @staticmethod
    def pop() -> None:
        """Nothing is to be done."""

    def push(self) -> None:
        """Nothing is to be done."""

    def attach(self) -> Context:
        """Itself."""
        return self

    def detach(self) -> None:
        """Nothing is to be done."""


def init(flags: int = 0) -> None:
    """Nothing is to be done."""


def get_version() -> tuple[int, int, int]:
    """The CUDA version whose names are here."""
    return (DRIVER_VERSION // 1000, DRIVER_VERSION % 1000 // 10, 0)


def get_driver_version() -> int:
    """The same as one number."""
    return DRIVER_VERSION


def mem_get_info() -> tuple[int, int]:
    """(free, total) bytes of the machine's memory."""
    return _memory.free_memory(), _memory.total_memory()
