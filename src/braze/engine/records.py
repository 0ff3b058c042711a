"""What the fields of a record are: one description gives encoder, decoder, checks and C++ reader.

A record is a frozen dataclass (`engine/plan.py`). `field_kinds` derives a Kind from the annotation
of each field, so that a new field is one line there; `engine/emit_header.py` asks the same kinds
for the C++ struct and its reader. JSON objects have the field names as keys; a class with ROW is
an array of its fields, and the members of a union carry their TAG as "kind".
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from braze.core.dtypes import ALL_DTYPES, DType
from braze.core.errors import EngineFormatError, EngineVersionError

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
MAX_LITERAL_DEPTH: Final = 8  # the whole manifest may have schema.MAX_JSON_DEPTH
# types below a byte exist only as constants of a model
ELEMENTS: Final = {t.name: t for t in ALL_DTYPES if t.bits >= 8}


def require(condition: bool, where: str, what: str) -> None:
    """Raise EngineFormatError, saying where, unless `condition` holds."""
    if not condition:
        raise EngineFormatError(f"the engine's {where}: {what}; build the engine again")


def typed(value: Any, kind: type, where: str) -> Any:
    """`value` if it is a `kind` (a bool is no int); raises EngineFormatError."""
    fits = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    require(fits, where, f"{type(value).__name__} where {kind.__name__} belongs")
    return value


@dataclass(frozen=True, slots=True)
class Place:
    """Where an encoder, decoder or check stands.

    where: the path, for errors; counts: entries of every list of the plan (for checks); code: from
    bytes to [offset, bytes] in the code section (encode), or back (decode); owner: the record, or
    its JSON, that the field belongs to; position: of that record in the list around it.
    """

    where: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    code: Callable[[Any], Any] | None = None
    owner: Any = None
    position: int = 0

    def at(self, name: object, owner: Any = None, position: int | None = None) -> Place:
        """The place of a field or list entry."""
        where = f"{self.where} {name}" if self.where else str(name)
        owner = self.owner if owner is None else owner
        position = self.position if position is None else position
        return Place(where, self.counts, self.code, owner, position)


class Kind:
    """One kind of field."""

    def encode(self, value: Any, place: Place) -> Any:
        """The JSON of `value`."""
        return value

    def decode(self, data: Any, place: Place) -> Any:
        """The checked value of JSON; raises EngineFormatError or EngineVersionError.

        Fields are checked in their order, as the native reader does, so that both find the same
        fault first.
        """
        self.check(data, place)
        return data

    def check(self, value: Any, place: Place) -> None:
        """Raise EngineFormatError (or EngineVersionError) unless `value` is in range."""


@dataclass(frozen=True)
class Text(Kind):
    """A text."""

    def check(self, value: Any, place: Place) -> None:
        typed(value, str, place.where)


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    def check(self, value: Any, place: Place) -> None:
        typed(value, bool, place.where)


@dataclass(frozen=True)
class Number(Kind):
    """An integer from `low` to `high`, both included."""

    low: int = INT64_MIN
    high: int = INT64_MAX

    def check(self, value: Any, place: Place) -> None:
        typed(value, int, place.where)
        fits = self.low <= value <= self.high
        require(fits, place.where, f"{value} is outside {self.low}..{self.high}")


@dataclass(frozen=True)
class Index(Kind):
    """The position of an entry of the plan's list `table`; -1 for none where that is allowed."""

    table: str
    none: bool = False

    def check(self, value: Any, place: Place) -> None:
        typed(value, int, place.where)
        low, count = -1 if self.none else 0, place.counts[self.table]
        require(
            low <= value < count, place.where, f"{value} is no entry of the {count} {self.table}"
        )


@dataclass(frozen=True)
class Earlier(Kind):
    """The position of an earlier record of the list this one is in."""

    def check(self, value: Any, place: Place) -> None:
        typed(value, int, place.where)
        require(0 <= value < place.position, place.where, f"{value} is not earlier")


@dataclass(frozen=True)
class Choice(Kind):
    """One of `names`; later versions may know more, so another is an EngineVersionError."""

    enum: str  # the C++ enum, in namespace format
    names: tuple[str, ...]

    def decode(self, data: Any, place: Place) -> str:
        unknown_word(typed(data, str, place.where), self.names, place.where)
        return str(data)

    def check(self, value: Any, place: Place) -> None:
        require(value in self.names, place.where, f"{value!r} is unknown")


