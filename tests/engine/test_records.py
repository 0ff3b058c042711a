"""Every field of every record of the plan: kept by a round trip, refused when out of range.

The fields come from the records' own description, so a field that is added to engine/plan.py is
tested without a line here, in the Python reader and in the native one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from braze.core.errors import EngineFormatError, EngineVersionError, TargetError
from braze.engine import records as r
from braze.engine import schema
from braze.engine.emit_records import record_classes
from braze.engine.plan import Plan
from braze.engine.read import from_bytes
from braze.engine.records import Kind, field_kinds, is_row
from braze.engine.write import to_bytes
from tests.engine.files import fixed_up, load_everywhere, section
from tests.runtime.plans import every_record_plan

# the plan has code for a device: the native reader finds nothing wrong before it comes to that
SOUND = [None, TargetError]
Path_ = tuple[Any, ...]  # keys and positions from the manifest to a field
Found = tuple[Path_, Kind, str]  # ... the field's kind, and "Record.field"


def fields(kind: Kind, data: Any, path: Path_, name: str) -> Iterator[Found]:
    """Every field in `data`, which is the JSON of `kind`."""
    yield path, kind, name
    if isinstance(kind, r.Many):
        for i, entry in enumerate(data):
            yield from fields(kind.of, entry, (*path, i), name)
    elif isinstance(kind, r.Maybe) and data is not None:
        yield from fields(kind.of, data, path, name)
    elif isinstance(kind, r.Union):
        (cls,) = (c for c in kind.members if data["kind"] == c.TAG)
        yield from fields(r.Record(cls), data, path, name)
    elif isinstance(kind, r.Record):
        for i, (field, of) in enumerate(field_kinds(kind.cls).items()):
            key = i if is_row(kind.cls) else field
            yield from fields(of, data[key], (*path, key), f"{kind.cls.__name__}.{field}")


def wrong_values(kind: Kind, counts: dict[str, int]) -> list[Any]:
    """JSON that has no place in a field of `kind`."""
    other_types: list[Any] = [7.5, "text", 3, True, None, [], {}]
    if isinstance(kind, (r.Text, r.Content, r.Choice, r.Element)):
        wrong = [v for v in other_types if not isinstance(v, str)]
        if isinstance(kind, r.Content):
            wrong += ["0", "zz", "AA"]
    elif isinstance(kind, r.Flag):
        wrong = [v for v in other_types if not isinstance(v, bool)]
    elif isinstance(kind, (r.Number, r.Index, r.Earlier)):
        wrong = [v for v in other_types if v != 3]
        wrong += [1 << 63, -(1 << 63) - 1]
        if isinstance(kind, r.Number):
            wrong += [kind.low - 1, kind.high + 1]
        elif isinstance(kind, r.Index):
            wrong += [-2 if kind.none else -1, counts[kind.table], 1 << 32]
        else:
            wrong += [-1, 1 << 31]
    elif isinstance(kind, (r.Many, r.Blob, r.Triple)):
        wrong = [v for v in other_types if v != []]
        if isinstance(kind, r.Many) and kind.most < 1000:
            wrong.append([0] * (kind.most + 1))
        if isinstance(kind, r.Blob):
            wrong += [[], [0], [0, 1, 2], [-1, 1], [0, 1 << 40], [(1 << 63) - 1, 1]]
    else:
        wrong = [
            v for v in other_types if v != {} and not (isinstance(kind, r.Maybe) and v is None)
        ]
    return wrong


def changed(manifest: Any, path: Path_, value: Any) -> Any:
    out = copy.deepcopy(manifest)
    inner = out
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return out


def with_manifest(data: bytes, manifest: Any) -> bytes:
    """`data` with another manifest: a file of its own with the same sections."""
    text = json.dumps(manifest).encode()
    header = list(schema.HEADER.unpack_from(data))
    count, out = header[5], bytearray(data[: header[4] + header[5] * schema.SECTION.size])
    for i in range(count):
        at = header[4] + i * schema.SECTION.size
        kind, flags, offset, size, total = schema.SECTION.unpack_from(data, at)
        piece = text if kind == schema.SECTION_KINDS["manifest"] else data[offset : offset + size]
        out += bytes(-len(out) % schema.PAGE_ALIGN)
        schema.SECTION.pack_into(out, at, kind, flags, len(out), len(piece), total)
        out += piece
    header[3] = len(out)
    schema.HEADER.pack_into(out, 0, *header)
    return fixed_up(out)


def manifest_of(data: bytes) -> Any:
    offset, size = section(data, "manifest")
    return json.loads(data[offset : offset + size])


@pytest.fixture(scope="module")
def case() -> tuple[bytes, Any, list[Found]]:
    data = to_bytes(every_record_plan())
    manifest = manifest_of(data)
    return data, manifest, list(fields(r.Record(Plan), manifest, (), "Plan"))


def test_the_plan_has_every_record_and_comes_back_whole(case: Any) -> None:
    data, manifest, found = case
    plan = every_record_plan()
    assert from_bytes(data) == plan
    assert load_everywhere(with_manifest(data, manifest)) == SOUND
    names = {f"{c.__name__}.{f}" for c in record_classes() for f in field_kinds(c)}
    assert {name for *_, name in found} - {"Plan"} == names
    lists = {name for _, kind, name in found if isinstance(kind, r.Many)}
    filled = {name for path, kind, name in found if not isinstance(kind, r.Many)}
    assert lists <= filled  # no list is empty everywhere


def test_both_readers_refuse_every_wrong_value_of_every_field(case: Any) -> None:
    data, manifest, found = case
    counts = {k: len(v) for k, v in manifest.items() if isinstance(v, list)}
    counts["every_step"] = len(every_record_plan().every_step)
    may_be_missing = {path for path, kind, _ in found if isinstance(kind, r.Maybe)}
    seen: dict[tuple[str, str], int] = {}
    for path, kind, name in found:
        # two places of each field are enough: the first, and one of a later record
        key = (name, type(kind).__name__)
        seen[key] = seen.get(key, 0) + 1
        if not path or seen[key] > 2:
            continue
        for value in wrong_values(kind, counts):
            if value is None and path in may_be_missing:
                continue
            both = load_everywhere(with_manifest(data, changed(manifest, path, value)))
            version = isinstance(kind, (r.Choice, r.Element)) and isinstance(value, str)
            expected = EngineVersionError if version else EngineFormatError
            assert both == [expected] * 2, (path, name, value)


def test_unknown_words_name_a_newer_braze(case: Any) -> None:
    data, manifest, found = case
    words = [(p, k) for p, k, _ in found if isinstance(k, (r.Choice, r.Element, r.Union))]
    assert words
    for path, kind in words:
        at = (*path, "kind") if isinstance(kind, r.Union) else path
        both = load_everywhere(with_manifest(data, changed(manifest, at, "quantum")))
        assert both == [EngineVersionError] * 2, at


def test_both_readers_refuse_a_record_that_lacks_a_field(case: Any) -> None:
    data, manifest, found = case
    for path in {
        name: path for path, _, name in found if path and isinstance(path[-1], str)
    }.values():
        without = copy.deepcopy(manifest)
        inner = without
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
        both = load_everywhere(with_manifest(data, without))
        assert both == [EngineFormatError] * 2, path


def test_both_readers_refuse_fields_they_do_not_know(case: Any) -> None:
    """A newer braze wrote them, and they mean something: a field needs no number of a version."""
    data, manifest, found = case
    for path, kind, _ in found:
        if isinstance(kind, r.Record) and not is_row(kind.cls):
            more = changed(manifest, (*path, "later"), {"x": [1]})
            both = load_everywhere(with_manifest(data, more))
            assert both == [EngineVersionError] * 2, path


@pytest.mark.parametrize(
    "wrong",
    [{"box": [64]}, {"strides": []}, {"shape": [], "strides": [], "box": []}, {"buffer": 1}],
)
def test_both_readers_refuse_maps_of_other_tensors(case: Any, wrong: dict[str, Any]) -> None:
    """A tensor map has as many sizes as axes, and is of a buffer of its launch."""
    data, manifest, found = case
    paths = [p for p, kind, name in found if name == "Launch.maps" and isinstance(kind, r.Many)]
    ((path, right),) = ((p, m) for p in paths for m in _at(manifest, p))
    both = load_everywhere(with_manifest(data, changed(manifest, path, [{**right, **wrong}])))
    assert both == [EngineFormatError] * 2


def _at(manifest: Any, path: Path_) -> Any:
    for key in path:
        manifest = manifest[key]
    return manifest


def test_both_readers_refuse_bounds_of_what_is_no_content(case: Any) -> None:
    data, manifest, _ = case
    at = next(i for i, b in enumerate(manifest["inputs"]) if b["content"])
    wrong: list[tuple[str, Any]] = [
        ("dtype", "float32"), ("dtype", "bool"), ("content", [1, 1]), ("content", [0]),
        ("content", [2]), ("shape", [0]), ("value", "00" * 8),
    ]  # fmt: skip
    for field, value in wrong:
        bad = changed(manifest, ("inputs", at, field), value)
        assert load_everywhere(with_manifest(data, bad)) == [EngineFormatError] * 2, field
    out = changed(manifest, ("outputs", 0, "content"), [1])
    assert load_everywhere(with_manifest(data, out)) == [EngineFormatError] * 2
