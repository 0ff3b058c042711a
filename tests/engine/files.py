"""Taking engine files apart for tests, and loading them with both readers."""

from __future__ import annotations

from braze.core.errors import BrazeError
from braze.engine import schema
from braze.engine.checksum import checksum
from braze.engine.read import from_bytes
from braze.runtime import Engine


def fixed_up(data: bytearray) -> bytes:
    """`data` with all its checksums recomputed, as an attacker would."""
    header = list(schema.HEADER.unpack_from(data))
    table_at, count = header[4], header[5]
    for i in range(count):
        at = table_at + i * schema.SECTION.size
        kind, flags, offset, size, _ = schema.SECTION.unpack_from(data, at)
        total = checksum(bytes(data[offset : offset + size]))
        schema.SECTION.pack_into(data, at, kind, flags, offset, size, total)
    table = bytes(data[table_at : table_at + count * schema.SECTION.size])
    header[7] = checksum(table)
    schema.HEADER.pack_into(data, 0, *header)
    header[9] = checksum(bytes(data[: schema.HEADER_CHECKED_BYTES]))
    schema.HEADER.pack_into(data, 0, *header)
    return bytes(data)


def load_everywhere(data: bytes) -> list[type[BrazeError] | None]:
    """The errors the Python reader and the native reader raise for `data`."""
    found: list[type[BrazeError] | None] = []
    for load in (from_bytes, Engine.from_bytes):
        try:
            load(data)
            found.append(None)
        except BrazeError as e:
            assert str(e)
            found.append(type(e))
    return found


def section(data: bytes, kind: str) -> tuple[int, int]:
    header = schema.HEADER.unpack_from(data)
    rows = schema.SECTION.iter_unpack(data[header[4] : header[4] + header[5] * schema.SECTION.size])
    return next((o, s) for k, _, o, s, _ in rows if k == schema.SECTION_KINDS[kind])
