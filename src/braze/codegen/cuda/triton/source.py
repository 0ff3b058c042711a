"""Triton source under construction: lines, fresh names, and typed values.

A `Val` is an expression text with its Triton type. Block shapes are Triton's business: a scalar
and a block of any rank combine by broadcasting, exactly as in numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

INDENT = "    "
# Programmatic dependent launch: a launch may start while those before it still run. Each waits for
# their end before it touches memory, and lets the next one start when its own main work is done.
WAIT, RELEASE = "wait_for_earlier()", "release_later()"


@dataclass(frozen=True, slots=True)
class Val:
    """`text` is a name or a literal, never a compound expression; `type` a Triton type name."""

    text: str
    type: str

    def __str__(self) -> str:
        return self.text


class Source:
    """The body of one Triton function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1  # of blocks around the next line
        self._count = 0

    def line(self, text: str) -> None:
        """Append one statement at the current depth."""
        self.lines.append(INDENT * self.depth + text)

    def fresh(self, prefix: str = "t") -> str:
        """A name that no other value has."""
        self._count += 1
        return f"{prefix}{self._count}"

    def put(self, text: str, type_: str) -> Val:
        """Name the value of `text`."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        return Val(name, type_)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block behind `head:`."""
        self.line(f"{head}:")
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def text(self) -> str:
        return "\n".join(self.lines)
