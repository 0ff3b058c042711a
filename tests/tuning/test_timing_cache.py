"""The timing cache round-trips, survives damage with a typed error, and never shows half a file."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from braze.core.errors import FileError
from braze.tuning.timing_cache import TimingCache


def test_round_trip(tmp_path: Path) -> None:
    cache = TimingCache()
    key = TimingCache.key("braze 1", "kernel", "gemm(mr=12)", "batch=1", "cpu-avx512-t2")
    cache.put(key, 1.5e-6)
    path = str(tmp_path / "times.json")
    cache.save(path)
    assert TimingCache.load(path).get(key) == 1.5e-6
    assert [p.name for p in tmp_path.iterdir()] == ["times.json"]


def test_key_depends_on_every_part() -> None:
    parts = ["braze 1", "kernel", "tactic", "n=1", "cpu"]
    keys = {TimingCache.key(*parts)}
    for i in range(5):
        keys.add(TimingCache.key(*[p + "x" * (i == j) for j, p in enumerate(parts)]))
    assert len(keys) == 6


def test_two_builds_with_one_file_keep_what_both_measured(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    TimingCache({"old": 1.0}).save(path)
    first, second = TimingCache.load(path), TimingCache.load(path)
    first.put("a", 2.0)
    second.put("b", 3.0)
    first.save(path)
    second.save(path)
    both = TimingCache.load(path)
    assert [both.get(k) for k in ("old", "a", "b")] == [1.0, 2.0, 3.0]


def test_many_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    with ProcessPoolExecutor(8, get_context("spawn")) as pool:
        list(pool.map(_add_times, [str(path)] * 8, range(8)))
    assert len(TimingCache.load(path)) == 8 * 10
    assert [p.name for p in tmp_path.iterdir()] == ["times.json"]


def _add_times(path: str, worker: int) -> None:
    for i in range(10):
        TimingCache({f"{worker}.{i}": 1.0}).save(path)


def test_a_file_that_was_damaged_meanwhile_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text("{")
    TimingCache({"a": 1.0}).save(path)
    assert TimingCache.load(path).get("a") == 1.0


def test_missing_file_is_empty(tmp_path: Path) -> None:
    assert len(TimingCache.load(str(tmp_path / "none.json"))) == 0


def times(time: str) -> str:
    return f'{{"format": 1, "times": {{"a": {time}}}}}'


NO_TIMES = ('"b"', "Infinity", "NaN", "-1", "true", f"1{'0' * 400}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting"),
        ("{", "Expecting"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no timing cache"),
        ("[1]", "no timing cache"),
        ("{}", "no timing cache"),
        ('{"format": 2, "times": {}}', "format is 2 and not 1"),
        ('{"format": 1}', "holds no times"),
        ('{"format": 1, "times": [1]}', "holds no times"),
        *((times(t), "'a' is .*, which is no time") for t in NO_TIMES),
    ],
)  # fmt: skip
def test_damaged_file(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "times.json"
    path.write_text(text)
    with pytest.raises(FileError, match=rf"times\.json is not readable .*{why}.*; delete it") as e:
        TimingCache.load(str(path))
    assert "\n" not in str(e.value) and len(str(e.value)) < 400


def test_unwritable_folder() -> None:
    with pytest.raises(FileError, match="could not be written"):
        TimingCache().save("no/such/folder/times.json")
