"""Which layers stay float so that a bound on the error of the outputs holds.

Each layer's own share is found by putting its noise into the float network (`noise.py`), against
the float64 reference. Layers are then left out of quantization from the worst on: how many is
estimated with the noise of all others together, and proved with models that are built; the fewest
that hold the bound are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import numpy as np

from braze.core.errors import ConfigError
from braze.core.trace import Progress
from braze.frontend.onnx.importer import import_network
from braze.frontend.onnx.whole import whole_model
from braze.ops.evaluator import evaluate
from braze.quantization.collect import make_engine
from braze.quantization.data import Calibration, Feed, as_calibration, inputs_of
from braze.quantization.flow import (
    Quantized,
    grids_of,
    quantize_model,
    repeatable,
    transformed,
)
from braze.quantization.network import Network
from braze.quantization.noise import make_injection
from braze.quantization.options import Options
from braze.quantization.placement import place

Array = np.ndarray[Any, Any]
Outputs = Sequence[Mapping[str, Array]]
# (reference outputs, outputs), each a mapping for each feed -> how wrong the latter are
Metric = Callable[[Outputs, Outputs], float]
SAMPLES: Final = 4  # feeds that errors are measured on
TIMED: Final = 2  # level of the engine that layers are timed in
RUNS: Final = 5  # of it


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """One layer of the report. runs: its type; error: of the outputs with this layer alone
    quantized; time_ms: of the kernels it is in, in the engine of the result (None: fused away)."""

    name: str
    op: str
    runs: str
    error: float
    time_ms: float | None


@dataclass(frozen=True)
class Found:
    """The result: the quantized model, its error (`all_error`: with every layer quantized), and a
    line for each layer; builds: how many models were built to prove it."""

    quantized: Quantized
    error: float
    all_error: float
    bound: float
    layers: tuple[LayerChoice, ...]
    time_ms: float
    float_time_ms: float
    builds: int

    @property
    def kept(self) -> tuple[str, ...]:
        """The layers that stay float for the bound."""
        return tuple(x.name for x in self.layers if x.runs == "float32")


def relative_error(reference: Outputs, outputs: Outputs) -> float:
    """The largest relative L2 error of an output, over all feeds together."""
    worst = 0.0
    for name in reference[0]:
        want, got = (
            np.concatenate([np.asarray(o[name], np.float64).reshape(-1) for o in side])
            for side in (reference, outputs)
        )
        size = float(np.linalg.norm(want))
        off = float(np.linalg.norm(got - want))
        worst = max(worst, off / size if size else off)
    return worst


def search(
    model: Any,
    data: Any,
    bound: float,
    options: Options | None = None,
    *,
    samples: int = SAMPLES,
    metric: Metric = relative_error,
    threads: int = 1,
    progress: Progress | None = None,
) -> Found:
    """Quantize as many layers as the bound allows.

    data: to calibrate with; the first `samples` feeds of one shape measure errors. metric: what is
    bounded. Raises ConfigError where the bound does not hold with all layers float.
    """
    if not bound > 0:
        raise ConfigError(f"the precision budget is {bound}; give an error above 0, e.g. 0.01")
    options = options or Options()
    calibration = repeatable(as_calibration(data))
    base = transformed(model, calibration, options, threads, progress)[0]
    options = replace(options, smooth=None, equalize=False)
    tries = _Tries(base, calibration, options, _feeds(model, calibration, samples), metric, threads,
                   progress)  # fmt: skip
    all_error = tries.error(())
    alone = tries.alone()
    if all_error <= bound:
        return tries.report((), alone, all_error, bound)
    order = sorted(alone, key=lambda name: -alone[name])
    count = tries.fewest(order, tries.estimate(order, bound), bound)
    if count is None:
        raise ConfigError(
            f"the error is above {bound} with every layer float already; raise the budget"
        )
    return tries.report(tuple(order[:count]), alone, all_error, bound)


def _feeds(model: Any, calibration: Calibration, samples: int) -> list[Feed]:
    """The first feeds, all of the shapes of the first."""
    feeds = list(islice(calibration.feeds(inputs_of(whole_model(model))), 4 * samples))
    shapes = {k: v.shape for k, v in feeds[0].items()}
    return [f for f in feeds if {k: v.shape for k, v in f.items()} == shapes][:samples]


class _Tries:
    """Models with some layers left float, and how wrong they are; each is built once."""

    def __init__(
        self,
        base: Network,
        calibration: Calibration,
        options: Options,
        feeds: list[Feed],
        metric: Metric,
        threads: int,
        progress: Progress | None,
    ) -> None:
        self.base, self.calibration, self.options = base, calibration, options
        self.feeds, self.metric, self.threads, self.progress = feeds, metric, threads, progress
        self.shapes = {k: v.shape for k, v in feeds[0].items()}
        graph = import_network(base.model, shapes=self.shapes).graph
        self.reference = [evaluate(graph, feed, float64=True) for feed in feeds]
        self._known: dict[tuple[str, ...], tuple[Quantized | None, float]] = {}
        self._first: Quantized | None = None

    def quantized(self, kept: tuple[str, ...]) -> Quantized:
        """The model with `kept` left float; data is used once, unless biases are corrected."""
        exclude = (*self.options.exclude, *(_escaped(name) for name in kept))
        options = replace(self.options, exclude=exclude)
        first = self._first
        again = first is None or options.correct_bias
        made = quantize_model(
            self.base.model,
            self.calibration if again else None,
            options,
            table=None if first is None else first.table,
            threads=self.threads,
            progress=self.progress if first is None else None,
        )
        self._first = first or made
        return made

    def error(self, kept: tuple[str, ...]) -> float:
        """The error of the model with `kept` left float."""
        if kept not in self._known:
            every = self._first is not None and set(kept) >= set(self._first.layers)
            made = None if every else self.quantized(kept)
            model = self.base.model if made is None else made.model
            engine = make_engine(model, self.threads, self.shapes)
            outputs = [{k: v.copy() for k, v in engine(f).items()} for f in self.feeds]
            self._known[kept] = made, self.metric(self.reference, outputs)
            if self.progress is not None:
                self.progress("prove", len(self._known), len(self._known))
        return self._known[kept][1]

    def alone(self) -> dict[str, float]:
        """layer -> the error with this layer alone quantized."""
        assert self._first is not None
        placement = place(self.base, self.options)
        grids = grids_of(placement, self._first.table.ranges, self.options)
        self.injection = make_injection(
            self.base, placement, grids, self.options, self.feeds, self.threads
        )
        found = {}
        for done, name in enumerate(placement.layers, 1):
            found[name] = self.metric(self.reference, self.injection.outputs({name}))
            if self.progress is not None:
                self.progress("layers", done, len(placement.layers))
        return found

    def estimate(self, order: Sequence[str], bound: float) -> int:
        """How many of the worst layers must stay float, by the noise of the others together."""
        low, high = 0, len(order)
        while low < high:
            middle = (low + high) // 2
            noisy = set(order[middle:])
            if self.metric(self.reference, self.injection.outputs(noisy)) <= bound:
                high = middle
            else:
                low = middle + 1
        return low

    def fewest(self, order: Sequence[str], guess: int, bound: float) -> int | None:
        """The fewest that hold the bound in models that were built, near the guess."""
        low, high, step = 0, max(guess, 1), 1  # with `low` it does not hold
        while self.error(tuple(order[:high])) > bound:
            if high == len(order):
                return None
            low, high, step = high, min(len(order), high + step), 2 * step
        while high - low > 1:
            middle = max((low + high) // 2, high - 2)  # the guess is near: small steps first
            if self.error(tuple(order[:middle])) <= bound:
                high = middle
            else:
                low = middle
        return high

    def report(
        self, kept: tuple[str, ...], alone: Mapping[str, float], all_error: float, bound: float
    ) -> Found:
        """The result, with times."""
        made = self._known[kept][0]
        if made is None:
            raise ConfigError("the bound holds with no layer quantized alone; raise the budget")
        ops = {n.name: n.op_type for n in self.base.graph.node}
        times, total = self._times(made.model, list(alone))
        float_total = self._times(self.base.model, [])[1]
        layers = tuple(
            LayerChoice(name, ops[name], "float32" if name in kept else self.options.form,
                        error, times.get(name))
            for name, error in alone.items()
        )  # fmt: skip
        return Found(made, self.error(kept), all_error, bound, layers, total, float_total,
                     len(self._known))  # fmt: skip

    def _times(self, model: Any, names: Sequence[str]) -> tuple[dict[str, float], float]:
        """Milliseconds of the kernels that each layer is in, and of all."""
        engine = make_engine(model, self.threads, self.shapes, TIMED)
        runs = np.min([engine.profile(self.feeds[0]) for _ in range(RUNS)], axis=0) / 1e6
        wanted: set[str] = set(names)
        found: dict[str, float] = {}
        for step, spent in zip(engine.plan.every_step, runs, strict=True):
            for origin in wanted.intersection(step.origins):
                found[origin] = found.get(origin, 0.0) + float(spent)
        return found, float(runs.sum())


def _escaped(name: str) -> str:
    """A pattern that matches this name alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
