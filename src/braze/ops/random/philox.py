"""Philox4x32-10, a random number generator that is a function of a counter.

J. Salmon, M. Moraes, R. Dror, D. Shaw, Parallel Random Numbers: As Easy as 1, 2, 3 (2011). Word k
of element i depends on the counter and the key alone: not on threads, tiles or targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from braze.core.dtypes import U64
from braze.expr.scalar import Expr, binary, const
from braze.ops.base import Array

WORD: Final = 0xFFFFFFFF
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_ROUNDS: Final = 10

T = TypeVar("T")
Words = tuple[T, T, T, T]


def _rounds(
    counter: Words[Any], key: tuple[int, int], apply: Callable[[str, Any, int | Any], Any]
) -> Words[Any]:
    """The ten rounds, on 32-bit words held in 64 bits; apply(op, a, b) is one operation."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = apply("mul", c0, _MULTIPLIERS[0]), apply("mul", c2, _MULTIPLIERS[1])
        c0 = apply("xor", apply("xor", apply("shr", p1, 32), c1), k0)
        c2 = apply("xor", apply("xor", apply("shr", p0, 32), c3), k1)
        c1, c3 = apply("and", p1, WORD), apply("and", p0, WORD)
        k0, k1 = (k0 + _WEYL[0]) & WORD, (k1 + _WEYL[1]) & WORD
    return c0, c1, c2, c3


_NUMPY: Final = {
    "mul": np.multiply, "xor": np.bitwise_xor, "shr": np.right_shift, "and": np.bitwise_and
}  # fmt: skip


def philox(counter: Sequence[Array], key: tuple[int, int]) -> Words[Array]:
    """The four words of each counter (four uint64 arrays of 32-bit words), as uint64."""

    def apply(op: str, a: Array, b: int | Array) -> Array:
        return np.asarray(_NUMPY[op](a, np.asarray(b, np.uint64)))

    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    return _rounds((c0, c1, c2, c3), key, apply)


def philox_expr(counter: Sequence[Expr], key: tuple[int, int]) -> Words[Expr]:
    """The same of four uint64 expressions."""

    def apply(op: str, a: Expr, b: int | Expr) -> Expr:
        return binary(op, a, b if isinstance(b, Expr) else const(b, U64))

    c0, c1, c2, c3 = counter
    return _rounds((c0, c1, c2, c3), key, apply)
