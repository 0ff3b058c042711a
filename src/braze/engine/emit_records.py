"""The C++ structs and readers of the records, from the same kinds as the Python side."""

from __future__ import annotations

import re
from typing import Any

from braze.engine import records as r
from braze.engine.checks import INT64_MAX, INT64_MIN
from braze.engine.plan import Plan
from braze.engine.records import Kind, field_kinds, is_row, known_keys

_HEAD = """// Emitted from src/braze/engine/plan.py by braze.engine.emit_header; do not edit.
#pragma once
"""


def records_text() -> str:
    """The text of plan_records.h: a struct for every record."""
    lines = [
        _HEAD,
        "#include <array>",
        "#include <cstdint>",
        "#include <optional>",
        "#include <string>",
        "#include <variant>",
        "#include <vector>",
        "",
        '#include "engine_format.h"',
        "",
        "namespace braze {",
        "",
        "struct Extent {  // of bytes in the code section",
        "  uint64_t offset;",
        "  uint64_t bytes;",
        "};",
        "",
    ]
    for kind in _in_order():
        if isinstance(kind, r.Union):
            names = ", ".join(cls.__name__ for cls in kind.members)
            lines += [f"using {kind.name} = std::variant<{names}>;", ""]
            continue
        lines.append(f"struct {_struct_name(kind)} {{")
        for name, field in field_kinds(kind.cls).items():
            lines.append(f"  {_type(field)} {name}{_default(field)};")
        lines += ["};", ""]
    return "\n".join([*lines, "}  // namespace braze", ""])


def readers_text() -> str:
    """The text of plan_readers.h: a function that reads and checks every record."""
    lists = [name for name, kind in field_kinds(Plan).items() if isinstance(kind, r.Many)]
    lines = [
        _HEAD,
        '#include "plan_records.h"',
        '#include "record_reader.h"',
        "",
        "namespace braze {",
        "",
        "// How many entries the lists of the plan have, which bounds the indexes into them.",
        "struct Counts {",
        "  uint64_t code_bytes;",
        *[f"  size_t {name};" for name in lists],
        "  size_t every_step;  // those of the plan and of its bodies",
        "};",
        "",
        "inline Counts count_lists(const Json& root, uint64_t code_bytes) {",
        "  Counts out = {};",
        "  out.code_bytes = code_bytes;",
        *[f'  out.{name} = root.at("{name}").size();' for name in lists],
        "  out.every_step = out.steps;",
        '  root.at("bodies").each([&out](const Json& body, size_t) {',
        '    out.every_step += body.at("steps").size();',
        "  });",
        "  return out;",
        "}",
        "",
    ]
    for kind in _in_order():
        lines += _union_reader(kind) if isinstance(kind, r.Union) else _record_reader(kind)
    return "\n".join([*lines, "}  // namespace braze", ""])


def _record_reader(kind: r.Record) -> list[str]:
    name, kinds = _struct_name(kind), field_kinds(kind.cls)
    unused = "[[maybe_unused]] "
    lines = [
        f"inline {name} {_reader(name)}({unused}const Json& j, {unused}const Counts& counts,",
        f"    {unused}size_t position) {{",
        f"  {name} out;",
    ]
    if is_row(kind.cls):
        lines.append(f"  const std::array<Json, {len(kinds)}> row = j.row<{len(kinds)}>();")
    for i, (field, of) in enumerate(kinds.items()):
        source = f"row[{i}]" if is_row(kind.cls) else f'j.at("{field}")'
        lines.append(f"  out.{field} = {_read(of, source)};")
    if not is_row(kind.cls):
        known = ", ".join(f'"{key}"' for key in known_keys(kind.cls))
        lines.append(f"  only_keys(j, {{{known}}});")
    return [*lines, "  return out;", "}", ""]


def _union_reader(kind: r.Union) -> list[str]:
    lines = [
        f"inline {kind.name} {_reader(kind.name)}(const Json& j, const Counts& counts,",
        "    size_t position) {",
        '  const std::string_view kind = j.at("kind").view();',
    ]
    for cls in kind.members:
        read = f"{_reader(cls.__name__)}(j, counts, position)"
        lines.append(f'  if (kind == "{cls.TAG}") return {read};')
    return [*lines, '  unknown_word(j.at("kind"), kind);', "}", ""]


