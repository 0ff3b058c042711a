"""Shapes of a run: the shape program, guards, profiles, empty tensors and memory by shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from braze.core.errors import (
    EngineFormatError,
    ExecutionError,
    ProfileError,
    ShapeError,
)
from braze.engine.plan import Profile, SizeOp
from braze.runtime import Engine
from tests.runtime.plans import (
    chain_plan,
    chain_reference,
    expression_plan,
    gather_plan,
    rows,
)


def test_zero_sized_tensors() -> None:
    engine = Engine.from_plan(gather_plan())
    empty = engine({"x": np.zeros(3, np.float32), "i": np.zeros(0, np.int64)})["y"]
    assert empty.shape == (0,)
    with pytest.raises(ExecutionError):
        engine({"x": np.zeros(0, np.float32), "i": np.zeros(1, np.int64)})


def test_computed_axes_and_guards() -> None:
    engine = Engine.from_plan(expression_plan())
    x = rows(4, 5)
    np.testing.assert_array_equal(engine({"x": x})["y"], x + x)
    with pytest.raises(ShapeError, match="axis 1 has size 7 where the engine needs 5"):
        engine({"x": rows(4, 7)})
    with pytest.raises(ShapeError, match="n is below 5"):
        engine({"x": rows(6, 7)})


def test_overflow_and_division_by_zero_in_the_shape_program() -> None:
    plan = expression_plan()
    big = len(plan.sizes)
    for extra in (
        (SizeOp("const", 1 << 62), SizeOp("mul", big, big)),
        (SizeOp("const", 0), SizeOp("floordiv", 0, big)),
        (SizeOp("const", 0), SizeOp("mod", 0, big)),
    ):
        engine = Engine.from_plan(replace(plan, sizes=plan.sizes + extra))
        with pytest.raises(ShapeError, match="overflows or divides by zero"):
            engine({"x": rows(2, 3)})


@pytest.mark.parametrize("a", [-7, -6, 7, 0, -(2**63) + 1])
@pytest.mark.parametrize("b", [-3, 3, 7])
@pytest.mark.parametrize("op", ["add", "mul", "floordiv", "mod", "max", "min"])
def test_the_shape_program_computes_as_python_does(op: str, a: int, b: int) -> None:
    expected = {
        "add": a + b, "mul": a * b, "floordiv": a // b, "mod": a % b, "max": max(a, b),
        "min": min(a, b),
    }[op]  # fmt: skip
    if not -(2**63) <= expected < 2**63:
        pytest.skip("the result needs more than 64 bits: refused, see the test before")
    plan = expression_plan()
    at = len(plan.sizes)
    sizes = (*plan.sizes, SizeOp("const", a), SizeOp("const", b), SizeOp(op, at, at + 1))
    sizes = (*sizes, SizeOp("const", expected))
    guard = replace(plan.guards[0], lhs=at + 2, rhs=at + 3)
    Engine.from_plan(replace(plan, sizes=sizes, guards=(guard,)))({"x": rows(2, 3)})


def test_symbols_must_agree() -> None:
    plan = gather_plan()
    same = replace(plan.inputs[1], shape=plan.inputs[0].shape)
    profile = replace(plan.profiles[0], ranges=plan.profiles[0].ranges[:1])
    sizes = tuple(SizeOp("sym", 0) if s.op == "sym" else s for s in plan.sizes)
    inputs, symbols = (plan.inputs[0], same), plan.symbols[:1]
    engine = Engine.from_plan(
        replace(plan, inputs=inputs, symbols=symbols, profiles=(profile,), sizes=sizes)
    )
    with pytest.raises(ShapeError, match="both are the size 'n'"):
        engine({"x": np.zeros(3, np.float32), "i": np.zeros(2, np.int64)})


def test_several_profiles() -> None:
    plan = chain_plan(profiles=((1, 2, 4), (3, 8, 16), (20, 20, 30)))
    engine = Engine.from_plan(plan)
    context = engine.create_context()
    for n, profile in ((1, 0), (4, 0), (5, 1), (16, 1), (25, 2), (2, 0)):
        assert (
            context.run({"x": rows(n)})["y"].tobytes() == chain_reference(plan, rows(n)).tobytes()
        )
        context.set_input_shape("x", (n, 8))
        assert context.profile_in_use() == (profile, plan.profiles[profile].arena_bytes)
    with pytest.raises(ProfileError, match=r"fit none of the 3 profiles.*profile 2"):
        context.run({"x": rows(18)})
    fixed = engine.create_context(profile=1)
    assert fixed.run({"x": rows(3)})["y"].shape == (3, 8)
    with pytest.raises(ProfileError, match=r"outside 3\.\.16 of profile 1"):
        fixed.run({"x": rows(2)})
    with pytest.raises(ProfileError, match="does not exist"):
        engine.create_context(profile=3)


def test_an_arena_too_large_for_the_machine() -> None:
    plan = chain_plan()
    huge = replace(plan.profiles[0], arena_bytes=1 << 60)
    with pytest.raises(ExecutionError, match="no memory"):
        Engine.from_plan(replace(plan, profiles=(huge,)))({"x": rows(4)})


@pytest.mark.parametrize(
    "profile",
    [
        Profile(((1, 4, 16),), (-1, -1, -1, 0, 512), 1000, 0),
        Profile(((1, 4, 64),), (-1, -1, -1, 0, 512), 1024, 0),
    ],
)
def test_buffers_outside_the_arena_are_refused(profile: Profile) -> None:
    engine = Engine.from_plan(replace(chain_plan(), profiles=(profile,)))
    with pytest.raises((EngineFormatError, ShapeError)):
        engine({"x": rows(profile.ranges[0][2])})
