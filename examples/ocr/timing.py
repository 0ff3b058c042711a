"""Latency per network, beside ONNX Runtime where that is installed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Run = Callable[[], object]

BURST, UNCOUNTED, ROUNDS, PAUSE_S = 6, 2, 3, 0.1


def onnxruntime_run(model: Path, name: str, x: Array, threads: int) -> Run | None:
    """A call of the same model in ONNX Runtime, None where that is not installed."""
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {name: x})


def medians_ms(runs: Mapping[str, Run]) -> dict[str, float]:
    """Median milliseconds of each run, taken in turns so that a drifting clock slows all alike.

    The pause lets the threads of the one before fall asleep; first runs after it do not count.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            time.sleep(PAUSE_S)
            for k in range(UNCOUNTED + BURST):
                start = time.perf_counter()
                run()
                if k >= UNCOUNTED:
                    times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(ts) for name, ts in times.items()}
