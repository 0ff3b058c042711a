"""The checksum of engine files: a 64-bit hash that runs at memory speed, here and in C++.

It finds damage, it does not resist an attacker. Data is hashed in chunks of 1 MiB that are
independent of each other, so that the native reader can check a large file from several threads.
A chunk is a sequence of 64-bit words, zero-padded to a multiple of eight. Word i with the key
k = (i + 1) * CHECKSUM_KEY adds low32(w ^ k) * high32(w ^ k) to lane i % 8 and w to the
neighbouring lane (so a change in any single word always shows); lanes are then mixed into one
value. A changed order of words shows because every position has its own key.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from braze.engine.schema import (
    CHECKSUM_CHUNK_BYTES,
    CHECKSUM_KEY,
    CHECKSUM_LANES,
    CHECKSUM_MIX_1,
    CHECKSUM_MIX_2,
)

_MASK: Final = (1 << 64) - 1
_BLOCK_BYTES: Final = 8 * CHECKSUM_LANES
_FOLD_WORDS: Final = 1024
_SWAP: Final = np.arange(CHECKSUM_LANES) ^ 1


def _mix(x: int) -> int:
    x ^= x >> 32
    x = x * CHECKSUM_MIX_1 & _MASK
    x ^= x >> 29
    x = x * CHECKSUM_MIX_2 & _MASK
    return x ^ (x >> 32)


def _lane_sums(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    # Summing rows of 1024 first keeps numpy's inner loop long; lanes repeat every 8 words.
    whole = words.size // _FOLD_WORDS * _FOLD_WORDS
    folded = words[:whole].reshape(-1, _FOLD_WORDS).sum(axis=0, dtype=np.uint64)
    rest = words[whole:].reshape(-1, CHECKSUM_LANES).sum(axis=0, dtype=np.uint64)
    return np.asarray(folded.reshape(-1, CHECKSUM_LANES).sum(axis=0, dtype=np.uint64) + rest)


def _chunk_hash(chunk: npt.NDArray[np.uint8], keys: npt.NDArray[np.uint64]) -> int:
    size = chunk.size
    if size % _BLOCK_BYTES:
        chunk = np.concatenate([chunk, np.zeros(-size % _BLOCK_BYTES, np.uint8)])
    words = np.frombuffer(chunk, dtype="<u8")
    keyed = words ^ keys[: words.size]
    products = (keyed & np.uint64(0xFFFFFFFF)) * (keyed >> np.uint64(32))
    with np.errstate(over="ignore"):
        lanes = _lane_sums(products) + _lane_sums(words)[_SWAP]
    h = size
    for lane in lanes.tolist():
        h = _mix(h ^ lane)
    return h


class Checksum:
    """A running checksum; feed it pieces of any size with `update`, read it with `digest`."""

    def __init__(self) -> None:
        self._keys = np.arange(1, CHECKSUM_CHUNK_BYTES // 8 + 1, dtype=np.uint64)
        self._keys *= np.uint64(CHECKSUM_KEY)
        self._pending = np.empty(CHECKSUM_CHUNK_BYTES, np.uint8)
        self._num_pending = 0
        self._size = 0
        self._hashes: list[int] = []

    def update(self, data: npt.NDArray[np.uint8] | bytes | memoryview) -> None:
        """Append `data` (bytes-like) to what is hashed."""
        array = np.frombuffer(data, np.uint8)
        self._size += array.size
        while array.size:
            if self._num_pending == 0 and array.size >= CHECKSUM_CHUNK_BYTES:
                self._hashes.append(_chunk_hash(array[:CHECKSUM_CHUNK_BYTES], self._keys))
                array = array[CHECKSUM_CHUNK_BYTES:]
                continue
            taken = min(array.size, CHECKSUM_CHUNK_BYTES - self._num_pending)
            self._pending[self._num_pending : self._num_pending + taken] = array[:taken]
            self._num_pending += taken
            array = array[taken:]
            if self._num_pending == CHECKSUM_CHUNK_BYTES:
                self._hashes.append(_chunk_hash(self._pending, self._keys))
                self._num_pending = 0

    def digest(self) -> int:
        """The 64-bit checksum of everything so far."""
        hashes = list(self._hashes)
        if self._num_pending:
            hashes.append(_chunk_hash(self._pending[: self._num_pending], self._keys))
        h = _mix(self._size ^ CHECKSUM_KEY)
        for chunk in hashes:
            h = (_mix(h ^ chunk) + CHECKSUM_KEY) & _MASK
        return h


def checksum(data: npt.NDArray[np.uint8] | bytes | memoryview) -> int:
    """The 64-bit checksum of `data` (bytes-like)."""
    running = Checksum()
    running.update(data)
    return running.digest()
