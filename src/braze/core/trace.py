"""Trace: what a build did and why, passed in as an argument and never global."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from braze.core.errors import ExecutionError

# called as progress(stage, done, total)
Progress = Callable[[str, int, int], None]


@dataclass
class Trace:
    """Collects stage texts (when `dump` is set), decisions and stage timings of one build.

    place: what the stage is at just now, in words, for errors.
    """

    progress: Progress | None = None
    dump: bool = False
    stages: list[tuple[str, str]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    place: str = ""

    def decide(self, kind: str, **facts: Any) -> None:
        """Record a fusion, tactic, refusal or rewrite; `facts` must be JSON-able."""
        self.decisions.append({"kind": kind, **facts})

    def text(self, stage: str, render: Callable[[], str]) -> None:
        """Keep the text of a stage when dumping is on (`render` is not called otherwise)."""
        if self.dump:
            self.stages.append((stage, render()))

    def report(self, stage: str, done: int, total: int) -> None:
        """Tell the progress listener, if any."""
        if self.progress is not None:
            self.progress(stage, done, total)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; raises ExecutionError where memory runs out in it."""
        start = time.perf_counter()
        self.place = ""
        try:
            yield
        except MemoryError as e:
            at = f", at {self.place}" if self.place else ""
            what = f" ({e})" if str(e) else ""
            raise ExecutionError(
                f"the build ran out of memory in stage {name}{at}{what}; free memory, or build on "
                "a machine that has more and load the engine file here"
            ) from e
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
