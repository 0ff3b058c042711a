"""Choosing tactics: measured, cached, forced or the first; as a set, each kernel compiled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from braze.codegen.backend import Workload
from braze.codegen.cpu.backend import CpuBackend
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import EFFORTS, Effort
from braze.core.dtypes import F32
from braze.core.errors import CompileError, ExecutionError
from braze.core.trace import Trace
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, CompiledKernel, Kernel, Tactic
from braze.fusion.kernel_text import kernel_text
from braze.fusion.lower import LoweredRegion, lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.lowering import AnchorSpec
from braze.ops.pointwise.elementwise import Unary
from braze.ops.product.matmul import MatMul
from braze.tuning.select import Launch, Tuner, fastest
from braze.tuning.timing_cache import TimingCache

TARGET = CpuTarget("x86-64", 1)
Kernels = tuple[LoweredRegion, ...]


@dataclass(frozen=True)
class Spy(CpuBackend):
    """The CPU backend, with a say in what tactics there are, counting what is compiled."""

    target: CpuTarget = TARGET
    anchors: bool = True
    loops: bool = True
    here: bool = True
    compiled: list[str] = field(default_factory=list)

    def supports(
        self, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        return super().supports(spec, inputs, constant) if self.anchors else "none today"

    def tactics(self, kernel: Kernel, effort: Effort) -> tuple[Tactic, ...]:
        wanted = self.loops or isinstance(kernel, AnchorKernel)
        return super().tactics(kernel, effort) if wanted else ()

    def compile(self, kernel: Kernel, tactic: Tactic) -> CompiledKernel:
        self.compiled.append(str(tactic))
        return super().compile(kernel, tactic)

    def can_measure(self) -> bool:
        return self.here


def kernels(spy: Spy, rows: int = 6, copies: int = 1) -> Kernels:
    """`copies` products of one shape."""
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (rows, 40)))
    for _ in range(copies):
        x = g.add1(MatMul(), x, g.constant(np.ones((40, 40), np.float32)))
    graph = g.finish([("y", x)])
    lowered = lower_nodes(graph, spy)
    return lower_all(graph, lowered, partition(graph, lowered, Trace()))


def choose(
    spy: Spy, level: int, found: Kernels | None = None, cache: TimingCache | None = None
) -> list[Launch]:
    found = kernels(spy) if found is None else found
    tuner = Tuner(spy, EFFORTS[level], {}, cache or TimingCache(), Trace())
    candidates = tuner.measure(tuner.candidates(found))
    return tuner.launches(found, candidates, fastest(candidates))


def test_low_levels_take_the_first_tactic_unmeasured() -> None:
    spy = Spy()
    (launch,) = choose(spy, 2)
    assert spy.compiled == [str(launch.tactic)]


def test_other_machines_are_not_measured() -> None:
    spy = Spy(here=False)
    choose(spy, 3)
    assert len(spy.compiled) == 1


def test_measured_times_go_to_the_cache_and_come_back() -> None:
    spy, cache = Spy(), TimingCache({"other": 1.0})
    (first,) = choose(spy, 3, cache=cache)
    assert len(cache) - 1 == len(spy.compiled) > 1
    again = Spy()
    assert choose(again, 3, cache=cache)[0].tactic == first.tactic
    assert again.compiled == [str(first.tactic)]


def test_the_fastest_cached_tactic_wins() -> None:
    spy = Spy()
    found = kernels(spy)
    text, tactics = kernel_text(found[0].kernel), spy.tactics(found[0].kernel, EFFORTS[3])
    for winner in tactics:
        cache = TimingCache()
        for t in tactics:
            key = TimingCache.key(spy.generator, text, str(t), "", TARGET.fingerprint)
            cache.put(key, 1.0 if t == winner else 2.0)
        assert choose(Spy(), 3, found, cache)[0].tactic == winner


def test_equal_kernels_are_compiled_once() -> None:
    spy = Spy()
    first, second = choose(spy, 1, kernels(spy, copies=2))
    assert first.compiled is second.compiled
    assert len(spy.compiled) == 1


def test_a_choice_sees_all_kernels_and_is_obeyed() -> None:
    spy = Spy()
    found = kernels(spy, copies=2)
    tuner = Tuner(spy, EFFORTS[3], {}, TimingCache(), Trace())
    candidates = tuner.candidates(found)
    assert [len(c.tactics) for c in candidates] == [4]
    for i, tactic in enumerate(candidates[0].tactics):
        launches = tuner.launches(found, candidates, [i])
        assert {x.tactic for x in launches} == {tactic}


def behind(spy: Spy) -> Kernels:
    """One product behind which three epilogues are, and one of another size."""
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (6, 40)))
    made = [g.add1(MatMul(), x, g.constant(np.ones((40, n), np.float32))) for n in (40, 40, 40, 48)]
    ends = [g.add1(Unary(op), y) for op, y in zip(("tanh", "abs", "exp", "abs"), made, strict=True)]
    graph = g.finish([(f"y{i}", y) for i, y in enumerate(ends)])
    lowered = lower_nodes(graph, spy)
    return lower_all(graph, lowered, partition(graph, lowered, Trace()))


def timed(spy: Spy, level: int) -> list[tuple[Tactic, ...]]:
    """The tactics that have a time, of each kernel of `behind`; the later, the faster."""
    found = behind(spy)
    cache = TimingCache()
    tuner = Tuner(spy, EFFORTS[level], {}, cache, Trace())
    candidates = tuner.candidates(found)
    for k in candidates:
        for i, t in enumerate(k.tactics):
            fingerprint = TARGET.fingerprint
            cache.put(TimingCache.key(spy.generator, k.text, str(t), "", fingerprint), 9.0 - i)
    return [k.tactics for k in tuner.measure(candidates)]


def test_a_product_behind_another_epilogue_is_timed_by_the_tactics_that_were_best() -> None:
    first, *others, wider = timed(Spy(), 3)
    assert len(first) == len(wider) == 4
    assert others == [first[2:], first[2:]]


@dataclass(frozen=True)
class TwoTemplates(Spy):
    """The first tactic of a product is of a template of its own."""

    def tactics(self, kernel: Kernel, effort: Effort) -> tuple[Tactic, ...]:
        first, *others = super().tactics(kernel, effort)
        return replace(first, template="other"), *others


def test_the_best_of_another_template_is_timed_too() -> None:
    first, *others, _ = timed(TwoTemplates(), 3)
    assert first[0].template == "other" and others == [(first[0], *first[2:])] * 2


def test_higher_levels_time_every_epilogue() -> None:
    first, *others, _ = timed(Spy(), 4)
    assert len(first) == 8 and others == [first, first]


@dataclass(frozen=True)
class Ahead(Spy):
    """It compiles everything side by side."""

    def compile_ahead(
        self, wanted: Sequence[tuple[Kernel, Tactic]]
    ) -> Mapping[int, CompiledKernel | CompileError]:
        return {i: self.compile(kernel, tactic) for i, (kernel, tactic) in enumerate(wanted)}


def test_what_was_compiled_side_by_side_is_timed() -> None:
    spy = Ahead()
    tuner = Tuner(spy, EFFORTS[3], {}, TimingCache(), Trace())
    first, *others, _ = tuner.measure(tuner.candidates(behind(spy)))
    assert [k.tactics for k in others] == [first.tactics, first.tactics]


def test_refused_template_falls_back_to_the_loop_nest() -> None:
    (launch,) = choose(Spy(anchors=False), 1)
    assert not isinstance(launch.lowered.kernel, AnchorKernel)


def test_no_code_at_all_is_one_clear_error() -> None:
    with pytest.raises(CompileError, match=r"MatMul.*has no code for cpu:x86-64"):
        choose(Spy(anchors=False, loops=False), 1)


def test_tensors_that_do_not_fit_into_memory_are_one_clear_error() -> None:
    spy = Spy()
    with pytest.raises(ExecutionError, match=r"matmul \(MatMul\).*do not fit into memory"):
        choose(spy, 3, kernels(spy, rows=2**31))


@dataclass(frozen=True)
class Faulty(Spy):
    """Of whose code only the last `good` tactics run."""

    good: int = 1

    def workload(self, kernel: Kernel, sizes: Mapping[str, int]) -> Workload:
        return Runs(len(self.tactics(kernel, EFFORTS[3])) - self.good)


@dataclass
class Runs:
    """A workload whose first `faults` calls fail."""

    faults: int

    def seconds(self, compiled: CompiledKernel, give_up_above: float) -> float:
        self.faults -= 1
        return 1.0 if self.faults < 0 else float("inf")

    def results(self) -> Sequence[np.ndarray[Any, Any]]:
        return ()

    def inputs(self) -> Sequence[np.ndarray[Any, Any]]:
        return ()


def test_a_tactic_that_does_not_run_is_not_chosen_and_not_remembered() -> None:
    spy, cache = Faulty(), TimingCache({"other": 1.0})
    (launch,) = choose(spy, 3, cache=cache)
    assert str(launch.tactic) == spy.compiled[-1]
    assert len(cache) == 2


def test_a_kernel_none_of_whose_tactics_runs_is_one_clear_error() -> None:
    with pytest.raises(ExecutionError, match=r"matmul \(MatMul\) has 4 ways to run and none"):
        choose(Faulty(good=0), 3)


@dataclass(frozen=True)
class Broken(Spy):
    """Code of whose last `bad` tactics cannot be made."""

    bad: int = 1

    def compile(self, kernel: Kernel, tactic: Tactic) -> CompiledKernel:
        known = self.tactics(kernel, EFFORTS[3])
        if tactic in known[len(known) - self.bad :]:
            raise CompileError(f"no code by {tactic}")
        return super().compile(kernel, tactic)


def test_a_tactic_without_code_is_not_chosen_also_where_it_is_the_last() -> None:
    spy, cache = Broken(bad=3), TimingCache({"other": 1.0})
    (launch,) = choose(spy, 3, cache=cache)
    assert str(launch.tactic) == spy.compiled[0] and len(cache) == 2


def test_a_kernel_none_of_whose_tactics_has_code_says_why() -> None:
    with pytest.raises(CompileError, match="no code by gemm"):
        choose(Broken(bad=4), 3)


@dataclass(frozen=True)
class First(Spy):
    """Code of whose first tactics cannot be made."""

    bad: int = 1

    def compile(self, kernel: Kernel, tactic: Tactic) -> CompiledKernel:
        if tactic in self.tactics(kernel, EFFORTS[3])[: self.bad]:
            raise CompileError(f"no code by {tactic}")
        return super().compile(kernel, tactic)


def test_an_untimed_tactic_without_code_leaves_the_place_to_the_next() -> None:
    found = kernels(spy := First(here=False))
    tuner = Tuner(spy, EFFORTS[3], {}, TimingCache(), Trace())
    candidates = tuner.candidates(found)
    (launch,) = tuner.launches(found, candidates, fastest(candidates))
    assert launch.tactic == candidates[0].tactics[1]
    (decision,) = tuner.trace.decisions
    assert decision["kind"] == "fallback" and "no code by gemm" in decision["reason"]
    with pytest.raises(CompileError, match="no code by gemm"):
        choose(First(here=False, bad=99), 3)
