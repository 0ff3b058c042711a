"""Choosing tactics: measured, cached, or the first; refusals fall back to the loop nest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu import backend
from braze.core.dtypes import F32
from braze.core.errors import CompileError, ExecutionError
from braze.core.target import CpuTarget
from braze.core.trace import Trace
from braze.fusion.kernel import AnchorKernel, CompiledKernel, Kernel, Tactic
from braze.fusion.lower import Lowerer
from braze.fusion.partition import lower_nodes, partition
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.product.matmul import MatMul
from braze.tuning.select import Tuner
from braze.tuning.timing_cache import TimingCache

TARGET = CpuTarget("x86-64", 1)


@dataclass
class Spy:
    """The real backend, with a say in what tactics there are, counting what is compiled."""

    anchors: bool = True
    loops: bool = True
    compiled: list[str] = field(default_factory=list)

    def tactics(self, kernel: Kernel, target: CpuTarget, level: int) -> tuple[Tactic, ...]:
        wanted = self.anchors if isinstance(kernel, AnchorKernel) else self.loops
        return backend.tactics(kernel, target, level) if wanted else ()

    def compile_kernel(self, kernel: Kernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
        self.compiled.append(str(tactic))
        return backend.compile_kernel(kernel, tactic, target)

    def pack(self, array: Any, packing: Any) -> Any:
        return backend.pack(array, packing)

    def kernel_text(self, kernel: Kernel) -> str:
        return backend.kernel_text(kernel)


def product() -> Lowerer:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (6, 8)))
    y = g.add1(MatMul(), x, g.constant(np.ones((8, 40), np.float32)))
    graph = g.finish([("y", y)])
    lowered = lower_nodes(graph)
    return Lowerer(graph, lowered, partition(graph, lowered, Trace()))


def tuner(spy: Spy, level: int, cache: TimingCache | None = None, measure: bool = True) -> Tuner:
    times = TimingCache() if cache is None else cache
    return Tuner(spy, TARGET, level, {}, times, measure, Trace())


def test_low_levels_take_the_first_tactic_unmeasured() -> None:
    spy, lower = Spy(), product()
    choice = tuner(spy, 2).choose(lower.partition.regions[0], lower)
    assert spy.compiled == [str(choice.tactic)]


def test_other_processors_are_not_measured() -> None:
    spy, lower = Spy(), product()
    tuner(spy, 3, measure=False).choose(lower.partition.regions[0], lower)
    assert len(spy.compiled) == 1


def test_measured_times_go_to_the_cache_and_come_back() -> None:
    spy, lower, cache = Spy(), product(), TimingCache()
    region = lower.partition.regions[0]
    first = tuner(spy, 3, cache).choose(region, lower)
    assert len(cache) == len(spy.compiled) > 1
    again = Spy()
    assert tuner(again, 3, cache).choose(region, lower).tactic == first.tactic
    assert again.compiled == [str(first.tactic)]


def test_the_fastest_cached_tactic_wins() -> None:
    lower = product()
    region = lower.partition.regions[0]
    kernel = lower(region).kernel  # type: ignore[union-attr]
    tactics = backend.tactics(kernel, TARGET, 3)
    for winner in tactics:
        cache = TimingCache()
        for t in tactics:
            key = TimingCache.key(backend.kernel_text(kernel), str(t), "", TARGET.fingerprint)
            cache.put(key, 1.0 if t == winner else 2.0)
        assert tuner(Spy(), 3, cache).choose(region, lower).tactic == winner


def test_equal_kernels_are_compiled_once() -> None:
    spy, lower = Spy(), product()
    t = tuner(spy, 1)
    region = lower.partition.regions[0]
    assert t.choose(region, lower).compiled is t.choose(region, lower).compiled
    assert len(spy.compiled) == 1


def test_refused_template_falls_back_to_the_loop_nest() -> None:
    spy, lower = Spy(anchors=False), product()
    choice = tuner(spy, 1).choose(lower.partition.regions[0], lower)
    assert not isinstance(choice.lowered.kernel, AnchorKernel)


def test_no_code_at_all_is_one_clear_error() -> None:
    lower = product()
    with pytest.raises(CompileError, match=r"MatMul.*has no code for x86-64"):
        tuner(Spy(anchors=False, loops=False), 1).choose(lower.partition.regions[0], lower)


def test_tensors_that_do_not_fit_into_memory_are_one_clear_error() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (2**35, 8)))
    graph = g.finish([("y", g.add1(MatMul(), x, g.constant(np.ones((8, 4), np.float32))))])
    lowered = lower_nodes(graph)
    lower = Lowerer(graph, lowered, partition(graph, lowered, Trace()))
    with pytest.raises(ExecutionError, match=r"matmul \(MatMul\).*do not fit into memory"):
        tuner(Spy(), 3).choose(lower.partition.regions[0], lower)
