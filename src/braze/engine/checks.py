"""Checks of what engine files hold: where they stand, and the error that says so."""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from braze.core.errors import EngineFormatError, EngineVersionError

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1


def fail(where: str, what: str) -> NoReturn:
    """Raise EngineFormatError, saying where."""
    raise EngineFormatError(f"the engine's {where}: {what}; build the engine again")


def require(condition: bool, where: str, what: str) -> None:
    """Raise EngineFormatError, saying where, unless `condition` holds."""
    if not condition:
        fail(where, what)


def typed(value: Any, kind: type, where: str) -> Any:
    """`value` if it is a `kind` (a bool is no int); raises EngineFormatError."""
    fits = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    require(fits, where, f"{type(value).__name__} where {kind.__name__} belongs")
    return value


@dataclass(slots=True)
class Place:
    """Where an encoder, decoder or check stands; it moves on from field to field.

    name: of the field, or the number of the entry, in `around`; counts: entries of every list of
    the plan (for checks); code: from bytes to [offset, bytes] in the code section (encode), or back
    (decode); owner: the record, or its JSON, that the field belongs to; position: of that record in
    the list around it.
    """

    name: object = ""
    around: Place | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    code: Callable[[Any], Any] | None = None
    owner: Any = None
    position: int = 0

    def fields(self, owner: Any = None) -> Place:
        """The place of the fields of the record that stands here; `name` it as they are visited."""
        owner = self.owner if owner is None else owner
        return Place("", self, self.counts, self.code, owner, self.position)

    def entries(self) -> Place:
        """The place of the records in the list that stands here; `number` it likewise."""
        return Place(0, self, self.counts, self.code, self.owner)

    def number(self, position: int) -> Place:
        """This place, moved to an entry of the list."""
        self.name = self.position = position
        return self

    @property
    def where(self) -> str:
        """The path, for errors."""
        path = self.around.where if self.around is not None else ""
        return f"{path} {self.name}" if path else str(self.name)


def whole_number(value: Any, place: Place) -> None:
    """Raise EngineFormatError unless `value` is an integer."""
    if type(value) is not int:
        typed(value, int, place.where)


def known_word(word: Any, known: typing.Container[str], place: Place) -> str:
    """`word` if it is one of `known`; raises EngineVersionError for another."""
    if type(word) is not str:
        typed(word, str, place.where)
    if word not in known:
        raise EngineVersionError(
            f"the engine's {place.where} is {word!r}, which this braze does not know; upgrade braze"
        )
    return str(word)


def only_keys(data: Mapping[str, Any], known: Collection[str], place: Place) -> None:
    """Raise EngineVersionError for a key that is not `known`.

    A later version may have more fields, and a run must not go on without what they mean.
    """
    for key in data:
        if key not in known:
            raise EngineVersionError(
                f"the engine's {place.where} has {key!r}, which this braze does not know; upgrade "
                "braze"
            )


def check_json(value: Any, depth: int, where: str) -> None:
    """Raise EngineFormatError for what readers refuse: over `depth` levels, larger integers."""
    if depth < 0:
        fail(where, "it is nested too deeply")
    if isinstance(value, (dict, list, tuple)):
        for entry in value.values() if isinstance(value, dict) else value:
            if type(entry) is not str:
                check_json(entry, depth - 1, where)
    elif isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        fail(where, f"{value} does not fit 64 bits")
