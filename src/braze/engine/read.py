"""Read an engine file back into a Plan; every bound is checked before it is used.

Running an engine does not need this module: the native runtime reads the file itself. It serves
inspection, tests and tools.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import Any

from braze.core.errors import EngineFormatError, EngineVersionError, FileError
from braze.core.files import path_text
from braze.engine import schema
from braze.engine.checksum import checksum
from braze.engine.manifest import decode_plan, load_json
from braze.engine.plan import Plan
from braze.engine.validate import check_relations


@dataclass(frozen=True, slots=True)
class Section:
    """One row of the section table, checked to lie within the file."""

    kind: int
    offset: int
    size: int
    checksum: int
    stripped: bool


def read_file(path: str | os.PathLike[str], verify_weights: bool = True) -> Plan:
    """The Plan in the engine file at `path`; weight_data are views into the mapped file.

    Raises FileError where it cannot be read.
    """
    try:
        with open(path_text(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as e:
        where = f"engine {os.fspath(path)} cannot be read"
        raise FileError(f"{where}: {e.strerror}; give the name of an engine file") from e
    return from_bytes(data, verify_weights, os.fspath(path))


def from_bytes(
    data: bytes | memoryview | mmap.mmap, verify_weights: bool = True, name: str = "engine"
) -> Plan:
    """The Plan in an engine file held in memory; `name` is used in errors."""
    try:
        view = memoryview(data).cast("B")
    except TypeError as e:
        raise EngineFormatError(f"an engine in memory must be bytes ({e})") from e
    sections = read_sections(view, name)
    parts: dict[str, memoryview] = {}
    stripped = any(s.stripped for s in sections)
    for kind, code in schema.SECTION_KINDS.items():
        section = next((s for s in sections if s.kind == code), None)
        if section is None:
            raise EngineFormatError(f"{name}: the {kind} section is missing; build it again")
        parts[kind] = view[section.offset : section.offset + section.size]
        if kind == "weights" and not verify_weights:
            continue
        if checksum(parts[kind]) != section.checksum:
            raise _damaged(name, kind)
    if len(parts["manifest"]) > schema.MAX_MANIFEST_BYTES:
        raise EngineFormatError(f"{name}: the manifest is larger than the format allows")
    manifest = load_json(bytes(parts["manifest"]), "manifest")
    record = load_json(bytes(parts["record"]), "record")
    plan = decode_plan(manifest, record, parts["code"], None if stripped else parts["weights"])
    check_relations(plan)
    return plan


def check_section(data: memoryview, kind: str) -> None:
    """Raise EngineFormatError where an engine file's section of that kind is damaged."""
    code = schema.SECTION_KINDS[kind]
    for s in read_sections(data, "engine"):
        if s.kind == code and checksum(data[s.offset : s.offset + s.size]) != s.checksum:
            raise _damaged("engine", kind)


def _damaged(name: str, kind: str) -> EngineFormatError:
    return EngineFormatError(
        f"{name}: the {kind} section is damaged (its checksum differs); copy the file again or "
        "rebuild the engine"
    )


def read_sections(view: memoryview, name: str) -> list[Section]:
    """The section table, after checking the header, version, checksums and bounds."""
    _, version, min_reader, _, table_offset, count, _, table_sum, _, _ = _header(view, name)
    if version < schema.OLDEST_VERSION:
        raise EngineVersionError(
            f"{name} is of format version {version}, which this braze no longer reads (it reads "
            f"{schema.OLDEST_VERSION} to {schema.VERSION}); build the engine again"
        )
    if min_reader > schema.VERSION:
        raise EngineVersionError(
            f"{name} needs a reader of format version {min_reader} (written by version "
            f"{version}), this braze reads up to {schema.VERSION}; upgrade braze or rebuild it"
        )
    table_bytes = count * schema.SECTION.size
    if count > schema.MAX_SECTIONS or table_offset + table_bytes > len(view):
        raise EngineFormatError(f"{name}: the section table lies outside the file; build it again")
    table = view[table_offset : table_offset + table_bytes]
    if checksum(table) != table_sum:
        raise EngineFormatError(f"{name}: the section table is damaged; copy the file again")
    sections: list[Section] = []
    parts = [(0, schema.HEADER.size), (table_offset, table_bytes)]
    for kind, flags, offset, size, section_sum in schema.SECTION.iter_unpack(table):
        if offset + size > len(view) or offset % schema.SECTION_ALIGN:
            raise EngineFormatError(f"{name}: section {kind} lies outside the file")
        known = kind in schema.SECTION_KINDS.values()
        if not known and flags & schema.SECTION_FLAG_REQUIRED:
            raise EngineVersionError(
                f"{name} has a section of kind {kind} that this braze does not know; upgrade braze"
            )
        if known and any(s.kind == kind for s in sections):
            raise EngineFormatError(f"{name}: section {kind} is there twice; build it again")
        stripped = known and bool(flags & schema.SECTION_FLAG_STRIPPED)
        if stripped and (size or kind != schema.SECTION_KINDS["weights"]):
            raise EngineFormatError(
                f"{name}: section {kind} says that its content was left out; build it again"
            )
        sections.append(Section(kind, offset, size, section_sum, stripped))
        parts.append((offset, size))
    _check_padding(view, parts, name)
    return sections


def _check_padding(view: memoryview, parts: list[tuple[int, int]], name: str) -> None:
    """What no part covers aligns the next one: zeros, so that damage shows there too."""
    end = 0
    for offset, size in sorted([*parts, (len(view), 0)]):
        if bytes(view[end:offset]).strip(b"\0"):
            raise EngineFormatError(f"{name} is damaged between its sections; copy the file again")
        end = max(end, offset + size)


def _header(view: memoryview, name: str) -> tuple[Any, ...]:
    if bytes(view[:8]) != schema.MAGIC[: len(view)] or not len(view):
        raise EngineFormatError(f"{name} is not a braze engine; build one of an ONNX model")
    if len(view) < schema.HEADER.size:
        raise EngineFormatError(f"{name} is truncated within its header; copy the file again")
    fields = schema.HEADER.unpack_from(view)
    if checksum(bytes(view[: schema.HEADER_CHECKED_BYTES])) != fields[-1]:
        raise EngineFormatError(f"{name}: the header is damaged; copy the file again")
    if len(view) != fields[3]:
        state = "truncated" if len(view) < fields[3] else "followed by other data"
        raise EngineFormatError(
            f"{name} is {state}: it has {len(view)} bytes, its header says {fields[3]}; "
            "copy the file again"
        )
    return fields
