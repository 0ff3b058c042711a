"""Timing of repeated runs, and the statistics reported from it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from braze.runtime.context import Times

Run = Callable[[], object]  # gives Times, or nothing where there are none


@dataclass(frozen=True, slots=True)
class Query:
    """Start and end of one run in milliseconds after the first measured start.

    times: what a GPU needed for its parts, or None.
    """

    start_ms: float
    end_ms: float
    times: Times | None = None

    @property
    def latency_ms(self) -> float:
        """As trtexec counts: on a GPU copying in, computing and copying out."""
        if self.times is None:
            return self.end_ms - self.start_ms
        return self.times.h2d + self.times.compute + self.times.d2h


@dataclass(frozen=True, slots=True)
class Measurement:
    """All measured queries in order of their start, and what came before them."""

    queries: tuple[Query, ...]
    warmup_queries: int
    wall_s: float

    @property
    def throughput(self) -> float:
        """Queries per second of wall time, over all streams."""
        return len(self.queries) / self.wall_s if self.wall_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to measure: at least `iterations` a stream and at least `duration_s`."""

    iterations: int
    duration_s: float
    warmup_ms: float
    idle_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Summary of latencies; `percentiles` pairs a percentage with its value."""

    low: float
    high: float
    mean: float
    median: float
    percentiles: tuple[tuple[float, float], ...]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value that `percent` % of ascending `ordered` do not exceed, by trtexec's index rule."""
    count = len(ordered)
    return ordered[max(count - 1 - int(count * (100 - percent) / 100), 0)]


def summarize(values: Sequence[float], percents: Sequence[float]) -> Statistics:
    """Statistics of a non-empty sequence."""
    ordered = sorted(values)
    half = len(ordered) // 2
    median = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return Statistics(
        low=ordered[0],
        high=ordered[-1],
        mean=sum(ordered) / len(ordered),
        median=median,
        percentiles=tuple((p, percentile(ordered, p)) for p in percents),
    )


def measure(runs: Sequence[Run], limits: Limits) -> Measurement:
    """Call every run (one a stream, each on its own thread) again and again until `limits` hold.

    The first error of any stream stops all of them and is raised here.
    """
    if len(runs) == 1:
        return _collect([_Stream(runs[0], limits)])
    streams = [_Stream(run, limits) for run in runs]
    ready = threading.Barrier(len(streams))
    stop = threading.Event()
    threads = [threading.Thread(target=s.guarded, args=(ready, stop)) for s in streams]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    # a stream that only saw another's broken barrier is not the one to report
    errors = [s.error for s in streams if s.error is not None]
    for error in sorted(errors, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
        raise error
    return _gather(streams)


class _Stream:
    """One caller: warms up, then records runs."""

    def __init__(self, run: Run, limits: Limits) -> None:
        self.run = run
        self.limits = limits
        self.warmups = 0
        self.spans: list[tuple[float, float, Times | None]] = []
        self.error: BaseException | None = None

    def warm_up(self) -> None:
        end = time.perf_counter() + self.limits.warmup_ms / 1e3
        while self.warmups == 0 or time.perf_counter() < end:
            self.run()
            self.warmups += 1

    def record(self, stop: threading.Event | None = None) -> None:
        begin = time.perf_counter()
        while stop is None or not stop.is_set():
            start = time.perf_counter()
            found = self.run()
            end = time.perf_counter()
            self.spans.append((start, end, found if isinstance(found, Times) else None))
            if len(self.spans) >= self.limits.iterations and end - begin >= self.limits.duration_s:
                return
            if self.limits.idle_ms:
                time.sleep(self.limits.idle_ms / 1e3)

    def guarded(self, ready: threading.Barrier, stop: threading.Event) -> None:
        try:
            self.warm_up()
            ready.wait()
            self.record(stop)
        except BaseException as e:  # carried to the caller's thread
            self.error = e
            stop.set()
            ready.abort()


def _collect(streams: list[_Stream]) -> Measurement:
    for s in streams:
        s.warm_up()
        s.record()
    return _gather(streams)


def _gather(streams: list[_Stream]) -> Measurement:
    spans = sorted((span for s in streams for span in s.spans), key=lambda span: span[:2])
    zero = spans[0][0]
    last = max(end for _, end, _ in spans)
    return Measurement(
        queries=tuple(Query((a - zero) * 1e3, (b - zero) * 1e3, times) for a, b, times in spans),
        warmup_queries=sum(s.warmups for s in streams),
        wall_s=last - zero,
    )
