"""Timing cache: measured seconds by (kernel text, sizes, tactic, target), kept between builds.

The file is JSON: {"format": 1, "times": {key: seconds}}. Keys are hashes that hold everything a
time depends on: also the machine (processor, caches, threads) and the versions of braze and its
compilers, so a stale entry can not be found. Builds that share a file at the same time lose nothing
of each other: saving adds to what the file holds by then.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress

from braze.core.errors import FileError
from braze.core.files import describe_os_error, exclusive, replacing, writable_target
from braze.core.words import shown

FORMAT = 1
MOST_SECONDS = 1e9  # what is more was not measured


class TimingCache:
    """Times by key; `load` and `save` move them to and from a file."""

    def __init__(self, times: dict[str, float] | None = None) -> None:
        self._times = dict(times or {})

    @staticmethod
    def key(generator: str, kernel_text: str, tactic: str, sizes: str, machine: str) -> str:
        """Hash of everything a measured time depends on.

        generator, machine: `Backend.generator` and `Target.fingerprint`.
        """
        text = "\n".join((generator, machine, kernel_text, tactic, sizes))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def get(self, key: str) -> float | None:
        return self._times.get(key)

    def put(self, key: str, seconds: float) -> None:
        self._times[key] = seconds

    def __len__(self) -> int:
        return len(self._times)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> TimingCache:
        """Read a cache; a missing file is an empty cache.

        Raises FileError for a damaged file, and where `save` could not write one.
        """
        file = writable_target(path)
        if not file.exists():
            return TimingCache()
        try:
            return TimingCache(_times(json.loads(file.read_text())))
        except (OSError, ValueError, RecursionError) as e:
            why = "no JSON" if isinstance(e, RecursionError) else describe_os_error(e)
            raise FileError(
                f"timing cache {path} is not readable ({why}); delete it or give another path"
            ) from e

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add these times to those in the file, so that readers never see half of it.

        Raises FileError where no file can be written; one that was damaged meanwhile is replaced.
        """
        with exclusive(path):
            there: dict[str, float] = {}
            with suppress(FileError):
                there = TimingCache.load(path)._times
            times = dict(sorted({**there, **self._times}.items()))
            with replacing(path) as file:
                file.write(json.dumps({"format": FORMAT, "times": times}, indent=0).encode())


def _times(data: object) -> dict[str, float]:
    """The times in what a file holds; raises ValueError with what is wrong."""
    if not isinstance(data, dict) or "format" not in data:
        raise ValueError("it is no timing cache of braze")
    if data["format"] != FORMAT:
        raise ValueError(f"its format is {shown(data['format'])} and not {FORMAT}")
    times = data.get("times")
    if not isinstance(times, dict):
        raise ValueError("it holds no times")
    for key, time in times.items():
        number = isinstance(time, (int, float)) and not isinstance(time, bool)
        if not number or not 0 <= time < MOST_SECONDS:
            raise ValueError(f"the time of {shown(key)} is {shown(time)}, which is no time")
    return {key: float(time) for key, time in times.items()}
