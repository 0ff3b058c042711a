"""Constants by content hash, outside the graph: copying a graph never copies bytes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from braze.core.dtypes import DType, from_numpy


class WeightStore:
    """Append-only store of read-only arrays; equal content is stored once."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}

    def add(self, array: np.ndarray[Any, Any], dtype: DType | None = None) -> str:
        """Store `array` (C order, made read-only) and return its key."""
        data = np.asarray(array, order="C")
        kind = dtype or from_numpy(data.dtype)
        head = f"{kind.name}:{data.shape}:".encode()
        key = hashlib.blake2b(head, digest_size=16)
        key.update(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        name = key.hexdigest()
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
