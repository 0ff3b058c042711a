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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, get_args, get_origin, get_type_hints

from braze.core.dtypes import ALL_DTYPES, DType
from braze.engine.checks import (
    INT64_MAX,
    INT64_MIN,
    Place,
    check_json,
    fail,
    known_word,
    only_keys,
    require,
    typed,
    whole_number,
)

MAX_LITERAL_DEPTH: Final = 8  # the whole manifest may have schema.MAX_JSON_DEPTH
# types below a byte exist only as constants of a model
ELEMENTS: Final = {t.name: t for t in ALL_DTYPES if t.bits >= 8}


class Kind:
    """One kind of field. is_plain: the JSON of a value is the value.

    A plan has a hundred thousand fields: what is only for errors is made when there is one.
    """

    is_plain: ClassVar[bool] = False

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

    is_plain: ClassVar[bool] = True

    def check(self, value: Any, place: Place) -> None:
        if type(value) is not str:
            typed(value, str, place.where)


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    is_plain: ClassVar[bool] = True

    def check(self, value: Any, place: Place) -> None:
        if type(value) is not bool:
            typed(value, bool, place.where)


@dataclass(frozen=True)
class Number(Kind):
    """An integer from `low` to `high`, both included."""

    is_plain: ClassVar[bool] = True

    low: int = INT64_MIN
    high: int = INT64_MAX

    def check(self, value: Any, place: Place) -> None:
        whole_number(value, place)
        if not self.low <= value <= self.high:
            fail(place.where, f"{value} is outside {self.low}..{self.high}")


@dataclass(frozen=True)
class Index(Kind):
    """The position of an entry of the plan's list `table`; -1 for none where that is allowed."""

    is_plain: ClassVar[bool] = True

    table: str
    none: bool = False

    def check(self, value: Any, place: Place) -> None:
        whole_number(value, place)
        if not (-1 if self.none else 0) <= value < place.counts[self.table]:
            count = place.counts[self.table]
            fail(place.where, f"{value} is no entry of the {count} {self.table}")


@dataclass(frozen=True)
class Earlier(Kind):
    """The position of an earlier record of the list this one is in."""

    is_plain: ClassVar[bool] = True

    def check(self, value: Any, place: Place) -> None:
        whole_number(value, place)
        if not 0 <= value < place.position:
            fail(place.where, f"{value} is not earlier")


@dataclass(frozen=True)
class Choice(Kind):
    """One of `names`; later versions may know more, so another is an EngineVersionError."""

    enum: str  # the C++ enum, in namespace format
    names: tuple[str, ...]

    def decode(self, data: Any, place: Place) -> str:
        return known_word(data, self.names, place)

    def check(self, value: Any, place: Place) -> None:
        if value not in self.names:
            fail(place.where, f"{value!r} is unknown")


@dataclass(frozen=True)
class Element(Kind):
    """An element type, by name."""

    def encode(self, value: Any, place: Place) -> Any:
        return value.name

    def decode(self, data: Any, place: Place) -> DType:
        return ELEMENTS[known_word(data, ELEMENTS, place)]

    def check(self, value: Any, place: Place) -> None:
        known = typed(value, DType, place.where).name in ELEMENTS
        require(known, place.where, f"{value} is unknown")


@dataclass(frozen=True)
class Many(Kind):
    """A list, of at most `most` entries if given."""

    of: Kind
    most: int = (1 << 31) - 1

    def encode(self, value: Any, place: Place) -> Any:
        return list(value) if self.of.is_plain else [self.of.encode(v, place) for v in value]

    def decode(self, data: Any, place: Place) -> tuple[Any, ...]:
        self._is(list, data, place)
        if self.has_places:
            decode, entry = self.of.decode, place.entries()
            return tuple([decode(v, entry.number(i)) for i, v in enumerate(data)])
        if not self.of.is_plain:
            return tuple([self.of.decode(v, place) for v in data])
        check = self.of.check
        for v in data:
            check(v, place)
        return tuple(data)

    def check(self, value: Any, place: Place) -> None:
        self._is(tuple, value, place)
        check = self.of.check
        if self.has_places:
            entry = place.entries()
            for i, v in enumerate(value):
                check(v, entry.number(i))
        else:
            for v in value:
                check(v, place)

    def _is(self, kind: type, value: Any, place: Place) -> None:
        if type(value) is not kind:
            typed(value, kind, place.where)
        if len(value) > self.most:
            fail(place.where, f"more than {self.most} entries")

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

    is_plain: ClassVar[bool] = True

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
        fields, own = {}, place.fields(value)
        for key, kind in field_kinds(self.cls).items():
            content = getattr(value, key)
            fields[key] = content if kind.is_plain else kind.encode(content, own)
        return list(fields.values()) if is_row(self.cls) else fields

    def decode(self, data: Any, place: Place) -> Any:
        kinds = field_kinds(self.cls)
        if is_row(self.cls):
            if type(data) is not list:
                typed(data, list, place.where)
            if len(data) != len(kinds):
                fail(place.where, f"not {len(kinds)} fields")
            data = dict(zip(kinds, data, strict=True))
        if type(data) is not dict:
            typed(data, dict, place.where)
        fields, own = {}, place.fields(data)
        for key, kind in kinds.items():
            if key not in data:
                fail(place.where, f"{key} is missing")
            own.name = key
            fields[key] = value = data[key]
            if kind.is_plain:
                kind.check(value, own)
            else:
                fields[key] = kind.decode(value, own)
        if len(data) != len(known_keys(self.cls)):
            only_keys(data, known_keys(self.cls), place)
        return self.cls(**fields)

    def check(self, value: Any, place: Place) -> None:
        if type(value) is not self.cls:
            typed(value, self.cls, place.where)
        own = place.fields()
        for name, kind in field_kinds(self.cls).items():
            own.name = name
            kind.check(getattr(value, name), own)


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
        if type(data) is not dict:
            typed(data, dict, place.where)
        if "kind" not in data:
            fail(place.where, "kind is missing")
        by_tag, own = {cls.TAG: cls for cls in self.members}, place.fields()
        own.name = "kind"
        return Record(by_tag[known_word(data["kind"], by_tag, own)]).decode(data, place)

    def check(self, value: Any, place: Place) -> None:
        if type(value) not in self.members:
            fail(place.where, f"{type(value).__name__} is no member")
        Record(type(value)).check(value, place)


def is_row(cls: Any) -> bool:
    """Whether the JSON of a record is an array."""
    return bool(getattr(cls, "ROW", False))


@functools.cache
def field_kinds(cls: Any) -> Mapping[str, Kind]:
    """Name and kind of every stored field of a record; a field annotated None is not stored."""
    hints = get_type_hints(cls, include_extras=True)
    kinds = {f.name: _kind(hints[f.name]) for f in dataclasses.fields(cls)}
    return {name: kind for name, kind in kinds.items() if kind is not None}


@functools.cache
def known_keys(cls: Any) -> tuple[str, ...]:
    """The keys of a record's JSON object: its fields, and the kind of a member of a union."""
    return (*field_kinds(cls), "kind") if hasattr(cls, "TAG") else tuple(field_kinds(cls))


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