def _in_order() -> list[Any]:
    """Every record and union, after those it is made of; the plan itself comes last."""
    found: dict[Kind, None] = {}

    def visit(kind: Kind) -> None:
        inner: tuple[Kind, ...] = ()
        if isinstance(kind, (r.Many, r.Maybe)):
            inner = (kind.of,)
        elif isinstance(kind, r.Record):
            inner = tuple(field_kinds(kind.cls).values())
        elif isinstance(kind, r.Union):
            inner = tuple(r.Record(cls) for cls in kind.members)
        for part in inner:
            visit(part)
        if isinstance(kind, (r.Record, r.Union)):
            found.setdefault(kind)

    visit(r.Record(Plan))
    return list(found)


def _reader(name: str) -> str:
    return "read" + re.sub("[A-Z]", lambda m: "_" + m[0].lower(), name)


def record_classes() -> list[Any]:
    """Every record class, after those it is made of."""
    return [kind.cls for kind in _in_order() if isinstance(kind, r.Record)]


def _struct_name(kind: r.Record) -> str:
    return "PlanRecord" if kind.cls is Plan else str(kind.cls.__name__)


def _type(kind: Kind) -> str:
    if isinstance(kind, r.Many):
        return f"std::vector<{_type(kind.of)}>"
    if isinstance(kind, r.Maybe):
        return f"std::optional<{_type(kind.of)}>"
    if isinstance(kind, r.Record):
        return _struct_name(kind)
    if isinstance(kind, r.Union):
        return kind.name
    if isinstance(kind, r.Choice):
        return f"format::{kind.enum}"
    types = {
        r.Text: "std::string", r.Flag: "bool", r.Number: "int64_t", r.Index: "int32_t",
        r.Earlier: "int32_t", r.Element: "int32_t", r.Triple: "std::array<int64_t, 3>",
        r.Literal: "std::string", r.Blob: "Extent", r.Content: "std::string",
    }  # fmt: skip
    return types[type(kind)]


def _default(kind: Kind) -> str:
    plain = isinstance(kind, (r.Flag, r.Number, r.Index, r.Earlier, r.Element, r.Choice, r.Blob))
    return " = {}" if plain else ""


def _read(kind: Kind, json: str, position_name: str = "position") -> str:
    """A C++ expression that reads and checks a field from the Json expression `json`."""
    if isinstance(kind, r.Many):
        position, at = ("size_t at", "at") if kind.has_places else ("size_t", position_name)
        visit = f"[&](const Json& e, {position}) {{ return {_read(kind.of, 'e', at)}; }}"
        return f"read_list<{_type(kind.of)}>({json}, {kind.most}, {visit})"
    if isinstance(kind, r.Maybe):
        visit = f"[&](const Json& e) {{ return {_read(kind.of, 'e', position_name)}; }}"
        return f"read_optional<{_type(kind.of)}>({json}, {visit})"
    if isinstance(kind, (r.Record, r.Union)):
        return f"{_reader(_type(kind))}({json}, counts, {position_name})"
    if isinstance(kind, r.Number):
        low = "kMinInt64" if kind.low == INT64_MIN else str(kind.low)
        high = "kMaxInt64" if kind.high == INT64_MAX else str(kind.high)
        return f"{json}.integer_in({low}, {high})"
    if isinstance(kind, r.Index):
        return f"read_index({json}, {'-1' if kind.none else '0'}, counts.{kind.table})"
    if isinstance(kind, r.Choice):
        return f"read_choice<format::{kind.enum}>({json}, format::k{kind.enum}Names)"
    reads = {
        r.Text: f"{json}.text()", r.Flag: f"{json}.boolean()",
        r.Earlier: f"read_index({json}, 0, {position_name})", r.Element: f"read_dtype({json})",
        r.Triple: f"read_integers<3>({json})", r.Literal: f"{json}.object_text()",
        r.Blob: f"read_extent({json}, counts.code_bytes)", r.Content: f"read_hex({json})",
    }  # fmt: skip
    return reads[type(kind)]