def unknown_word(word: str, known: typing.Container[str], where: str) -> None:
    """Raise EngineVersionError unless `word` is one of `known`."""
    if word not in known:
        raise EngineVersionError(
            f"the engine's {where} is {word!r}, which this braze does not know; upgrade braze"
        )


@dataclass(frozen=True)
class Element(Kind):
    """An element type, by name."""

    def encode(self, value: Any, place: Place) -> Any:
        return value.name

    def decode(self, data: Any, place: Place) -> DType:
        unknown_word(typed(data, str, place.where), ELEMENTS, place.where)
        return ELEMENTS[data]

    def check(self, value: Any, place: Place) -> None:
        known = typed(value, DType, place.where).name in ELEMENTS
        require(known, place.where, f"{value} is unknown")


@dataclass(frozen=True)
class Many(Kind):
    """A list, of at most `most` entries if given."""

    of: Kind
    most: int = (1 << 31) - 1

    def encode(self, value: Any, place: Place) -> Any:
        return [self.of.encode(v, place) for v in value]

    def decode(self, data: Any, place: Place) -> tuple[Any, ...]:
        rows = typed(data, list, place.where)
        require(len(rows) <= self.most, place.where, f"more than {self.most} entries")
        if self.has_places:
            places = (place.at(i, position=i) for i in range(len(rows)))
            return tuple(self.of.decode(v, p) for v, p in zip(rows, places, strict=True))
        return tuple(self.of.decode(v, place) for v in rows)

    def check(self, value: Any, place: Place) -> None:
        typed(value, tuple, place.where)
        require(len(value) <= self.most, place.where, f"more than {self.most} entries")
        for i, entry in enumerate(value):
            self.of.check(entry, place.at(i, position=i) if self.has_places else place)

    @property
    def has_places(self) -> bool:
        """Whether its entries have positions of their own; numbers belong to the record around."""
        return isinstance(self.of, (Record, Union))


@dataclass(frozen=True)
class Triple(Kind):
    """Three integers."""

    def decode(self, data: Any, place: Place) -> tuple[int, ...]:
        require(len(typed(data, list, place.where)) == 3, place.where, "not three integers")
        return tuple(Number().decode(v, place) for v in data)

    def check(self, value: Any, place: Place) -> None:
        require(len(typed(value, tuple, place.where)) == 3, place.where, "not three integers")
        for v in value:
            Number().check(v, place)


@dataclass(frozen=True)
class Literal(Kind):
    """A JSON object that is only passed on; C++ keeps its text."""

    def check(self, value: Any, place: Place) -> None:
        check_json(typed(value, dict, place.where), MAX_LITERAL_DEPTH, place.where)


@dataclass(frozen=True)
class Blob(Kind):
    """Bytes in the code section; the JSON is [offset, bytes]."""

    def encode(self, value: Any, place: Place) -> Any:
        assert place.code is not None
        return place.code(value)

    def decode(self, data: Any, place: Place) -> Any:
        require(len(typed(data, list, place.where)) == 2, place.where, "not [offset, bytes]")
        for v in data:
            Number(0).check(v, place)
        assert place.code is not None
        return place.code(data)


@dataclass(frozen=True)
class Content(Kind):
    """The values of a constant tensor, as the hexadecimal of their bytes: exact for NaN and -0.0.

    The element type is the record's field `dtype`.
    """

    pack: Callable[[DType, Any], bytes]
    unpack: Callable[[DType, bytes], tuple[int | float, ...]]

    def encode(self, value: Any, place: Place) -> Any:
        return self.pack(place.owner.dtype, value).hex()

    def decode(self, data: Any, place: Place) -> Any:
        digits = typed(data, str, place.where)
        good = len(digits) % 2 == 0 and set(digits) <= set("0123456789abcdef")
        require(good, place.where, "not hexadecimal")
        dtype = Element().decode(place.owner["dtype"], place)
        content = bytes.fromhex(digits)
        require(len(content) % dtype.itemsize == 0, place.where, "cut short")
        return self.unpack(dtype, content)


