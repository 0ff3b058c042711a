"""Hand-made plans run on the native and on the reference engine: equal results, equal refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from braze.codegen.reference.engine import ReferenceEngine
from braze.core.dtypes import ALL_DTYPES, BF16, F16, F32, F64, I8, I64, U8, DType
from braze.core.errors import BrazeError
from braze.engine.plan import Guard, Plan, SizeOp
from braze.engine.steps import BufferRef, Copy
from braze.runtime import Engine
from tests.runtime import flow_plans, plans

Feed = dict[str, np.ndarray]


def engines(plan: Plan) -> tuple[Engine, Engine]:
    """The native and the reference engine of a plan."""
    return Engine.from_plan(plan), ReferenceEngine.from_plan(flow_plans.in_text(plan))


def some(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) % 3).reshape(shape).astype(np.float32)


def assert_equal(plan: Plan, feeds: list[Feed], want: Callable[[Feed], Feed] | None = None) -> None:
    """Both engines give the same outputs and debug tensors, one feed after another."""
    native, reference = engines(plan)
    names = {d.name for d in plan.debug}
    for feed in feeds:
        expected, got = native(feed, debug=names), reference(feed, debug=names)
        assert list(got) == list(expected)
        for name, value in expected.items():
            assert (got[name].dtype, got[name].shape) == (value.dtype, value.shape)
            assert got[name].tobytes() == value.tobytes()
        for name, value in (want(feed) if want else {}).items():
            np.testing.assert_array_equal(got[name], value)


def test_plans_of_launches() -> None:
    for n in (1, 4, 16):
        assert_equal(plans.chain_plan(), [{"x": some(n, 8)}])
        assert_equal(plans.branch_plan(64), [{"x": some(n, 64)}], lambda f: {"y": 9 * f["x"]})
    assert_equal(plans.chain_plan(profiles=((1, 2, 4), (1, 8, 16))), [{"x": some(5, 8)}])
    assert_equal(plans.gather_plan(), [{"x": some(5), "i": np.array([4, 0, 3])}])
    assert_equal(plans.expression_plan(), [{"x": some(n, n + 1)} for n in (1, 4)])


def test_sizes_from_data() -> None:
    feeds = [{"x": some(n)} for n in (7, 0, 64, 1, 7)]
    assert_equal(plans.nonzero_plan(), feeds, lambda f: {"places": np.flatnonzero(f["x"])})


def test_what_loops_carry_grows_and_shrinks() -> None:
    feeds = [{"x": some(n), "trip": np.array(t)} for n in (3, 0, 64) for t in (2, 0, 1, 9, -1)]
    grown = plans.repeat_plan()
    assert_equal(grown, feeds, lambda f: {"y": np.tile(f["x"], max(0, int(f["trip"])))})


def test_a_loop_in_a_branch_in_a_loop() -> None:
    feeds = [
        {
            "x": some(n),
            "flags": np.array([1, 0, 1, 1, 0], bool),
            "outer": np.array(outer),
            "inner": np.array(inner),
        }
        for n in (0, 5)
        for outer in (0, 1, 2, 5)
        for inner in (0, 1, 3)
    ]
    assert_equal(flow_plans.nested_plan(), feeds[-1:], flow_plans.nested_result)
    without = replace(flow_plans.nested_plan(), debug=())  # not every round makes `part`
    assert_equal(without, feeds, flow_plans.nested_result)


def test_a_condition_ends_a_loop() -> None:
    flags = ([0], [1, 0, 1], [1, 1, 1, 0])
    feeds = [{"x": some(5), "flags": np.array(f, bool)} for f in flags]
    assert_equal(flow_plans.while_plan(), feeds, flow_plans.while_result)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, I64, I8, U8])
def test_topk_of_every_kind_of_number(dtype: DType, largest: bool) -> None:
    random = np.random.default_rng(3)
    x = random.integers(-9, 9, (4, 17)).astype(dtype.numpy)
    if dtype.is_float:
        x[0, [3, 9]], x[1, 2], x[2, 5], x[3, :] = np.nan, -np.inf, -0.0, np.nan
    feeds = [{"x": x[:rows], "k": np.array(k)} for rows in (4, 0, 1) for k in (0, 1, 5, 17)]
    assert_equal(flow_plans.topk_plan(dtype, largest), feeds)


def test_times_are_those_of_every_step() -> None:
    feed = {"x": some(5), "trip": np.array(20)}
    times = ReferenceEngine.from_plan(plans.repeat_plan()).profile(feed)
    assert len(times) == 4 and times[0] >= times[2] + times[3] > 0


# ---- refusals ---------------------------------------------------------------------------------


def changed(plan: Plan, index: int, **fields: Any) -> Plan:
    """The plan with other fields of one of its steps."""
    steps = list(plan.steps)
    steps[index] = replace(steps[index], **fields)
    return replace(plan, steps=tuple(steps))


def with_sizes(plan: Plan, *ops: tuple[str, int, int]) -> Plan:
    return replace(plan, sizes=(*plan.sizes, *(SizeOp(*op) for op in ops)))


def smaller(plan: Plan, buffer: int, size: int) -> Plan:
    """The plan with a buffer of the size with that index."""
    buffers = list(plan.buffers)
    buffers[buffer] = replace(buffers[buffer], bytes=size)
    return replace(plan, buffers=tuple(buffers))


def looped(**fields: Any) -> Plan:
    """`repeat_plan` with another loop."""
    return changed(plans.repeat_plan(), 0, **fields)


REPEATED = {"x": some(64), "trip": np.array(90)}
NONZERO, REPEAT, TOPK = plans.nonzero_plan(), plans.repeat_plan(), flow_plans.topk_plan()
# sizes of nonzero_plan: n, m, 4, 8, 8m, 4n, 8n; of repeat_plan: n, s, 0, 4, 8, 4n, 4s, s+n, 4(s+n)
ZERO = len(NONZERO.sizes)
REFUSED: dict[str, tuple[Plan, Feed]] = {
    "a carried size outside of the profile": (REPEAT, REPEATED),
    "too few bytes to carry": (
        flow_plans.while_plan(), {"x": some(5), "flags": np.ones(3, bool)}
    ),
    "k beyond the axis": (TOPK, {"x": some(2, 5), "k": np.array(6)}),
    "a size from data below its range": (TOPK, {"x": some(2, 5), "k": np.array(-1)}),
    "a size from data above its range": (TOPK, {"x": some(2, 5), "k": np.array(65)}),
    "a size of a loop's body after it": (
        flow_plans.scoped_plan(), {"x": some(5), "trip": np.array(2)}
    ),
    "an output that no trip sized": (flow_plans.scoped_plan(), {"x": some(5), "trip": np.array(0)}),
    "a guard on a size from data": (
        replace(NONZERO, guards=(Guard(1, 2, "four are found"),)), {"x": some(8)}
    ),
    "an element that is not there": (
        replace(NONZERO, symbols=(
            NONZERO.symbols[0],
            replace(NONZERO.symbols[1], source=replace(NONZERO.symbols[1].source, element=1)),
        )), {"x": some(8)},
    ),
    "a trip count of four bytes": (smaller(REPEAT, 1, 3), REPEATED),
    "no room for a counter": (
        smaller(looped(counter=4, carried=(), sizes=()), 4, 3), {**REPEATED, "x": some(0)}
    ),
    "no byte for a condition": (
        smaller(looped(trip=None, condition=BufferRef(1)), 1, 2), REPEATED
    ),
    "a late displacement that leaves": (
        changed(NONZERO, 2, source=BufferRef(3, 4)), {"x": some(8)}
    ),
    "a displacement that leaves": (changed(NONZERO, 2, target=BufferRef(1, 6)), {"x": some(8)}),
    "a copy that leaves its target": (changed(NONZERO, 2, bytes=6), {"x": some(8)}),
    "a late size that divides by zero": (
        changed(with_sizes(NONZERO, ("const", 0, 0), ("mul", 1, ZERO), ("mod", 1, ZERO + 1)),
                2, bytes=ZERO + 2), {"x": some(8)},
    ),
    "a negative copy": (
        changed(with_sizes(NONZERO, ("const", -1, 0)), 2, bytes=ZERO), {"x": some(8)}
    ),
    "a copy that leaves its target in a body that does not run": (
        replace(REPEAT, bodies=(replace(REPEAT.bodies[0], steps=(
            Copy(BufferRef(0), BufferRef(1), 5), *REPEAT.bodies[0].steps[1:])),)),
        {"x": some(64), "trip": np.array(0)},
    ),
    "an output buffer beyond its tensor": (smaller(NONZERO, 1, 6), {"x": some(8)}),
    "a buffer outside of the arena": (
        replace(NONZERO, profiles=(replace(NONZERO.profiles[0], arena_bytes=512),)), {"x": some(8)}
    ),
    "a size used too early": (changed(NONZERO, 0, params=(1,)), {"x": some(8)}),
    "another library": (changed(NONZERO, 0, library="cudnn"), {}),
    "another routine": (changed(NONZERO, 0, routine="zero"), {}),
    "buffers of a call": (changed(NONZERO, 0, buffers=NONZERO.steps[0].buffers[:2]), {}),
    "params of a call": (changed(NONZERO, 0, params=(0, 0)), {}),
    "a call that writes to an input": (
        changed(NONZERO, 0, buffers=(*NONZERO.steps[0].buffers[:2], BufferRef(0))), {}
    ),
    "no attribute": (changed(NONZERO, 0, attributes={}), {}),
    "an attribute of another kind": (changed(NONZERO, 0, attributes={"dtype": 5}), {}),
    "an unknown type": (changed(NONZERO, 0, attributes={"dtype": "float99"}), {}),
    "a flag of another kind": (
        changed(TOPK, 1, attributes={"dtype": "float32", "largest": 1}), {}
    ),
    "data out of range": (plans.gather_plan(), {"x": some(3), "i": np.array([0, 3])}),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_those_of_the_native_engine(name: str) -> None:
    plan, feed = REFUSED[name]
    raised = []
    for load in (Engine.from_plan, lambda p: ReferenceEngine.from_plan(flow_plans.in_text(p))):
        with pytest.raises(BrazeError) as e:
            load(plan)(feed)
        # which status a kernel gave, or at which element
        raised.append((type(e.value), str(e.value).split(" (status")[0].split(" (an index")[0]))
    if name == "data out of range":
        assert raised[1][0] is raised[0][0] and raised[1][1].startswith(raised[0][1])
        return
    assert raised[0] == raised[1]


def test_every_refusal_has_a_near_miss() -> None:
    """What the refused plans were made of runs."""
    assert_equal(REPEAT, [{**REPEATED, "trip": np.array(64)}])
    assert_equal(TOPK, [{"x": some(2, 5), "k": np.array(5)}])
    assert_equal(replace(NONZERO, guards=(Guard(1, 2, "four are found"),)), [{"x": some(6)}])
    assert_equal(changed(NONZERO, 2, bytes=4), [{"x": some(8)}])
    assert_equal(plans.gather_plan(), [{"x": some(3), "i": np.array([0, 2])}])


def test_types_that_no_routine_compares() -> None:
    for dtype in ALL_DTYPES:
        plan = changed(NONZERO, 0, attributes={"dtype": dtype.name})
        raised = []
        for load in (Engine.from_plan, ReferenceEngine.from_plan):
            try:
                load(plan)
                raised.append("")
            except BrazeError as e:
                raised.append(f"{type(e)} {e}")
        assert raised[0] == raised[1]


def overlapping(engine: Engine) -> None:
    context = engine.create_context()
    memory = np.ones(40, np.float32)
    context.set_input_shape("x", (8,))
    context.bind("x", memory[:8])
    context.bind("places", memory[6:].view(np.int64))
    context.execute()


def unaligned(engine: Engine) -> None:
    context = engine.create_context()
    memory = np.ones(999, np.uint8)
    context.set_input_shape("x", (8,))
    context.bind("x", some(8))
    context.bind("places", memory.ctypes.data // 8 * 8 + 12, 96)
    context.execute()


def unbound(engine: Engine) -> None:
    context = engine.create_context()
    context.set_input_shape("x", (8,))
    context.bind("x", some(8))
    context.execute()


@pytest.mark.parametrize("use", [overlapping, unaligned, unbound])
def test_memory_for_late_outputs_is_checked_alike(use: Callable[[Engine], None]) -> None:
    raised = []
    for engine in engines(NONZERO):
        with pytest.raises(BrazeError) as e:
            use(engine)
        raised.append((type(e.value), str(e.value)))
        assert engine({"x": some(6)})["places"].size == 4  # still usable
    assert raised[0] == raised[1]


def test_shapes_that_no_memory_fits_are_refused_when_they_are_set() -> None:
    plan = plans.expression_plan()
    negative = SizeOp("const", -3)
    sizes, last = (*plan.sizes, negative), len(plan.sizes)
    output = replace(plan.outputs[0], shape=(0, last))
    small = replace(plan.buffers[0], bytes=last)
    (profile,) = NONZERO.profiles
    wrong = (
        (replace(plan, sizes=sizes, outputs=(output,)), (2, 3)),
        (replace(plan, sizes=sizes, buffers=(small, plan.buffers[1])), (2, 3)),
        (plans.expression_plan(value=(1.0, 2.0)), (2, 3)),
        (replace(NONZERO, profiles=(replace(profile, arena_bytes=512),)), (8,)),
    )
    for plan, shape in wrong:
        raised = []
        for engine in engines(plan):
            context = engine.create_context()
            context.set_input_shape("x", shape)
            with pytest.raises(BrazeError) as e:
                context.shape(plan.outputs[0].name)
            raised.append((type(e.value), str(e.value)))
        assert raised[0] == raised[1]
