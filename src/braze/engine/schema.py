"""Layout and limits of the engine file; the C++ constants are emitted from it.

An engine file is little-endian: a 64-byte header, a section table, and sections. The header names
the version that wrote the file and the oldest reader version that understands it. Every offset
and size is 64 bits wide; the header, the table and every section carry a checksum
(`braze.engine.checksum`). What the manifest holds is `braze.engine.plan`. docs/engine-format.md
explains the layout in prose.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"\x89BRAZE\r\n"
VERSION: Final = 4
MIN_READER_VERSION: Final = 4
OLDEST_VERSION: Final = 4  # written by; older files must be built again

SECTION_ALIGN: Final = 64
PAGE_ALIGN: Final = 4096
WEIGHT_ALIGN: Final = 64
MIN_ALIGN: Final = 64  # of buffers; a target may ask for more, up to a page

CHECKSUM_CHUNK_BYTES: Final = 1 << 20
CHECKSUM_LANES: Final = 8
CHECKSUM_KEY: Final = 0x9E3779B97F4A7C15
CHECKSUM_MIX_1: Final = 0xBF58476D1CE4E5B9
CHECKSUM_MIX_2: Final = 0x94D049BB133111EB

MAX_SECTIONS: Final = 64
MAX_MANIFEST_BYTES: Final = 256 << 20
MAX_JSON_DEPTH: Final = 32
MAX_RANK: Final = 16
MAX_BOUNDED: Final = 64  # elements of an input whose content a profile bounds
MAX_WORKERS: Final = 1024
MAX_BODY_DEPTH: Final = 64  # of bodies that run bodies


@dataclass(frozen=True, slots=True)
class Field:
    """One fixed-width field of the header or of a section table entry (struct code, meaning)."""

    name: str
    code: str
    what: str


HEADER_FIELDS: Final = (
    Field("magic", "8s", "the eight bytes of MAGIC"),
    Field("version", "I", "format version of the writer"),
    Field("min_reader_version", "I", "oldest reader that understands this file"),
    Field("file_bytes", "Q", "size of the whole file"),
    Field("table_offset", "Q", "where the section table starts"),
    Field("num_sections", "I", "entries in the section table"),
    Field("reserved_0", "I", "zero"),
    Field("table_checksum", "Q", "checksum of the section table"),
    Field("reserved_1", "Q", "zero"),
    Field("header_checksum", "Q", "checksum of the 56 bytes before this field"),
)
SECTION_FIELDS: Final = (
    Field("kind", "I", "one of SECTION_KINDS"),
    Field("flags", "I", "SECTION_FLAG_ bits: must be known (else refuse the file), left out"),
    Field("offset", "Q", "from the start of the file"),
    Field("size", "Q", "bytes"),
    Field("checksum", "Q", "of the section's bytes"),
)


def _struct(fields: tuple[Field, ...]) -> struct.Struct:
    return struct.Struct("<" + "".join(f.code for f in fields))


HEADER: Final = _struct(HEADER_FIELDS)
SECTION: Final = _struct(SECTION_FIELDS)
HEADER_CHECKED_BYTES: Final = HEADER.size - 8

SECTION_FLAG_REQUIRED: Final = 1
SECTION_FLAG_STRIPPED: Final = 2  # of weights: their bytes were left out, and the section is empty
SECTION_KINDS: Final = {"manifest": 1, "record": 2, "code": 3, "weights": 4}


def align_up(offset: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is not below `offset`."""
    return -(-offset // alignment) * alignment
