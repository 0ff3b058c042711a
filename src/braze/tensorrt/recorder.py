"""IErrorRecorder, and how errors of every object reach it and the logger."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import ClassVar, Final

from braze.core.errors import (
    BindingError,
    BrazeError,
    ConfigError,
    DTypeError,
    EngineFormatError,
    EngineVersionError,
    ExecutionError,
    ProfileError,
    ShapeError,
    TargetError,
)
from braze.tensorrt.enums_runtime import ErrorCodeTRT
from braze.tensorrt.logger import ILogger, Severity

# what stands in a message between the number of an error and its text
_KINDS: Final = {
    ErrorCodeTRT.UNSPECIFIED_ERROR: "Serialization",
    ErrorCodeTRT.INVALID_ARGUMENT: "API Usage Error",
    ErrorCodeTRT.INVALID_STATE: "API Usage Error",
    ErrorCodeTRT.FAILED_INITIALIZATION: "API Usage Error",
    ErrorCodeTRT.FAILED_ALLOCATION: "OutOfMemory",
}
_CODES: Final[tuple[tuple[type[BrazeError], ErrorCodeTRT], ...]] = (
    (EngineFormatError, ErrorCodeTRT.UNSPECIFIED_ERROR),
    (EngineVersionError, ErrorCodeTRT.FAILED_INITIALIZATION),
    (TargetError, ErrorCodeTRT.FAILED_INITIALIZATION),
    (ShapeError, ErrorCodeTRT.INVALID_ARGUMENT),
    (BindingError, ErrorCodeTRT.INVALID_ARGUMENT),
    (ProfileError, ErrorCodeTRT.INVALID_ARGUMENT),
    (DTypeError, ErrorCodeTRT.INVALID_ARGUMENT),
    (ConfigError, ErrorCodeTRT.INVALID_CONFIG),
    (ExecutionError, ErrorCodeTRT.FAILED_EXECUTION),
)


# what ends a call with an error where a callback of the program raises it; a callback that asks for
# the end of the program does not get it, as in TensorRT, where it is called from within C++
RAISED: Final = (Exception, SystemExit)


class IErrorRecorder:
    """Keeps the errors of the objects it is set on; derive from it and override its methods."""

    MAX_DESC_LENGTH: ClassVar[int] = 127

    def __init__(self) -> None:
        return None

    def num_errors(self) -> int:
        """How many errors it keeps."""
        raise NotImplementedError("IErrorRecorder.num_errors is to be overridden")

    def get_error_code(self, arg0: int) -> ErrorCodeTRT:
        """The number of one error."""
        raise NotImplementedError("IErrorRecorder.get_error_code is to be overridden")

    def get_error_desc(self, arg0: int) -> str:
        """The text of one error."""
        raise NotImplementedError("IErrorRecorder.get_error_desc is to be overridden")

    def has_overflowed(self) -> bool:
        """Whether errors were dropped."""
        raise NotImplementedError("IErrorRecorder.has_overflowed is to be overridden")

    def clear(self) -> None:
        """Forget all errors."""
        raise NotImplementedError("IErrorRecorder.clear is to be overridden")

    def report_error(self, arg0: ErrorCodeTRT, arg1: str) -> bool:
        """Take an error; True where it is fatal."""
        raise NotImplementedError("IErrorRecorder.report_error is to be overridden")


def tell(logger: ILogger, severity: Severity, message: str) -> None:
    """Tell a logger; what it raises ends up on standard error, as in TensorRT."""
    try:
        logger.log(severity, message)
    except RAISED as e:
        print(f"[ERROR] Exception caught in log(): {e}", file=sys.stderr)


class Reporter:
    """Where the errors of one object go: its logger, and the recorder that was set on it."""

    def __init__(self, logger: ILogger, recorder: IErrorRecorder | None = None) -> None:
        self.logger = logger
        self.recorder = recorder

    def error(
        self, where: str, code: ErrorCodeTRT, text: str, also: Iterable[IErrorRecorder] = ()
    ) -> None:
        """Report one error; `where` is the call as C++ names it, `IRuntime::…`.

        also: recorders of other objects that it concerns.
        """
        kind = _KINDS.get(code, "Internal Error")
        message = f"{where}: Error Code {int(code)}: {kind} ({text})"
        # what loggers and recorders of scripts raise must not hide the error
        tell(self.logger, ILogger.ERROR, message)
        heard = {id(r): r for r in (self.recorder, *also) if r is not None}
        for recorder in heard.values():
            try:
                recorder.report_error(code, message)
            except RAISED as e:
                print(f"[ERROR] Exception caught in report_error(): {e}", file=sys.stderr)

    def wrong(self, where: str, text: str) -> None:
        """Report wrong use."""
        self.error(where, ErrorCodeTRT.INVALID_ARGUMENT, f"Parameter check failed. {text}")

    def raised(self, where: str, error: BaseException, also: Iterable[IErrorRecorder] = ()) -> None:
        """Report what the core raised, or what the program wrote: plugins, allocators, ..."""
        self.error(where, code_of(error), said(error), also)


def said(error: BaseException) -> str:
    """An exception as text, with its kind where it is none of braze's own."""
    kind = type(error).__name__
    return (str(error) or kind) if isinstance(error, BrazeError) else f"{kind}: {error}"


def code_of(error: BaseException) -> ErrorCodeTRT:
    """TensorRT's number for an exception."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if isinstance(error, MemoryError):
        return ErrorCodeTRT.FAILED_ALLOCATION
    return ErrorCodeTRT.INTERNAL_ERROR


class Reporting:
    """What has a reporter of its own, whose recorder a program may set."""

    _reporter: Reporter

    @property
    def error_recorder(self) -> IErrorRecorder | None:
        """Where errors go beside the logger."""
        return self._reporter.recorder

    @error_recorder.setter
    def error_recorder(self, recorder: IErrorRecorder | None) -> None:
        self._reporter.recorder = recorder
