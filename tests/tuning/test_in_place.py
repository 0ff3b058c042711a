"""Tactics tried in the finished network: which are, which stay, and that a cache repeats it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.meta import small_models

from braze.codegen.catalog import find_backend
from braze.core.config import EFFORTS
from braze.core.dtypes import F32
from braze.core.errors import ExecutionError
from braze.core.trace import Trace
from braze.fusion.kernel import Tactic
from braze.fusion.lower import LoweredRegion, lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.abilities import UNLIMITED
from braze.ops.pointwise.elementwise import Unary
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.softmax import Softmax
from braze.tuning import networks as networks_module
from braze.tuning.in_place import Swap, refined, swaps
from braze.tuning.networks import Networks
from braze.tuning.race import Racer, made, ratio
from braze.tuning.select import Candidates, Tuner
from braze.tuning.timing_cache import TimingCache

MACHINE = ("generator", "card", "")


def lowered() -> tuple[LoweredRegion, ...]:
    """Three kernels; the first runs twice."""
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (4, 4)))
    w = g.constant(np.ones((4, 4), np.float32))
    y = g.add1(MatMul(), g.add1(MatMul(), x, w), w)
    y = g.add1(Softmax(1), y)
    graph = g.finish([("y", g.add1(Unary("exp"), g.add1(MatMul(), y, g.add1(Unary("neg"), y))))])
    nodes = lower_nodes(graph, UNLIMITED)
    return lower_all(graph, nodes, partition(graph, nodes, Trace()))


def candidates(*times: Sequence[float], templates: str = "aaaa") -> list[Candidates]:
    """Kernels with tactics of these times, whose templates are these letters."""
    found = []
    for i, seconds in enumerate(times):
        tactics = tuple(Tactic(templates[t], (("tile", t),)) for t in range(len(seconds)))
        found.append(Candidates(lowered()[0], f"kernel {i}", tactics, tuple(seconds)))
    return found


def test_what_takes_most_time_is_tried_first() -> None:
    kernels = candidates([1.0, 1.2], [3.0, 3.1], [2.0, 2.1])
    assert swaps(kernels, [1, 1, 1], 2) == [Swap(1, 1), Swap(2, 1)]
    assert swaps(kernels, [9, 1, 1], 1) == [Swap(0, 1)]


def test_only_what_is_near_the_best_and_seen_in_the_whole() -> None:
    kernels = candidates([1.0, 1.31, 1.29], [0.001, 0.001])
    assert swaps(kernels, [1, 1], 9) == [Swap(0, 2)]


def test_another_template_comes_first_and_trials_are_few() -> None:
    kernels = candidates([1.1, 1.0, 1.15, 1.2], templates="aaab")
    assert swaps(kernels, [1], 9) == [Swap(0, 3), Swap(0, 0)]


def test_kernels_without_times_are_left_alone() -> None:
    kernels = [replace(k, seconds=()) for k in candidates([1.0, 1.0])]
    assert swaps(kernels, [1], 9) == []


def oracle(speed: Callable[[Sequence[int]], float], seen: list[Any]) -> Any:
    def compare(trial: Sequence[int], base: Sequence[int]) -> float:
        seen.append((tuple(trial), tuple(base)))
        return speed(trial) / speed(base)

    return compare


def test_a_faster_swap_stays_and_later_ones_build_on_it() -> None:
    kernels = candidates([1.0, 1.1], [1.0, 1.1], [1.0, 1.1])
    seen: list[Any] = []
    speed = lambda c: 3.0 - 0.5 * c[0] + 0.5 * c[1] - 0.001 * c[2]  # noqa: E731
    wanted = [Swap(0, 1), Swap(1, 1), Swap(2, 1)]
    cache = TimingCache()
    got = refined(kernels, [0, 0, 0], wanted, oracle(speed, seen), cache, MACHINE)
    assert got == [1, 0, 0]  # the last gains less than noise
    assert [base for _, base in seen] == [(0, 0, 0), (1, 0, 0), (1, 0, 0)]
    again: list[Any] = []
    assert refined(kernels, [0, 0, 0], wanted, oracle(speed, again), cache, MACHINE) == got
    assert not again and len(cache) == 3
    other = ("generator", "another card", "")
    refined(kernels, [0, 0, 0], wanted, oracle(speed, again), cache, other)
    assert len(again) == 3


def test_networks_that_cannot_be_timed_keep_their_choice() -> None:
    kernels, cache = candidates([1.0, 1.1]), TimingCache()
    assert refined(kernels, [0], [Swap(0, 1)], lambda *_: None, cache, MACHINE) == [0]
    assert len(cache) == 0


class Clock:
    """A racer that takes so long, or fails when it is told to."""

    def __init__(self, milliseconds: float, fails: bool = False) -> None:
        self.milliseconds, self.fails = milliseconds, fails

    def burst(self, runs: int) -> list[float]:
        if self.fails:
            raise ExecutionError("no")
        return [self.milliseconds] * runs


def test_ratios() -> None:
    one, two, broken = Clock(1.0), Clock(2.0), Clock(1.0, fails=True)
    assert ratio(two, one) == 2.0  # type: ignore[arg-type]
    assert ratio(broken, one) == float("inf")  # type: ignore[arg-type]


def test_a_racer_runs_a_network_of_any_inputs() -> None:
    """On the processor, whose engine takes the same calls; times of a device are 0 there."""
    import braze

    shapes = {"x": ((1, 3, 24, 24), (2, 3, 24, 24), (5, 3, 24, 24))}
    plan = braze.compile(small_models.conv_net(), shapes=shapes, optimization_level=1)
    racer = made(plan, find_backend("cpu", 1).load, {str(plan.symbols[0].name): 2})
    assert isinstance(racer, Racer) and len(racer.burst(3)) == 3


@pytest.mark.parametrize("level", [2, 3])
def test_networks_are_planned_by_each_choice_and_few_stay_loaded(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoken: list[tuple[str, ...]] = []

    def fake_made(plan: tuple[str, ...], load: Any, sizes: Any) -> Clock:
        spoken.append(plan)
        return Clock(1.0 if "rows=1" in plan[0] else 2.0)

    monkeypatch.setattr(networks_module, "made", fake_made)
    backend = find_backend("cpu:x86-64", 1)
    effort = replace(EFFORTS[level], in_place=4)
    tuner = Tuner(backend, effort, {}, TimingCache(), Trace())
    monkeypatch.setattr(type(backend), "can_measure", lambda _: True)
    low = lowered()
    found = [replace(k, seconds=(1.0,) * len(k.tactics)) for k in tuner.candidates(low)]
    nets = Networks(
        tuner,
        low,
        found,
        lambda ls: tuple(str(x.tactic) for x in ls),
        backend.load,  # type: ignore[arg-type,return-value]
    )
    chosen = nets.refined([0] * len(found))
    assert len(chosen) == len(found) and not nets.racers
    assert bool(spoken) == (level == 3)
    assert not any(d["kind"] == "tactic" for d in tuner.trace.decisions)
