"""Whole networks timed against each other on a device, run about, in memory of their own."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from braze.core.dims import evaluate
from braze.core.errors import BrazeError
from braze.engine.plan import Binding, Plan
from braze.runtime.context import ExecutionContext
from braze.runtime.engine import Engine
from braze.runtime.report import size_dims

ROUNDS, BURST, UNCOUNTED = 10, 5, 2
INFINITE: Final = float("inf")
Load = Callable[[Plan], Engine]


class Racer:
    """A network that runs on sample inputs. Raises BrazeError or MemoryError where it does not.

    sizes: the value of every symbol.
    """

    def __init__(self, plan: Plan, load: Load, sizes: Mapping[str, int]) -> None:
        engine = load(plan)
        self._context: ExecutionContext = engine.create_context()
        dims = size_dims(plan)
        for b in plan.inputs:
            shape = tuple(evaluate(dims[i], sizes) for i in b.shape)
            self._context.set_input_shape(b.name, shape)
            self._context.bind(b.name, sample(b, shape))
        for b in plan.outputs:
            shape = self._context.shape(b.name)
            # outputs stay on a device: copies between the runs take longer than many a run
            on_gpu = engine.on_gpu
            memory: Any = engine.device_empty(shape, b.dtype) if on_gpu else None
            self._context.bind(b.name, memory if on_gpu else np.zeros(shape, b.dtype.numpy))
        self.burst(UNCOUNTED)

    def burst(self, runs: int) -> list[float]:
        """Milliseconds on the device of so many runs."""
        return [self._context.timed().compute for _ in range(runs)]


def sample(binding: Binding, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The content that an input is specialised to, else small random floats, or zeros (indexes)."""
    dtype = binding.dtype
    if binding.value:
        return np.array(binding.value, dtype.numpy).reshape(shape)
    if not dtype.is_float or dtype.is_narrow:
        return np.zeros(shape, dtype.numpy)
    values = np.random.default_rng(0).random(shape, np.float32) * 2 - 1
    return values.astype(dtype.numpy)


def made(plan: Plan, load: Load, sizes: Mapping[str, int]) -> Racer | None:
    """A racer, or None for a network that cannot be timed like this."""
    # with other steps the samples would decide what runs
    if not plan.is_straight or any(b.dtype.is_narrow for b in plan.outputs):
        return None
    try:
        return Racer(plan, load, sizes)
    except (BrazeError, MemoryError, ValueError):
        return None


def ratio(trial: Racer, base: Racer) -> float:
    """The time of a run of `trial` by that of `base`, taken in turns; infinite where it fails."""
    times: dict[int, list[float]] = {0: [], 1: []}
    try:
        for _ in range(ROUNDS):
            for i, racer in enumerate((base, trial)):
                racer.burst(UNCOUNTED)
                times[i] += racer.burst(BURST)
    except BrazeError:
        return INFINITE
    return statistics.median(times[1]) / max(1e-9, statistics.median(times[0]))
