"""Which elements of a tensor stand for it where results of tactics are compared."""

from __future__ import annotations

from typing import Final

PIECES: Final = 16
LENGTH: Final = 1024  # elements of a piece


def spread(count: int, length: int = LENGTH) -> list[slice]:
    """All of `count` elements, or PIECES of so many: the first ones, the last ones, and others at
    equal distances between them."""
    if count <= PIECES * length:
        return [slice(0, count)]
    last = count - length
    return [slice(at, at + length) for at in (last * i // (PIECES - 1) for i in range(PIECES))]
