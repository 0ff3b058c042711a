"""A plan that lets buffers overlap, or steps not wait, is an error and never a wrong number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import braze
from braze.codegen.reference.engine import ReferenceEngine
from braze.core.errors import EngineFormatError
from braze.engine.plan import Plan
from braze.engine.steps import BufferRef
from tests.stages.models import MODELS, StageModel

MISTAKE = "mistake of the planner"


def plan_of(case: StageModel, level: int = 0) -> Plan:
    return braze.compile(
        case.model, target="reference", shapes=case.shapes, optimization_level=level
    )


def lives(plan: Plan) -> dict[int, tuple[int, int]]:
    """First and last step of every arena buffer."""
    found: dict[int, tuple[int, int]] = {}
    for i, step in enumerate(plan.steps):
        for ref in step.buffers:
            if plan.buffers[ref.buffer].kind == "arena":
                found[ref.buffer] = (found.get(ref.buffer, (i, i))[0], i)
    return found


def moved(plan: Plan, buffer: int, where: int) -> Plan:
    """The plan with the arena buffer `buffer` at the offset of `where`."""
    profiles = []
    for p in plan.profiles:
        offsets = list(p.offsets)
        offsets[buffer] = offsets[where]
        profiles.append(replace(p, offsets=tuple(offsets), arena_bytes=2 * p.arena_bytes))
    return replace(plan, profiles=tuple(profiles))


def overlaps(plan: Plan) -> Iterator[Plan]:
    """The plan with each pair of buffers that live at the same time laid on top of each other."""
    live = lives(plan)
    for a, (a_first, a_last) in live.items():
        for b, (b_first, b_last) in live.items():
            if a < b and a_first <= b_last and b_first <= a_last:
                yield moved(plan, b, a)


@pytest.mark.parametrize("name", MODELS)
def test_overlapping_buffers_are_caught(name: str) -> None:
    case = MODELS[name]()
    for level in (0, 2):
        for wrong in overlaps(plan_of(case, level)):
            with pytest.raises(EngineFormatError, match=MISTAKE):
                ReferenceEngine.from_plan(wrong)(case.feeds[-1])


def test_apart_in_time_they_may_share_memory() -> None:
    """The near miss: buffers of the attention block whose lives do not meet."""
    case = MODELS["attention_static"]()
    plan = plan_of(case)
    live = lives(plan)
    want = ReferenceEngine.from_plan(plan)(case.feeds[0])["y"]
    pairs = [(a, b) for a in live for b in live if live[a][1] < live[b][0]]
    assert pairs
    for a, b in pairs:
        got = ReferenceEngine.from_plan(alone(moved(plan, b, a), a, b))(case.feeds[0])["y"]
        np.testing.assert_array_equal(got, want)


def alone(plan: Plan, a: int, b: int) -> Plan:
    """All other arena buffers behind each other, past a and b."""
    sizes = plan.sizes
    profiles = []
    for p in plan.profiles:
        at, offsets = 1 << 16, list(p.offsets)
        offsets[a] = offsets[b] = 0
        for i, buffer in enumerate(plan.buffers):
            if buffer.kind == "arena" and i not in (a, b):
                offsets[i], at = at, at + -(-sizes[buffer.bytes].a // 64) * 64
        profiles.append(replace(p, offsets=tuple(offsets), arena_bytes=at))
    return replace(plan, profiles=tuple(profiles))


def test_only_safe_kernels_work_in_place() -> None:
    case = MODELS["reductions"]()
    plan = plan_of(case)
    step = next(s for s in plan.steps if "Softmax" in s.name)
    source, target = (ref.buffer for ref in step.buffers)
    with pytest.raises(EngineFormatError, match="output 0 overlaps input 0"):
        ReferenceEngine.from_plan(moved(plan, target, source))(case.feeds[0])


def test_bytes_nobody_wrote_are_not_read() -> None:
    case = MODELS["mlp_layernorm"]()
    plan = plan_of(case)
    reader = next(i for i, s in enumerate(plan.steps) if s.buffers[0].buffer in lives(plan))
    step = plan.steps[reader]
    fresh = len(plan.buffers)
    buffers = (*plan.buffers, plan.buffers[step.buffers[0].buffer])
    profiles = tuple(
        replace(p, offsets=(*p.offsets, p.arena_bytes), arena_bytes=2 * p.arena_bytes)
        for p in plan.profiles
    )
    steps = list(plan.steps)
    steps[reader] = replace(step, buffers=(BufferRef(fresh), *step.buffers[1:]), after=())
    wrong = replace(plan, buffers=buffers, profiles=profiles, steps=tuple(steps))
    with pytest.raises(EngineFormatError, match="that no step wrote"):
        ReferenceEngine.from_plan(wrong)(case.feeds[-1])


def waits(plan: Plan, step: int, earlier: int) -> bool:
    """Whether `step` runs after `earlier`, directly or through others."""
    return step > earlier and any(
        k == earlier or waits(plan, k, earlier) for k in plan.steps[step].after
    )


def test_a_step_waits_for_all_it_depends_on() -> None:
    case = MODELS["conv_residual_2d"]()
    plan = plan_of(case)
    checked = 0
    for i, step in enumerate(plan.steps):
        for j in step.after:
            rest = tuple(k for k in step.after if k != j)
            if any(waits(plan, k, j) for k in rest):
                continue  # still waits through another step
            steps = list(plan.steps)
            steps[i] = replace(step, after=rest)
            with pytest.raises(EngineFormatError, match=f"step {i} does not wait for step {j}"):
                ReferenceEngine.from_plan(replace(plan, steps=tuple(steps)))
            checked += 1
    assert checked >= len(plan.steps) - 1


def test_tensors_stay_in_their_buffers() -> None:
    case = MODELS["conv_residual_2d"]()
    plan = plan_of(case)
    for i, buffer in enumerate(plan.buffers):
        if buffer.kind != "arena":
            continue
        small = next(k for k, s in enumerate(plan.sizes) if s.op == "const" and s.a < 64)
        buffers = list(plan.buffers)
        buffers[i] = replace(buffer, bytes=small)
        with pytest.raises(EngineFormatError, match=f"leaves buffer {i}"):
            ReferenceEngine.from_plan(replace(plan, buffers=tuple(buffers)))(case.feeds[0])
