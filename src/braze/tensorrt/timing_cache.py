"""ITimingCache: measured times, to be kept between builds; its bytes are braze's file."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from braze.core.errors import FileError
from braze.tensorrt.params import precise, whole
from braze.tensorrt.weights import IHostMemory
from braze.tuning.timing_cache import FORMAT, TimingCache


class TimingCacheKey:
    """What was measured, as a text."""

    def __init__(self, text: str) -> None:
        self._text = text

    @staticmethod
    def parse(text: str) -> TimingCacheKey:
        """The key that `str` gave."""
        if not isinstance(text, str):
            raise TypeError(f"TimingCacheKey.parse: a string is expected, not {text!r}")
        return TimingCacheKey(text)

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimingCacheKey) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class TimingCacheValue:
    """Which tactic it was, and how many milliseconds it took; 0 and NaN for nothing."""

    tacticHash: int
    timingMSec: float

    def __init__(self, tacticHash: int, timingMSec: float) -> None:
        self.tacticHash = whole(tacticHash, "tacticHash")
        self.timingMSec = precise(timingMSec, "timingMSec")


class ITimingCache:
    """Times of tactics; `IBuilderConfig.create_timing_cache` makes one."""

    def __init__(self, data: bytes = b"") -> None:
        """Raises ValueError for bytes that are no cache."""
        self._times: dict[str, float] = {}
        if data:
            try:
                read = json.loads(data)
                if read["format"] == FORMAT:
                    self._times = {str(k): float(v) for k, v in read["times"].items()}
            except (ValueError, KeyError, TypeError, AttributeError) as e:
                raise ValueError(f"the bytes are no timing cache of braze ({e})") from e

    def serialize(self) -> IHostMemory:
        """The cache as bytes."""
        times = dict(sorted(self._times.items()))
        return IHostMemory(json.dumps({"format": FORMAT, "times": times}, indent=0).encode())

    def combine(self, input_cache: ITimingCache, ignore_mismatch: bool) -> bool:
        """Add what another cache has and this one has not; keys tell machines apart."""
        if not isinstance(input_cache, ITimingCache):
            raise TypeError(f"combine: an ITimingCache is expected, not {input_cache!r}")
        self._times = {**input_cache._times, **self._times}
        return True

    def reset(self) -> bool:
        """Forget everything."""
        self._times = {}
        return True

    def queryKeys(self) -> list[TimingCacheKey]:
        """What was measured."""
        return [TimingCacheKey(k) for k in self._times]

    def query(self, key: TimingCacheKey) -> TimingCacheValue:
        """What a measurement gave."""
        if str(key) not in self._times:
            return TimingCacheValue(0, math.nan)
        return TimingCacheValue(_hash(str(key)), self._times[str(key)] * 1e3)

    def update(self, key: TimingCacheKey, value: TimingCacheValue) -> bool:
        """Change a time, which later builds choose by; NaN removes it."""
        text = str(key)
        if text not in self._times:
            return False
        if math.isnan(value.timingMSec):
            del self._times[text]
            return True
        if value.tacticHash != _hash(text) or value.timingMSec < 0:
            return False
        self._times[text] = value.timingMSec / 1e3
        return True

    def __len__(self) -> int:
        return len(self._times)

    @contextmanager
    def as_file(self) -> Iterator[Path]:
        """The cache as a file for one build, whose measurements are taken back."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "timing.json"
            path.write_bytes(self.serialize())
            try:
                yield path
            finally:
                with suppress(FileError):  # the build failed before it could write
                    self._times = dict(TimingCache.load(path)._times)


def _hash(text: str) -> int:
    """A number for a tactic: the key of ours names it already."""
    return int.from_bytes(text.encode()[:8], "little")
