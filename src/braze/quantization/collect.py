"""Run a network on calibration data and keep what its tensors hold, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx

from braze.builder import build_plan
from braze.codegen.catalog import find_backend
from braze.core.config import BuildConfig
from braze.core.trace import Progress, Trace
from braze.frontend.onnx.importer import import_network
from braze.quantization.data import Calibration, Feed, inputs_of
from braze.quantization.histogram import Histogram
from braze.quantization.network import with_outputs
from braze.runtime.engine import Engine

Array = np.ndarray[Any, Any]
LEVEL: Final = 1  # fused, built without measuring: quick to build and to run


@dataclass(frozen=True)
class Runner:
    """A network that gives tensors of its inside too, run by an engine of braze."""

    model: onnx.ModelProto
    engine: Engine
    names: frozenset[str]

    def __call__(self, feed: Feed) -> dict[str, Array]:
        """The tensors wanted, of one feed."""
        got = {name: a for name, a in self.engine(feed).items() if name in self.names}
        return got | {name: a for name, a in feed.items() if name in self.names}


def make_runner(
    model: onnx.ModelProto, names: Sequence[str], threads: int, trace: Trace | None = None
) -> Runner:
    """Build an engine for this machine whose outputs are `names` (and the model's own)."""
    known = {i.name for i in inputs_of(model)} | {o.name for o in model.graph.output}
    watched = with_outputs(model, [n for n in dict.fromkeys(names) if n not in known])
    return Runner(model, make_engine(watched, threads, trace=trace), frozenset(names))


def make_engine(
    model: onnx.ModelProto,
    threads: int,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    level: int = LEVEL,
    trace: Trace | None = None,
) -> Engine:
    """An engine for this machine, built without measuring."""
    trace = trace or Trace()
    backend = find_backend("cpu", threads)
    imported = import_network(model, shapes=shapes, trace=trace)
    config = BuildConfig(optimization_level=level)
    plan = build_plan(imported.graph, imported.profiles, config, backend, trace)
    return backend.load(plan)


def collect(
    runner: Runner,
    calibration: Calibration,
    use: Callable[[Mapping[str, Array]], None],
    progress: Progress | None = None,
) -> int:
    """Give `use` the tensors of each feed; returns how many feeds there were.

    No feed's tensors are kept: a run takes what the largest feed needs.
    """
    count = 0
    for feed in _told(calibration, runner, progress):
        use(runner(feed))
        count += 1
    return count


def _told(calibration: Calibration, runner: Runner, progress: Progress | None) -> Iterator[Feed]:
    total = calibration.total
    for done, feed in enumerate(calibration.feeds(inputs_of(runner.model)), 1):
        yield feed
        if progress is not None:
            progress("calibrate", done, max(total, done))


def histograms(names: Sequence[str]) -> dict[str, Histogram]:
    """One for each name, and `add_all` fills them."""
    return {name: Histogram() for name in names}


def add_all(into: Mapping[str, Histogram]) -> Callable[[Mapping[str, Array]], None]:
    """What `collect` gives tensors to."""

    def add(tensors: Mapping[str, Array]) -> None:
        for name, array in tensors.items():
            if name in into:
                into[name].add(array)

    return add
