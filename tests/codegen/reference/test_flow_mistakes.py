"""Mistakes in plans that steer are errors: nothing undefined is read, nothing overwritten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from braze.codegen.reference.engine import ReferenceEngine
from braze.core.dtypes import BOOL, F32, I64
from braze.core.errors import EngineFormatError
from braze.engine.plan import AssignedSource, Plan
from braze.engine.steps import (
    BufferRef,
    Call,
    Carried,
    Copy,
    If,
    KnownSize,
    Loop,
    Sizes,
    Step,
)  # fmt: skip
from tests.runtime.flow_plans import (
    MOST,
    PlanBuilder,
    add,
    in_text,
    nested_plan,
    nested_result,
    topk_plan,
)  # fmt: skip
from tests.runtime.plans import nonzero_plan, repeat_plan

UNWRITTEN, MISTAKE = "that no step wrote", "mistake of the planner"
X = np.arange(40, dtype=np.float32)


def load(plan: Plan) -> ReferenceEngine:
    engine = ReferenceEngine.from_plan(in_text(plan))
    assert isinstance(engine, ReferenceEngine)
    return engine


def kept_plan(step: Step | None = None) -> Plan:
    """y = t, which `step` fills with x by way of body 0 ("fill") if it should.

    Inputs: x[n], flag, trip; buffers 0, 1, 2; t is buffer 4.
    """
    p = PlanBuilder()
    n = p.axis("n", 0)
    x = p.tensor("input", "x", F32, n)
    p.tensor("input", "flag", BOOL)
    p.tensor("input", "trip", I64)
    y, size = p.tensor("output", "y", F32, n), p.bytes(F32, n)
    t = p.arena_buffer(size, 4 * MOST)
    p.body("fill", Copy(BufferRef(x), BufferRef(t), size, "fill"))
    last = Copy(BufferRef(t), BufferRef(y), size, "read", origins=("Identity_3",))
    return p.plan(*([step] if step else []), last)


@pytest.mark.parametrize(
    ("step", "runs"),
    [
        (None, False),
        (Call(0), True),
        (If(BufferRef(1), 0, -1), False),
        (If(BufferRef(1), -1, 0), True),
        (Loop(0, BufferRef(2)), False),
        (Loop(0, None, BufferRef(1)), False),
    ],
)
def test_what_no_branch_or_trip_wrote_is_not_read(step: Step | None, runs: bool) -> None:
    engine = load(kept_plan(step))
    off = {"x": X, "flag": np.array(False), "trip": np.array(0)}
    if runs:
        np.testing.assert_array_equal(engine(off)["y"], X)
        return
    place = rf"step {1 if step else 0} 'read' \(from Identity_3\) reads bytes of buffer 4"
    with pytest.raises(EngineFormatError, match=f"{place} {UNWRITTEN}"):
        engine(off)
    if isinstance(step, If) or (isinstance(step, Loop) and step.trip):
        on = {"x": X, "flag": np.array(True), "trip": np.array(3)}
        np.testing.assert_array_equal(engine(on)["y"], X)
        with pytest.raises(EngineFormatError, match=UNWRITTEN):  # nothing is left of that run
            engine(off)


def test_an_output_is_written_whole() -> None:
    plan = kept_plan()
    fill = replace(plan.bodies[0].steps[0], target=BufferRef(3))
    plan = replace(plan, bodies=(replace(plan.bodies[0], steps=(fill,)),))
    off = {"x": X, "flag": np.array(False), "trip": np.array(0)}
    on = {"x": X, "flag": np.array(True), "trip": np.array(2)}
    for step in (If(BufferRef(1), 0, -1), Loop(0, BufferRef(2))):
        engine = load(replace(plan, steps=(step,)))
        with pytest.raises(EngineFormatError, match=f"output 'y': the caller .* {UNWRITTEN}"):
            engine(off)
        np.testing.assert_array_equal(engine(on)["y"], X)
        assert engine({**off, "x": X[:0]})["y"].size == 0  # nothing to write
    half = replace(fill, bytes=next(i for i, s in enumerate(plan.sizes) if s.op == "const"))
    with pytest.raises(EngineFormatError, match=UNWRITTEN):
        load(replace(plan, steps=(half,)))(on)


# buffers of nested_plan: 6 total, 7 part, 8 sums, 9 flag, 10 counter
@pytest.mark.parametrize(
    ("a", "b", "safe"), [(6, 8, True), (7, 8, True), (6, 9, False), (6, 10, False), (9, 10, False)]
)
def test_buffers_of_bodies_share_memory_only_where_they_may(a: int, b: int, safe: bool) -> None:
    plan = replace(nested_plan(), debug=())
    (profile,) = plan.profiles
    offsets = list(profile.offsets)
    offsets[b] = offsets[a]
    engine = load(replace(plan, profiles=(replace(profile, offsets=tuple(offsets)),)))
    flags = np.array([1, 0, 1], bool)
    feed = {"x": X, "flags": flags, "outer": np.array(3), "inner": np.array(2)}
    if safe:
        for name, value in nested_result(feed).items():
            np.testing.assert_array_equal(engine(feed)[name], value)
        return
    with pytest.raises(EngineFormatError, match=f"{MISTAKE}"):
        engine(feed)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (2, 1)])
def test_content_is_gone_when_its_buffer_shrinks(own: bool, before: int, after: int) -> None:
    p = PlanBuilder()
    n, s = p.axis("n", 0), p.symbol("s", AssignedSource(), 4 * MOST)
    x, y = p.tensor("input", "x", F32, n), p.tensor("output", "y", F32, n)
    size, late = p.bytes(F32, n), p.bytes(F32, s)
    t = p.own(late) if own else p.arena_buffer(late, 16 * MOST)
    first, then = (p.times(n, p.sizes.const(factor)) for factor in (before, after))
    plan = p.plan(
        Sizes((KnownSize(1, first),)),
        Copy(BufferRef(x), BufferRef(t), size),
        Sizes((KnownSize(1, then),)),
        Copy(BufferRef(t), BufferRef(y), size, "read"),
    )
    if before <= after:
        np.testing.assert_array_equal(load(plan)({"x": X})["y"], X)
        return
    with pytest.raises(EngineFormatError, match=UNWRITTEN):
        load(plan)({"x": X})


def test_carried_values_conditions_and_sizes_must_be_there() -> None:
    p = PlanBuilder()
    n, one = p.axis("n", 0), p.sizes.const(1)
    x, trip = p.tensor("input", "x", F32, n), p.tensor("input", "trip", I64)
    y, eight = p.tensor("output", "y", F32, n), p.bytes(I64)
    t, u = (p.arena_buffer(p.bytes(F32, n), 4 * MOST) for _ in range(2))
    number, flag = p.arena_buffer(eight, 8), p.arena_buffer(one, 1)
    body = p.body("body", add(x, x, u, n))
    p.body("ends")
    wrong = (
        Loop(body, BufferRef(trip), carried=(Carried(y, BufferRef(x), BufferRef(t)),)),
        Loop(body, BufferRef(trip), carried=(Carried(y, BufferRef(t), BufferRef(u)),)),
        Loop(body, BufferRef(number)),
        Loop(body, None, BufferRef(flag)),
        If(BufferRef(flag), body, -1),
    )
    for step in wrong:
        with pytest.raises(EngineFormatError, match=UNWRITTEN):
            load(p.plan(step))({"x": X, "trip": np.array(1)})
    right = Loop(body, BufferRef(trip), carried=(Carried(y, BufferRef(x), BufferRef(u)),))
    for trips in (0, 1, 4):
        got = load(p.plan(right))({"x": X, "trip": np.array(trips)})["y"]
        np.testing.assert_array_equal(got, X + X if trips else X)
    plan = nonzero_plan()
    moved = replace(plan.steps[2], after=(1,))
    early = replace(plan, steps=(plan.steps[1], plan.steps[0], moved))
    with pytest.raises(EngineFormatError, match=f"buffer 3 {UNWRITTEN}"):
        load(early)({"x": X})


def test_library_calls_keep_to_their_memory() -> None:
    plan = nonzero_plan()
    (profile,) = plan.profiles
    together = replace(plan, profiles=(replace(profile, offsets=(-1, -1, 0, 0)),))
    with pytest.raises(EngineFormatError, match=f"buffers 2 and 1 of the call overlap.*{MISTAKE}"):
        load(together)({"x": X})
    # places beyond those found are undefined
    every = replace(plan.steps[2], bytes=plan.buffers[2].bytes, target=BufferRef(2))
    moved = replace(plan.steps[2], after=(2,))
    reads_all = replace(plan, steps=(*plan.steps[:2], every, moved))
    with pytest.raises(EngineFormatError, match=UNWRITTEN):
        load(reads_all)({"x": 0 * X})
    assert load(reads_all)({"x": X + 1})["places"].shape == X.shape
    # so is what a selection leaves in its scratch memory
    plan = topk_plan()
    leftover = Copy(BufferRef(4), BufferRef(4), plan.buffers[4].bytes, "leftover", (1,))
    with pytest.raises(EngineFormatError, match=UNWRITTEN):
        load(replace(plan, steps=(*plan.steps, leftover)))({"x": X[None], "k": np.array(3)})


def test_steps_of_bodies_wait_for_each_other() -> None:
    p = PlanBuilder()
    n = p.axis("n", 0)
    x, y = p.tensor("input", "x", F32, n), p.tensor("output", "y", F32, n)
    t, first = p.arena_buffer(p.bytes(F32, n), 4 * MOST), add(x, x, 2, n)
    assert t == 2
    empty = p.body("empty")
    right = [
        (first, add(t, x, y, n, (0,))),
        (first, Call(empty), add(t, x, y, n)),  # what decides waits for all
        (first, If(BufferRef(x), -1, -1), add(t, x, y, n)),
    ]
    for steps in right:
        body = len(p.bodies)
        p.body("right", *steps)
        np.testing.assert_array_equal(load(p.plan(Call(body)))({"x": X})["y"], 3 * X)
    number = 1 + sum(len(b.steps) for b in p.bodies)
    body = p.body("wrong", first, add(t, x, y, n))
    message = f"step {number + 1} does not wait for step {number} although both use buffer 2"
    with pytest.raises(EngineFormatError, match=message):
        load(p.plan(Call(body)))


def test_only_pieces_of_a_copy_need_not_wait() -> None:
    plan = repeat_plan()
    old, new = plan.bodies[0].steps
    assert isinstance(old, Copy) and isinstance(new, Copy)
    same = replace(plan.bodies[0], steps=(old, replace(new, target=old.target)))
    with pytest.raises(EngineFormatError, match="step 3 does not wait for step 2"):
        load(replace(plan, bodies=(same,)))
    read = replace(new, source=BufferRef(4), target=BufferRef(3))
    with pytest.raises(EngineFormatError, match="step 3 does not wait for step 2"):
        load(replace(plan, bodies=(replace(same, steps=(old, read)),)))
    load(replace(plan, bodies=(replace(same, steps=(old, replace(read, after=(0,)))),)))
    kernel = add(0, 0, 4, 0)
    launched = replace(kernel, buffers=(*kernel.buffers[:2], new.target))
    with pytest.raises(EngineFormatError, match="step 3 does not wait for step 2"):
        adds = {"modules": nested_plan().modules, "kernels": nested_plan().kernels}
        load(replace(plan, bodies=(replace(same, steps=(old, launched)),), **adds))


def test_launches_fit_their_kernels() -> None:
    plan = replace(nested_plan(), debug=())
    good = plan.bodies[0].steps[0]
    for fields, message in (
        ({"buffers": good.buffers[:2]}, "the number of buffers is wrong"),
        ({"params": ()}, "the number of params is wrong"),
        ({"buffers": (*good.buffers[:2], BufferRef(0))}, "it writes to a buffer that is only read"),
    ):
        body = replace(plan.bodies[0], steps=(replace(good, **fields),))
        with pytest.raises(EngineFormatError, match=message):
            load(replace(plan, bodies=(body, *plan.bodies[1:])))
