"""Emit native/src/engine_format.h, the C++ view of `schema` (python -m braze.engine.emit_header).

A test asserts that the header in the repository equals what this prints.
"""

from __future__ import annotations

import sys
from pathlib import Path

from braze.engine import schema
from braze.engine.plan import SIZE_OPS

_CONSTANTS = (
    "SECTION_ALIGN", "PAGE_ALIGN", "WEIGHT_ALIGN", "ARENA_ALIGN", "CHECKSUM_CHUNK_BYTES",
    "CHECKSUM_LANES", "CHECKSUM_KEY", "CHECKSUM_MIX_1", "CHECKSUM_MIX_2", "MAX_SECTIONS",
    "MAX_MANIFEST_BYTES", "MAX_JSON_DEPTH", "MAX_RANK", "MAX_WORKERS", "HEADER_CHECKED_BYTES",
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
        "// Emitted from src/braze/engine/schema.py by braze.engine.emit_header; do not edit.",
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
        f"inline constexpr uint32_t kSectionFlagRequired = {schema.SECTION_FLAG_REQUIRED};",
    ]
    lines += [
        f"inline constexpr uint64_t {_camel(c)} = {getattr(schema, c):#x};" for c in _CONSTANTS
    ]
    lines.append("")
    lines += _struct("FileHeader", schema.HEADER_FIELDS, schema.HEADER.size)
    lines += _struct("SectionEntry", schema.SECTION_FIELDS, schema.SECTION.size)
    lines += _enum("SectionKind", schema.SECTION_KINDS, "uint32_t")
    lines += _enum("SizeOpCode", {op: i for i, op in enumerate(SIZE_OPS)}, "uint8_t")
    lines.append(f"inline constexpr uint32_t kNumSizeOps = {len(SIZE_OPS)};")
    kinds = {kind: i for i, kind in enumerate(schema.BUFFER_KINDS)}
    lines += ["", *_enum("BufferKind", kinds, "uint8_t")]
    lines += _names("kBufferKinds", schema.BUFFER_KINDS)
    lines += _names("kStepKinds", schema.STEP_KINDS)
    lines += ["struct DTypeRow {", "  std::string_view name;", "  int32_t bytes;", "};"]
    lines.append("inline constexpr DTypeRow kDTypes[] = {")
    lines += [f'    {{"{name}", {size}}},' for name, size in schema.DTYPE_BYTES.items()]
    lines += ["};", ""]
    for record, keys in (("manifest", schema.MANIFEST_KEYS), *schema.RECORD_KEYS.items()):
        lines.append(f"namespace {record}_keys {{")
        lines += [f'inline constexpr std::string_view {_camel(k)} = "{k}";' for k in keys]
        lines += [f"}}  // namespace {record}_keys", ""]
    return "\n".join([*lines, "}  // namespace braze::format", ""])


def _names(name: str, values: tuple[str, ...]) -> list[str]:
    quoted = ", ".join(f'"{v}"' for v in values)
    return [f"inline constexpr std::string_view {name}[] = {{{quoted}}};", ""]


def main(arguments: list[str]) -> None:
    """Write the header to the path given, or print it."""
    if arguments:
        Path(arguments[0]).write_text(header_text(), encoding="ascii")
    else:
        sys.stdout.write(header_text())


if __name__ == "__main__":
    main(sys.argv[1:])
