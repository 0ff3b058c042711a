"""The exceptions of `pycuda.driver`."""

from __future__ import annotations

from typing import NoReturn

from braze.shim.errors import Code, DeviceError


class Error(Exception):
    """Base of what this module raises."""


class LogicError(Error):
    """A call with wrong arguments."""


class LaunchError(Error):
    """Work on a stream that failed."""


class RuntimeError(Error):  # PyCUDA's name
    """Something else went wrong."""


class MemoryError(Error):  # PyCUDA's name
    """There is no memory left."""


def refuse(error: DeviceError) -> NoReturn:
    kinds: dict[Code, type[Error]] = {
        Code.OUT_OF_MEMORY: MemoryError,
        Code.LAUNCH_FAILED: LaunchError,
        Code.NOT_SUPPORTED: RuntimeError,
    }
    raise kinds.get(error.code, LogicError)(str(error)) from error
