"""What the host device refuses, with the number that CUDA has for it."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

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


# what CUDA says of its error numbers, those that programs may pass beside those that occur here
_MEANINGS: Final = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    400: "invalid resource handle",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    719: "unspecified launch failure",
    801: "operation not supported",
    999: "unknown error",
}


def meaning(code: int) -> str:
    """What CUDA says of an error number."""
    return _MEANINGS.get(code, "unrecognized error code")


class DeviceError(ExecutionError):
    """A call that CUDA would refuse; `code` is its number there."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
