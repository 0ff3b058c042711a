"""What a build shows while it runs: a bar on a terminal, one log line a stage elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from braze.core.trace import Progress

LINE_INTERVAL_S = 5.0


@contextmanager
def build_progress(quiet: bool = False, stream: TextIO | None = None) -> Iterator[Progress | None]:
    """A progress callback for `braze.build`, drawn on `stream` (standard error by default)."""
    out = stream or sys.stderr
    if quiet:
        yield None
    elif out.isatty():
        with _bar(out) as progress:
            yield progress
    else:
        yield _LogLines(out)


@contextmanager
def _bar(out: TextIO) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with RichProgress(*columns, console=Console(file=out), transient=True) as bar:
        tasks: dict[str, int] = {}

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = int(bar.add_task(stage, total=total))
            bar.update(bar.task_ids[tasks[stage]], completed=done, total=total)

        yield progress


class _LogLines:
    """Writes a line when a stage begins and ends, and every few seconds in between."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._stage = ""
        self._start = self._last = time.perf_counter()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if stage != self._stage:
            self._stage, self._start = stage, now
        elif done < total and now - self._last < LINE_INTERVAL_S:
            return
        self._last = now
        print(f"braze: {stage} {done}/{total} ({now - self._start:.1f} s)", file=self._out)
        self._out.flush()
