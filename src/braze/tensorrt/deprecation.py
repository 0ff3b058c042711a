"""Warnings of names that a later release takes away, and `with` blocks that do nothing."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import TypeVar

_Self = TypeVar("_Self", bound="Scoped")


def warn_deprecated(name: str, since: str, instead: str | None = None) -> None:
    """Emit a DeprecationWarning at the caller of whoever calls this."""
    advice = f"use {instead}" if instead else "there is no replacement"
    warnings.warn(f"{name} is deprecated since {since}: {advice}", DeprecationWarning, stacklevel=3)


class Scoped:
    """`with` is accepted, warned about and without effect: objects go with their last reference."""

    def __enter__(self: _Self) -> _Self:
        warn_deprecated(f"`with` for {type(self).__name__}", "8.0", "a plain name")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def __del__(self) -> None:
        """Nothing: scripts of old call it, to the same effect."""
