"""Emit the C++ view of the engine file: python -m braze.engine.emit_header native/src.

engine_format.h has the constants of `schema` and the element types, plan_records.h and
plan_readers.h the records of `plan`. A test asserts that the headers in the repository are these.
"""

from __future__ import annotations

import sys
from pathlib import Path

from braze.engine import schema
from braze.engine.emit_records import readers_text, record_classes, records_text
from braze.engine.records import ELEMENTS, Choice, field_kinds

_CONSTANTS = (
    "SECTION_ALIGN", "PAGE_ALIGN", "WEIGHT_ALIGN", "MIN_ALIGN", "CHECKSUM_CHUNK_BYTES",
    "CHECKSUM_LANES", "CHECKSUM_KEY", "CHECKSUM_MIX_1", "CHECKSUM_MIX_2", "MAX_SECTIONS",
    "MAX_MANIFEST_BYTES", "MAX_JSON_DEPTH", "MAX_RANK", "MAX_BOUNDED", "MAX_WORKERS",
    "MAX_BODY_DEPTH", "HEADER_CHECKED_BYTES",
)  # fmt: skip
_CPP_TYPES = {"I": "uint32_t", "Q": "uint64_t"}


def _camel(name: str) -> str:
    return "k" + "".join(part.capitalize() for part in name.split("_"))


def _struct(name: str, fields: tuple[schema.Field, ...], size: int) -> list[str]:
    lines = [f"struct {name} {{"]
    for field in fields:
        if field.code.endswith("s"):
            lines.append(f"  unsigned char {field.name}[{field.code[:-1]}];  // {field.what}")
        else:
            lines.append(f"  {_CPP_TYPES[field.code]} {field.name};  // {field.what}")
    return [*lines, "};", f'static_assert(sizeof({name}) == {size}, "{name} has no padding");', ""]


def _enum(name: str, values: dict[str, int], base: str) -> list[str]:
    entries = [f"  {_camel(key)} = {value}," for key, value in values.items()]
    return [f"enum class {name} : {base} {{", *entries, "};", ""]


def header_text() -> str:
    """The whole text of engine_format.h."""
    magic = ", ".join(f"0x{byte:02x}" for byte in schema.MAGIC)
    lines = [
        "// Emitted from src/braze/engine by braze.engine.emit_header; do not edit.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "#include <string_view>",
        "",
        "namespace braze::format {",
        "",
        f"inline constexpr unsigned char kMagic[{len(schema.MAGIC)}] = {{{magic}}};",
        f"inline constexpr uint32_t kVersion = {schema.VERSION};",
        f"inline constexpr uint32_t kMinReaderVersion = {schema.MIN_READER_VERSION};",
        f"inline constexpr uint32_t kOldestVersion = {schema.OLDEST_VERSION};",
        f"inline constexpr uint32_t kSectionFlagRequired = {schema.SECTION_FLAG_REQUIRED};",
        f"inline constexpr uint32_t kSectionFlagStripped = {schema.SECTION_FLAG_STRIPPED};",
    ]
    lines += [
        f"inline constexpr uint64_t {_camel(c)} = {getattr(schema, c):#x};" for c in _CONSTANTS
    ]
    lines.append("")
    lines += _struct("FileHeader", schema.HEADER_FIELDS, schema.HEADER.size)
    lines += _struct("SectionEntry", schema.SECTION_FIELDS, schema.SECTION.size)
    lines += _enum("SectionKind", schema.SECTION_KINDS, "uint32_t")
    for choice in _choices():
        values = {name: i for i, name in enumerate(choice.names)}
        lines += _enum(choice.enum, values, "uint8_t")
        names = ", ".join(f'"{name}"' for name in choice.names)
        lines += [
            f"inline constexpr std::string_view k{choice.enum}Names[] = {{{names}}};",
            "",
        ]
    lines += ["struct DTypeRow {", "  std::string_view name;", "  int32_t bytes;", "};"]
    lines.append("inline constexpr DTypeRow kDTypes[] = {")
    lines += [f'    {{"{t.name}", {t.itemsize}}},' for t in ELEMENTS.values()]
    return "\n".join([*lines, "};", "", "}  // namespace braze::format", ""])


def _choices() -> list[Choice]:
    found: dict[Choice, None] = {}
    for record in record_classes():
        for kind in field_kinds(record).values():
            if isinstance(kind, Choice):
                found.setdefault(kind)
    return list(found)


def files() -> dict[str, str]:
    """Name and text of every emitted header."""
    return {
        "engine_format.h": header_text(),
        "plan_records.h": records_text(),
        "plan_readers.h": readers_text(),
    }


def main(arguments: list[str]) -> None:
    """Write the headers into the folder given, or print them."""
    for name, text in files().items():
        if arguments:
            (Path(arguments[0]) / name).write_text(text, encoding="ascii")
        else:
            sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
