"""Write a Plan as an engine file.

A file is written whole or not at all (core/files.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braze.core.errors import EngineFormatError, ExecutionError
from braze.core.files import replacing
from braze.engine import schema
from braze.engine.checks import check_json
from braze.engine.checksum import Checksum, checksum
from braze.engine.manifest import dump_json, encode_manifest
from braze.engine.plan import Plan
from braze.engine.schema import align_up
from braze.engine.validate import check_plan

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    flags: int
    size: int
    alignment: int
    pieces: Callable[[], Iterator[Bytes]]


def to_bytes(plan: Plan) -> bytes:
    """The engine file of `plan` as bytes."""
    return to_array(plan).tobytes()


def aligned_bytes(size: int) -> Bytes:
    """Uninitialised memory aligned to a page, as the native runtime wants engines."""
    try:
        raw = np.empty(size + schema.PAGE_ALIGN, np.uint8)
    except MemoryError as e:
        raise ExecutionError(f"no memory for an engine of {size} bytes; save it to a file") from e
    start = -raw.ctypes.data % schema.PAGE_ALIGN
    return raw[start : start + size]


def to_array(plan: Plan) -> Bytes:
    """The engine file of `plan` in memory aligned to a page."""
    sections = _sections(plan)
    out = aligned_bytes(_file_bytes(sections))
    for offset, piece in _file_pieces(sections):
        out[offset : offset + piece.size] = piece
    return out


def write_file(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the engine file of `plan` to `path`, whole or not at all; raises FileError."""
    _write_pieces(path, _file_pieces(_sections(plan)))


def write_image(image: Bytes, path: str | os.PathLike[str]) -> None:
    """Write the bytes of an engine file to `path`, whole or not at all; raises FileError."""
    _write_pieces(path, iter([(0, image)]))


def _write_pieces(path: str | os.PathLike[str], pieces: Iterator[tuple[int, Bytes]]) -> None:
    with replacing(path) as file:
        for offset, piece in pieces:
            file.seek(offset)
            file.write(piece.data)


def _offsets(sections: list[_Section]) -> list[int]:
    position = schema.HEADER.size + schema.SECTION.size * len(sections)
    offsets = []
    for section in sections:
        position = align_up(position, section.alignment)
        offsets.append(position)
        position += section.size
    return offsets


def _file_bytes(sections: list[_Section]) -> int:
    return _offsets(sections)[-1] + sections[-1].size


def _file_pieces(sections: list[_Section]) -> Iterator[tuple[int, Bytes]]:
    """Pieces of the file with their offsets; header and table come last, when sums are known."""
    table = b""
    end = schema.HEADER.size + schema.SECTION.size * len(sections)
    for section, start in zip(sections, _offsets(sections), strict=True):
        yield end, np.zeros(start - end, np.uint8)
        position, running = start, Checksum()
        for piece in section.pieces():
            running.update(piece)
            yield position, piece
            position += piece.size
        end = position
        row = (section.kind, section.flags, start, section.size, running.digest())
        table += schema.SECTION.pack(*row)
    yield schema.HEADER.size, np.frombuffer(table, np.uint8)
    yield 0, np.frombuffer(_header(table, _file_bytes(sections), len(sections)), np.uint8)


def _header(table: bytes, file_bytes: int, num_sections: int) -> bytes:
    fields = (schema.MAGIC, schema.VERSION, schema.MIN_READER_VERSION, file_bytes)
    row = (*fields, schema.HEADER.size, num_sections, 0, checksum(table), 0)
    checked = schema.HEADER.pack(*row, 0)[: schema.HEADER_CHECKED_BYTES]
    return schema.HEADER.pack(*row, checksum(checked))


def _sections(plan: Plan) -> list[_Section]:
    check_plan(plan)
    code = _Code()
    manifest = encode_manifest(plan, code.place)
    if len(manifest) > schema.MAX_MANIFEST_BYTES:
        raise EngineFormatError(f"the manifest takes {len(manifest)} bytes, more than the limit")
    check_json(plan.record, schema.MAX_JSON_DEPTH, "record")
    record = dump_json(plan.record, "record")
    kinds, required = schema.SECTION_KINDS, schema.SECTION_FLAG_REQUIRED
    align, page = schema.SECTION_ALIGN, schema.PAGE_ALIGN

    def one(data: bytes) -> Callable[[], Iterator[Bytes]]:
        return lambda: iter([np.frombuffer(data, np.uint8)])

    return [
        _Section(kinds["manifest"], required, len(manifest), align, one(manifest)),
        _Section(kinds["record"], 0, len(record), align, one(record)),
        _Section(kinds["code"], required, len(code.data), align, one(bytes(code.data))),
        _Section(kinds["weights"], required | schema.SECTION_FLAG_STRIPPED, 0, align, one(b""))
        if plan.stripped
        else _Section(
            kinds["weights"], required, _weights_bytes(plan), page, lambda: _weight_pieces(plan)
        ),
    ]


class _Code:
    """The code section: every distinct piece of code once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._extents: dict[bytes, tuple[int, int]] = {}

    def place(self, code: bytes) -> tuple[int, int]:
        """(offset, bytes) of `code`."""
        code = bytes(code)
        if code not in self._extents:
            self.data += bytes(-len(self.data) % schema.SECTION_ALIGN)
            self._extents[code] = (len(self.data), len(code))
            self.data += code
        return self._extents[code]


def _weights_bytes(plan: Plan) -> int:
    return max((w.offset + w.bytes for w in plan.weights), default=0)


def _weight_pieces(plan: Plan) -> Iterator[Bytes]:
    """The weights section in order of offset; weights may share an offset when they are equal."""
    if len(plan.weight_data) != len(plan.weights):
        raise EngineFormatError(
            f"the plan has {len(plan.weights)} weights but data for {len(plan.weight_data)}"
        )
    position = 0
    last: tuple[int, int, str] = (-1, -1, "")
    order = sorted(range(len(plan.weights)), key=lambda i: (plan.weights[i].offset, i))
    for i in order:
        weight = plan.weights[i]
        data = _as_bytes(plan.weight_data[i])
        if data.size != weight.bytes:
            raise EngineFormatError(
                f"weight {weight.name!r} says {weight.bytes} bytes but its data has {data.size}"
            )
        if (weight.offset, weight.bytes, weight.content_hash) == last or not weight.bytes:
            continue
        if weight.offset < position:
            raise EngineFormatError(f"weight {weight.name!r} overlaps the one before it")
        if weight.offset > position:
            yield np.zeros(weight.offset - position, np.uint8)
        yield data
        position = weight.offset + weight.bytes
        last = (weight.offset, weight.bytes, weight.content_hash)
    # empty weights at the end have offsets, so the section reaches to the furthest of them
    end = _weights_bytes(plan)
    if end > position:
        yield np.zeros(end - position, np.uint8)


def _as_bytes(data: Any) -> Bytes:
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)
