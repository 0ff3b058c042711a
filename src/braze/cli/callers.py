"""The callers that `braze exec` measures: one a stream, each with a context of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import braze
from braze.runtime.context import Times

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """How an engine runs on a GPU: with copies of inputs and outputs, as one graph, spinning."""

    transfers: bool = True
    graph: bool = True
    spin: bool = True


@dataclass(frozen=True, slots=True)
class WeightBudget:
    """How many bytes of a GPU weights may take; part: percent of all weights instead."""

    value: float
    part: bool

    def bytes_of(self, weights: int) -> int:
        """For an engine with so many bytes of weights."""
        return int(weights * self.value / 100 if self.part else self.value)


class HostCaller:
    """Runs its context and keeps the last outputs."""

    def __init__(
        self, engine: braze.Engine, feed: Mapping[str, Array], profile: int | None = None
    ) -> None:
        self._context = engine.create_context(profile)
        self._feed = feed
        self._outputs: dict[str, Array] = {}

    def __call__(self) -> None:
        self._outputs = self._context.run(self._feed)

    def outputs(self) -> dict[str, Array]:
        """Of the last run."""
        return self._outputs


class GpuCaller:
    """Runs with pinned memory of the host, or without transfers with memory of the GPU."""

    def __init__(
        self,
        engine: braze.Engine,
        feed: Mapping[str, Array],
        options: GpuOptions,
        profile: int | None = None,
    ) -> None:
        self._context = context = engine.create_context(profile)
        self._options = options
        self._memory: dict[str, Any] = {}
        for b in engine.plan.inputs:
            context.set_input_shape(b.name, feed[b.name].shape)
        if any(-1 in context.shape(b.name) for b in engine.plan.outputs):
            context.run(feed)  # tells the sizes that only a run knows
        for b in (*engine.plan.inputs, *engine.plan.outputs):
            shape = context.shape(b.name)
            on_gpu = not options.transfers and not b.value  # a fixed content is read by the host
            memory: Any = (
                engine.device_empty(shape, b.dtype)
                if on_gpu
                else engine.pinned_empty(shape, b.dtype)
            )
            if b.name in feed and on_gpu:
                memory.copy_from(feed[b.name])
            elif b.name in feed:
                memory[...] = feed[b.name]
            context.bind(b.name, memory)
            self._memory[b.name] = memory
        self._names = [b.name for b in engine.plan.outputs]

    def __call__(self) -> Times:
        return self._context.timed(graph=self._options.graph, sleep=not self._options.spin)

    def outputs(self) -> dict[str, Array]:
        """Of the last run."""
        return {name: np.array(self._memory[name]) for name in self._names}
