"""Constants by content hash, outside the graph: copying a graph never copies bytes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from braze.core.dtypes import DType, from_numpy
from braze.core.parallel import in_parallel

PIECE_BYTES = 1 << 22


def content_key(kind: DType, data: np.ndarray[Any, Any]) -> str:
    """A name of type, shape and content: the hash of the hashes of pieces, which threads share."""
    content = data.reshape(-1).view(np.uint8)
    pieces = [content[i : i + PIECE_BYTES].data for i in range(0, content.size, PIECE_BYTES)]

    def digest(piece: memoryview) -> bytes:
        return hashlib.blake2b(piece, digest_size=16).digest()

    key = hashlib.blake2b(f"{kind.name}:{data.shape}:".encode(), digest_size=16)
    for part in in_parallel(digest, pieces, content.size):
        key.update(part)
    return key.hexdigest()


class WeightStore:
    """Append-only store of read-only arrays; equal content is stored once."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}

    def add(self, array: np.ndarray[Any, Any], dtype: DType | None = None) -> str:
        """Store `array` (C order, made read-only) and return its key."""
        data = np.asarray(array, order="C")
        kind = dtype or from_numpy(data.dtype)
        name = content_key(kind, data)
        if name not in self._arrays:
            data = data.view()
            data.flags.writeable = False
            self._arrays[name] = data
        return name

    def get(self, key: str) -> np.ndarray[Any, Any]:
        """The array stored under `key`."""
        return self._arrays[key]

    def __contains__(self, key: object) -> bool:
        return key in self._arrays

    def __len__(self) -> int:
        return len(self._arrays)
