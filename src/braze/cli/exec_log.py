"""The log of `braze exec`, in trtexec's form: lines with time and severity, and its first and last.

Tools that read trtexec's log find the same names here (`docs/tensorrt-compat.md`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from braze.core.version import __version__

TENSORRT: Final = (10, 13, 0)  # whose form the log and the exports have


class Log:
    """Prints lines with `[month/day/year-hour:minute:second] [I]` before them."""

    def __init__(self, verbose: bool = False) -> None:
        self.verbose_on = verbose

    def say(self, *texts: str) -> None:
        """Lines of the report."""
        self._print("I", texts)

    def warn(self, *texts: str) -> None:
        """What the user should know."""
        self._print("W", texts)

    def verbose(self, *texts: str) -> None:
        """Lines of --verbose."""
        if self.verbose_on:
            self._print("V", texts)

    def section(self, title: str, lines: Iterable[str]) -> None:
        """A heading and its lines."""
        self.say(f"=== {title} ===", *lines)

    def _print(self, letter: str, texts: Iterable[str]) -> None:
        moment = time.strftime("%m/%d/%Y-%H:%M:%S")
        for text in texts:
            for line in text.splitlines() or [""]:
                print(f"[{moment}] [{letter}] {line}")


def title(command: Sequence[str]) -> str:
    """What stands after &&&& RUNNING, PASSED and FAILED."""
    major, minor, patch = TENSORRT
    number = major * 10000 + minor * 100 + patch
    words = " ".join(command)
    return f"TensorRT.trtexec [TensorRT v{number}] [braze {__version__}] # {words}"