@dataclass(frozen=True)
class Record(Kind):
    """A record of its own."""

    cls: Any

    def encode(self, value: Any, place: Place) -> Any:
        kinds = field_kinds(self.cls).items()
        own = replace(place, owner=value)
        fields = {k: kind.encode(getattr(value, k), own) for k, kind in kinds}
        return list(fields.values()) if is_row(self.cls) else fields

    def decode(self, data: Any, place: Place) -> Any:
        kinds = field_kinds(self.cls)
        if is_row(self.cls):
            fits = len(typed(data, list, place.where)) == len(kinds)
            require(fits, place.where, f"not {len(kinds)} fields")
            data = dict(zip(kinds, data, strict=True))
        typed(data, dict, place.where)
        fields = {}
        for key, kind in kinds.items():
            require(key in data, place.where, f"{key} is missing")
            fields[key] = kind.decode(data[key], place.at(key, owner=data))
        return self.cls(**fields)

    def check(self, value: Any, place: Place) -> None:
        typed(value, self.cls, place.where)
        for name, kind in field_kinds(self.cls).items():
            kind.check(getattr(value, name), place.at(name))


@dataclass(frozen=True)
class Maybe(Kind):
    """A record or nothing (null)."""

    of: Record

    def encode(self, value: Any, place: Place) -> Any:
        return None if value is None else self.of.encode(value, place)

    def decode(self, data: Any, place: Place) -> Any:
        return None if data is None else self.of.decode(data, place)

    def check(self, value: Any, place: Place) -> None:
        if value is not None:
            self.of.check(value, place)


@dataclass(frozen=True)
class Union(Kind):
    """One of several records, told apart by "kind"; another kind is an EngineVersionError."""

    name: str  # of the C++ std::variant
    members: tuple[Any, ...]

    def encode(self, value: Any, place: Place) -> Any:
        return {"kind": value.TAG, **Record(type(value)).encode(value, place)}

    def decode(self, data: Any, place: Place) -> Any:
        require("kind" in typed(data, dict, place.where), place.where, "kind is missing")
        by_tag = {cls.TAG: cls for cls in self.members}
        unknown_word(typed(data["kind"], str, place.where), by_tag, f"{place.where} kind")
        return Record(by_tag[data["kind"]]).decode(data, place)

    def check(self, value: Any, place: Place) -> None:
        require(type(value) in self.members, place.where, f"{type(value).__name__} is no member")
        Record(type(value)).check(value, place)


def check_json(value: Any, depth: int, where: str) -> None:
    """Raise EngineFormatError for what readers refuse: over `depth` levels, larger integers."""
    require(depth >= 0, where, "it is nested too deeply")
    if isinstance(value, (dict, list, tuple)):
        for entry in value.values() if isinstance(value, dict) else value:
            check_json(entry, depth - 1, where)
    elif isinstance(value, int):
        require(INT64_MIN <= value <= INT64_MAX, where, f"{value} does not fit 64 bits")


def is_row(cls: Any) -> bool:
    """Whether the JSON of a record is an array."""
    return bool(getattr(cls, "ROW", False))


@functools.cache
def field_kinds(cls: Any) -> Mapping[str, Kind]:
    """Name and kind of every stored field of a record; a field annotated None is not stored."""
    hints = get_type_hints(cls, include_extras=True)
    kinds = {f.name: _kind(hints[f.name]) for f in dataclasses.fields(cls)}
    return {name: kind for name, kind in kinds.items() if kind is not None}


class Unstored:
    """Marks a field that is not in the manifest."""


def _kind(hint: Any) -> Kind | None:
    if get_origin(hint) is Annotated:
        mark = get_args(hint)[-1]
        if mark is Unstored:
            return None
        assert isinstance(mark, Kind)
        return mark
    simple: dict[Any, Kind] = {
        str: Text(), bool: Flag(), DType: Element(), bytes: Blob(), dict[str, Any]: Literal(),
        tuple[int, int, int]: Triple(),
    }  # fmt: skip
    if hint in simple:
        return simple[hint]
    if dataclasses.is_dataclass(hint):
        return Record(hint)
    arguments = get_args(hint)
    if get_origin(hint) is types.UnionType and arguments[1:] == (type(None),):
        return Maybe(Record(arguments[0]))
    if get_origin(hint) is tuple and arguments[1:] == (Ellipsis,):
        of = _kind(arguments[0])
        assert of is not None
        return Many(of)
    raise TypeError(f"{hint} needs an annotation that says what it is")
