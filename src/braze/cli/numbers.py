"""Numbers of the command line: whole ones and others within bounds; all else is wrong usage."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

N = TypeVar("N", int, float)
MOST_THREADS = 1024
MOST_TIME = 1e9  # seconds or milliseconds: more than anyone waits, and what the clock can count
MOST_COUNT = 10**9


def whole(least: int, most: int = MOST_COUNT) -> Callable[[str], int]:
    """The type of an option that takes a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        return _within(value, least, most, text)

    return parse


def number(least: float, most: float) -> Callable[[str], float]:
    """The type of an option that takes a number from `least` to `most`; NaN is none."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        return _within(value, least, most, text)

    return parse


def _within(value: N, least: N, most: N, text: str) -> N:
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text} is outside {_short(least)}..{_short(most)}")
    return value


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
