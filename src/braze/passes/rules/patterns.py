"""Patterns of the four operations that rules are written in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from braze.ir.pattern import Call, Pattern, call
from braze.ops.pointwise.elementwise import Binary, Unary


def _named(name: str) -> Callable[[Any], bool]:
    def accept(op: Any) -> bool:
        return bool(op.op == name)

    return accept


def add(a: Pattern, b: Pattern) -> Call:
    """a + b in any order."""
    return call(Binary, a, b, where=_named("add"), commutative=True)


def mul(a: Pattern, b: Pattern) -> Call:
    """a * b in any order."""
    return call(Binary, a, b, where=_named("mul"), commutative=True)


def binary(op: str, a: Pattern, b: Pattern) -> Call:
    """A Binary whose operands are not swapped."""
    return call(Binary, a, b, where=_named(op))


def unary(op: str, a: Pattern) -> Call:
    """A Unary."""
    return call(Unary, a, where=_named(op))
