"""Numbers that callers pass: whole, and small enough for the native runtime.

ctypes cuts integers to their width without a word, so they are checked before.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

from braze.core.errors import BindingError, ConfigError, ShapeError
from braze.core.words import shown

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
ADDRESS_MAX: Final = (1 << 64) - 1


def small_number(what: str, value: Any) -> int:
    """`value` as an int32; raises ConfigError."""
    number = _index(value)
    if number is None or abs(number) > INT32_MAX:
        raise ConfigError(f"{what} {value!r} is not a whole number that fits; give another one")
    return number


def shape_of(what: str, shape: Sequence[int], least: int = 0) -> tuple[int, ...]:
    """`shape` as sizes of `least` or more; raises ShapeError, naming `what`."""
    try:
        sizes = [_index(d) for d in shape]
    except TypeError:
        sizes = [None]
    if isinstance(shape, (str, bytes)) or any(
        d is None or not least <= d <= INT64_MAX for d in sizes
    ):
        raise ShapeError(
            f"{what} is given the shape {shape!r}, which is not a sequence of sizes; give "
            "whole numbers from 0 on"
        )
    return tuple(d for d in sizes if d is not None)


def memory_range(name: str, address: int, size: Any) -> tuple[int, int]:
    """An address and the bytes from there; raises BindingError, naming the tensor."""
    count = _index(size)
    if count is None or not (0 <= address <= ADDRESS_MAX and 0 <= count <= INT64_MAX):
        raise BindingError(
            f"{name!r} cannot be bound to {size!r} bytes at address {address}; give the size of "
            "the memory in bytes"
        )
    return address, count


def names_of(what: str, given: Any) -> frozenset[str]:
    """One text or several as a set; raises ConfigError for what is none."""
    try:
        names = frozenset((given,) if isinstance(given, str) else given)
    except TypeError:
        raise ConfigError(
            f"{what}={shown(given)} is no list of names; give the names of tensors"
        ) from None
    return names


def _index(value: Any) -> int | None:
    try:
        return operator.index(value)
    except TypeError:
        return None
