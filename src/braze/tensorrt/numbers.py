"""What all enums share: members are numbers only where a number is asked for."""

from __future__ import annotations

import enum
import functools
from typing import Any


class Number(enum.Enum):
    """An enum whose members convert to int but equal nothing except themselves."""

    def __int__(self) -> int:
        number: int = self.value
        return number

    __index__ = __int__

    def __hash__(self) -> int:
        return hash(self.value)


@functools.total_ordering
class Ordered(Number):
    """An enum whose members are ordered among themselves."""

    def __lt__(self, other: Any) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return int(self) < int(other)
