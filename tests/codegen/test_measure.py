"""How often a kernel is run until its time is known."""

from __future__ import annotations

import pytest

from braze.codegen.cpu.measure import MOST, _best

NEVER = float("inf")


class Stand:
    """A kernel whose first run takes `cold` seconds, and any other `warm`."""

    def __init__(self, cold: float, warm: float) -> None:
        self.next, self.warm, self.runs = cold, warm, 0

    def time(self, uncounted: int, counted: int) -> list[float]:
        times = []
        for _ in range(uncounted + counted):
            times.append(self.next)
            self.next = self.warm
        self.runs += len(times)
        return times[uncounted:]


@pytest.mark.parametrize(
    ("cold", "warm", "best", "seconds", "runs"),
    [
        (3.0, 2.9, 0.5, 3.0, 1),  # far above the best: once
        (3.0, 2.9, NEVER, 2.9, 2),  # slow, but the best so far
        (0.9, 0.4, 0.5, 0.4, 2),  # not far above it
        (1e-2, 1e-3, 1e-4, 1e-3, 5),  # a first run of a fast kernel says nothing
        (1e-2, 1e-3, 1e-3, 1e-3, 9),
        (1e-2, 1e-6, 1e-3, 1e-6, 5 + MOST),
    ],
)
def test_slow_kernels_run_once_or_twice(
    cold: float, warm: float, best: float, seconds: float, runs: int
) -> None:
    kernel = Stand(cold, warm)
    assert _best(kernel.time, best) == seconds
    assert kernel.runs == runs
