"""Engines from and to streams that scripts write: IStreamReader, IStreamReaderV2, IStreamWriter."""

from __future__ import annotations

from typing import Any, Final

from braze.core.errors import EngineFormatError, ExecutionError
from braze.tensorrt.enums_runtime import SeekPosition

CHUNK: Final = 64 << 20


class IStreamReader:
    """Reads an engine from front to back; derive from it and override read."""

    def __init__(self) -> None:
        return None

    def read(self, size: int) -> Any:
        """The next `size` bytes, or fewer at the end."""
        raise NotImplementedError("IStreamReader.read is to be overridden")


class IStreamReaderV2:
    """Reads an engine from any place; derive from it and override read and seek."""

    def __init__(self) -> None:
        return None

    def read(self, num_bytes: int, stream: int) -> Any:
        """The next bytes: as many as asked for, or fewer."""
        raise NotImplementedError("IStreamReaderV2.read is to be overridden")

    def seek(self, offset: int, where: SeekPosition) -> bool:
        """Go to a place."""
        raise NotImplementedError("IStreamReaderV2.seek is to be overridden")


class IStreamWriter:
    """Takes an engine; derive from it and override write."""

    def __init__(self) -> None:
        return None

    def write(self, data: bytes) -> int:
        """Take bytes; gives the number that were taken, fewer where it failed."""
        raise NotImplementedError("IStreamWriter.write is to be overridden")


def read_all(reader: IStreamReader | IStreamReaderV2) -> bytes:
    """Everything a reader gives; raises EngineFormatError where it gives no bytes."""
    parts: list[bytes] = []
    if isinstance(reader, IStreamReaderV2):
        reader.seek(0, SeekPosition.SET)
    while True:
        got = reader.read(CHUNK, 0) if isinstance(reader, IStreamReaderV2) else reader.read(CHUNK)
        if got is None or len(got) == 0:
            return b"".join(parts)
        parts.append(_as_bytes(got))


def _as_bytes(given: Any) -> bytes:
    try:
        return bytes(memoryview(given))
    except TypeError as e:
        raise EngineFormatError(
            f"the stream reader gave a {type(given).__name__} instead of bytes"
        ) from e


def write_all(writer: IStreamWriter, data: bytes) -> None:
    """Hand all bytes to a writer at once; raises ExecutionError where it takes fewer."""
    taken = writer.write(bytes(data))
    if taken != len(data):
        raise ExecutionError(
            f"the stream writer took {taken} bytes of an engine of {len(data)}; let write take all "
            "that it is given, and return how many bytes that are"
        )
