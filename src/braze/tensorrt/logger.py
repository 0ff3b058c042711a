"""ILogger, which scripts derive from, and Logger, which prints."""

from __future__ import annotations

import sys
import time
from typing import Any, ClassVar, Final, TypeAlias

from braze.tensorrt.deprecation import Scoped
from braze.tensorrt.numbers import Ordered


class Severity(Ordered):
    """How bad a message is."""

    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


_Level: TypeAlias = Severity  # within ILogger the name is its attribute
_LETTERS: Final = {
    Severity.INTERNAL_ERROR: "F",
    Severity.ERROR: "E",
    Severity.WARNING: "W",
    Severity.INFO: "I",
    Severity.VERBOSE: "V",
}


class _Begun(type):
    """Of classes whose own `__init__` must be called by those that derive from them."""

    def __call__(cls, *args: Any, **named: Any) -> Any:
        made = super().__call__(*args, **named)
        if isinstance(made, ILogger) and not hasattr(made, "_begun"):
            base = next(c for c in cls.__mro__ if c.__module__ == __name__)
            text = "__init__() must be called when overriding __init__"
            raise TypeError(f"tensorrt.{base.__name__}.{text}")
        return made


class ILogger(Scoped, metaclass=_Begun):
    """Where messages go; derive from it and override `log`."""

    Severity: ClassVar[type[_Level]] = Severity
    INTERNAL_ERROR: ClassVar[_Level] = Severity.INTERNAL_ERROR
    ERROR: ClassVar[_Level] = Severity.ERROR
    WARNING: ClassVar[_Level] = Severity.WARNING
    INFO: ClassVar[_Level] = Severity.INFO
    VERBOSE: ClassVar[_Level] = Severity.VERBOSE

    def __init__(self) -> None:
        self._begun = True

    def log(self, severity: _Level, msg: str) -> None:
        """Take a message; a derived class says what happens with it."""
        raise NotImplementedError("ILogger.log is to be overridden")


class Logger(ILogger):
    """Prints messages down to a severity, with the time, to the standard output."""

    min_severity: _Level

    def __init__(self, min_severity: _Level = Severity.WARNING) -> None:
        super().__init__()
        if not isinstance(min_severity, Severity):
            raise TypeError(f"min_severity: a Logger.Severity is expected, not {min_severity!r}")
        self.min_severity = min_severity

    def log(self, severity: _Level, msg: str) -> None:
        """Print one message, if it is severe enough."""
        if severity <= self.min_severity:
            moment = time.strftime("%m/%d/%Y-%H:%M:%S")
            print(f"[{moment}] [TRT] [{_LETTERS[severity]}] {msg}", file=sys.stdout, flush=True)
