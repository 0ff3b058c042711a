"""Plans with steps that steer: sizes from data, loops, outputs whose shape only the run knows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from braze.codegen.reference import context as reference_context
from braze.codegen.reference.engine import ReferenceEngine
from braze.core.errors import (
    BindingError,
    EngineFormatError,
    ExecutionError,
    ProfileError,
    TargetError,
)
from braze.engine.plan import Plan
from braze.engine.steps import BufferRef, Call, If, Sizes
from braze.runtime import Engine, Stream, hooks
from tests.runtime.plans import nonzero_plan, repeat_plan

Load = Callable[[Plan], Engine]


@pytest.fixture(params=[Engine, ReferenceEngine])
def load(request: pytest.FixtureRequest) -> Load:
    """Makes an engine of a plan, of each kind in turn."""
    return request.param.from_plan


def some(n: int) -> np.ndarray:
    return (np.arange(n) % 3).astype(np.float32)


def test_output_shapes_come_from_the_data(load: Load) -> None:
    engine = load(nonzero_plan())
    assert [t.shape for t in engine.outputs] == [("m",)]
    for n in (7, 0, 64, 1, 7):
        for workers in (0, 2):
            found = engine({"x": some(n)}, workers=workers)["places"]
            np.testing.assert_array_equal(found, np.flatnonzero(some(n)))
            assert found.ctypes.data % 64 == 0


def test_shapes_are_known_after_a_run(load: Load) -> None:
    context = load(nonzero_plan()).create_context()
    context.set_input_shape("x", (5,))
    assert context.shape("places") == (-1,)
    x = np.array([0, 1, 0, 1, 1], np.float32)
    for given, count in ((x, 3), (0 * x, 0), (x + 1, 5)):
        assert context.run({"x": given})["places"].shape == (count,)
        assert context.shape("places") == (count,)
        context.set_input_shape(
            "x", (5,)
        )  # the same shapes: the outputs are made anew all the same


def test_memory_bound_to_an_output_sized_in_the_run(load: Load) -> None:
    context = load(nonzero_plan()).create_context()
    context.set_input_shape("x", (4,))
    x, room = np.array([0, 1, 0, 1], np.float32), np.full(4, -1)
    context.bind("x", x)
    context.bind("places", room)
    context.execute()
    np.testing.assert_array_equal(room, [1, 3, -1, -1])
    stream = Stream()
    x[:] = 1
    context.enqueue(stream)
    stream.synchronize()
    np.testing.assert_array_equal(room, [0, 1, 2, 3])
    context.bind("places", room[:3])
    with pytest.raises(BindingError, match="24 bytes of memory but needs 32"):
        context.execute()


def test_debug_tensors_and_times_of_steering_steps(load: Load) -> None:
    engine = load(nonzero_plan())
    got = engine({"x": some(9)}, debug=("found",))
    assert list(got) == ["places", "found"]
    np.testing.assert_array_equal(got["found"], got["places"])
    times = load(repeat_plan()).profile({"x": some(9), "trip": np.array(50)})
    assert len(times) == 4
    assert times[0] >= times[2] + times[3]  # the loop counts what ran in it


def test_what_a_loop_carries_grows(load: Load) -> None:
    engine = load(repeat_plan())
    for n in (3, 0, 64, 3):
        for trips in (2, 0, 1, 40):
            got = engine({"x": some(n), "trip": np.array(trips)}, workers=trips % 3)["y"]
            np.testing.assert_array_equal(got, np.tile(some(n), trips))
    with pytest.raises(ProfileError, match=r"size 's' of this run is 4160, outside 0\.\.4096"):
        engine({"x": some(64), "trip": np.array(90)})
    assert engine({"x": some(4), "trip": np.array(3)})["y"].shape == (12,)


def test_threads_share_an_engine_with_loops(load: Load) -> None:
    engine = load(repeat_plan())
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for trips in range(20):
                got = engine({"x": some(seed), "trip": np.array(trips)})["y"]
                np.testing.assert_array_equal(got, np.tile(some(seed), trips))
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_no_memory_for_an_output_of_the_run(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(nonzero_plan())

    def fail(name: str, *_: Any) -> None:
        raise ExecutionError(f"no memory for output {name!r}")

    for module in (hooks, reference_context):
        monkeypatch.setattr(module, "empty_output", fail)
    with pytest.raises(ExecutionError, match="no memory for output 'places'"):
        engine({"x": some(9)})
    monkeypatch.undo()
    assert engine({"x": some(9)})["places"].shape == (6,)


def test_the_report_shows_bodies_and_what_steers(load: Load) -> None:
    text = load(repeat_plan()).inspect()
    for part in (
        "repeat  loop of body 0",
        "from Loop_1",
        "body 0 append: 2",
        "old  copy",
        "y  float32 [s]",
    ):
        assert part in text
    assert "find  braze.nonzero" in load(nonzero_plan()).inspect()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        # the other source, no end, a body that is not there, an empty body, a buffer only read
        (lambda p: replace(p, steps=(Sizes(()), *p.steps)), None),
        (
            lambda p: replace(p, steps=(replace(p.steps[0], trip=None), p.steps[1])),
            EngineFormatError,
        ),
        (lambda p: replace(p, steps=(Call(1), *p.steps)), EngineFormatError),
        (lambda p: replace(p, bodies=(replace(p.bodies[0], steps=(Call(0),)),)), EngineFormatError),
        (lambda p: replace(p, bodies=(replace(p.bodies[0], steps=()),)), EngineFormatError),
        (
            lambda p: replace(p, steps=(replace(p.steps[0], counter=1), p.steps[1])),
            EngineFormatError,
        ),
        (
            lambda p: replace(p, steps=(replace(p.steps[0], carried=p.steps[0].carried * 2),)),
            EngineFormatError,
        ),
    ],
)
def test_unsound_steps_are_refused(load: Load, change: Any, error: Any) -> None:
    plan = change(repeat_plan())
    if error is None:
        load(plan)
        return
    with pytest.raises(error):
        load(plan)


def test_bodies_nest_only_so_deep(load: Load) -> None:
    def nested(depth: int) -> Any:
        plan = repeat_plan()
        bodies = [plan.bodies[0]]
        for i in range(depth - 1):
            bodies.append(replace(bodies[0], steps=(If(BufferRef(1), i, -1),)))
        return replace(plan, bodies=tuple(bodies), steps=(*plan.steps, Call(depth - 1)))

    load(nested(63))
    with pytest.raises(EngineFormatError, match="too deeply"):
        load(nested(64))


def test_a_library_that_is_not_there_is_refused_at_load(load: Load) -> None:
    plan = nonzero_plan()
    for change in ({"library": "cudnn"}, {"routine": "zero"}):
        call = replace(plan.steps[0], **change)
        with pytest.raises(TargetError, match="no such"):
            load(replace(plan, steps=(call, *plan.steps[1:])))
