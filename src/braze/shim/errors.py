"""What the host device refuses, with the number that CUDA has for it."""

from __future__ import annotations

from enum import IntEnum

from braze.core.errors import ExecutionError


class Code(IntEnum):
    """The error numbers of CUDA (runtime and driver agree on them) that occur here."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    INVALID_DEVICE = 101
    INVALID_HANDLE = 400
    NOT_READY = 600
    LAUNCH_FAILED = 719
    NOT_SUPPORTED = 801


class DeviceError(ExecutionError):
    """A call that CUDA would refuse; `code` is its number there."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
