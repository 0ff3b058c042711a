"""Statistics and the measuring loop."""

from __future__ import annotations

import threading
import time

import pytest

from braze.cli.measure import Limits, measure, percentile, summarize


def test_percentile_index_rule() -> None:
    values = [float(v) for v in range(1, 101)]
    assert percentile(values, 99) == 99.0
    assert percentile(values, 90) == 90.0
    assert percentile(values, 100) == 100.0
    assert percentile(values, 0) == 1.0
    assert percentile([7.0], 50) == 7.0


def test_summary_of_even_and_odd_counts() -> None:
    stats = summarize([3.0, 1.0, 2.0, 10.0], [50])
    assert (stats.low, stats.high, stats.mean, stats.median) == (1.0, 10.0, 4.0, 2.5)
    assert summarize([3.0, 1.0, 2.0], [50]).median == 2.0


def test_runs_at_least_the_iterations() -> None:
    calls = []
    got = measure([lambda: calls.append(0)], Limits(iterations=7, duration_s=0, warmup_ms=0))
    assert len(got.queries) == 7
    assert len(calls) == 7 + got.warmup_queries
    assert all(q.end_ms >= q.start_ms >= 0 for q in got.queries)


def test_runs_at_least_the_duration() -> None:
    got = measure([lambda: time.sleep(0.005)], Limits(1, duration_s=0.05, warmup_ms=0))
    assert got.wall_s >= 0.05
    assert len(got.queries) >= 2


def test_streams_run_at_the_same_time() -> None:
    # each run needs the other stream inside its own run, so turns would hang (and time out)
    meet = threading.Barrier(2, timeout=5)
    got = measure([meet.wait, meet.wait], Limits(3, 0, 0))
    assert len(got.queries) == 6


def test_error_of_one_stream_stops_all() -> None:
    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        measure([lambda: time.sleep(0.001), fail], Limits(10, 0, 0))
