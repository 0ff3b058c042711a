"""Plan <-> the JSON manifest and record of an engine file.

Everything of a Plan except code and weight bytes is JSON; `record` is a section of its own that
the native runtime skips. Output is ASCII with sorted keys, so equal plans give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from braze.core.errors import EngineFormatError
from braze.engine.checks import INT64_MAX, INT64_MIN, Place, check_json, only_keys, require, typed
from braze.engine.plan import Plan
from braze.engine.records import Many, field_kinds, known_keys
from braze.engine.schema import MAX_JSON_DEPTH


def dump_json(value: object, what: str) -> bytes:
    """Canonical JSON; raises EngineFormatError when `value` holds something JSON has not."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise EngineFormatError(f"the plan's {what} cannot be written as JSON: {e}") from e
    return text.encode("ascii")


def encode_manifest(plan: Plan, place_code: Callable[[bytes], tuple[int, int]]) -> bytes:
    """The manifest; `place_code` puts bytes into the code section and says (offset, bytes)."""
    place = Place(code=place_code, owner=plan)
    fields = field_kinds(Plan)
    manifest = {key: kind.encode(getattr(plan, key), place) for key, kind in fields.items()}
    return dump_json(manifest, "manifest")


def load_json(data: bytes, what: str) -> Any:
    """Parsed JSON, or EngineFormatError: nothing a damaged file holds escapes as another error.

    As the native reader, it takes ASCII, integers of 64 bits and a bounded depth only.
    """
    try:
        value = json.loads(
            data.decode("ascii"),
            parse_constant=_refuse,
            parse_int=_integer,
            object_pairs_hook=_first_of_each,
        )
        check_json(value, MAX_JSON_DEPTH, what)
    except (ValueError, RecursionError) as e:
        raise EngineFormatError(f"the engine's {what} is not readable: {e}; build it again") from e
    return value


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))  # of a key that is there twice, the native reader takes the first


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no number of 64 bits")


def _integer(text: str) -> int:
    value = int(text) if len(text) <= 20 else _refuse(text)
    return value if INT64_MIN <= value <= INT64_MAX else _refuse(text)


def decode_plan(manifest: Any, record: Any, code: memoryview, weights: memoryview | None) -> Plan:
    """The Plan of a parsed manifest; weight_data are views into `weights`, None if left out."""
    m: Mapping[str, Any] = typed(manifest, dict, "manifest")

    def code_bytes(extent: tuple[int, int]) -> bytes:
        return bytes(_slice(code, *extent, "code"))

    fields = field_kinds(Plan)
    for key in fields:
        require(key in m, "manifest", f"{key} is missing")
    counts = {k: len(typed(m[k], list, k)) for k, kind in fields.items() if isinstance(kind, Many)}
    counts["every_step"] = counts["steps"]
    for body in m["bodies"]:
        steps = typed(body, dict, "bodies").get("steps")
        counts["every_step"] += len(typed(steps, list, "bodies steps"))
    place, values = Place(counts=counts, code=code_bytes, owner=m), {}
    for key, kind in fields.items():
        place.name = key
        values[key] = kind.decode(m[key], place)
    only_keys(m, known_keys(Plan), Place("manifest"))
    notes = typed(record, dict, "record")
    if weights is None:
        return Plan(record=notes, stripped=True, **values)
    data = [_slice(weights, w.offset, w.bytes, f"weight {w.name!r}") for w in values["weights"]]
    return Plan(record=notes, weight_data=tuple(data), **values)


def _slice(section: memoryview, start: int, count: int, where: str) -> memoryview:
    fits = 0 <= start <= len(section) and 0 <= count <= len(section) - start
    require(fits, where, "it reaches outside its section")
    return section[start : start + count]
