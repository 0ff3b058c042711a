"""Plans of small networks: memory never overlaps while live, in-place reuse only where safe."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import helper
from tests.e2e.models import attention_net, conv_net, make, rand

import braze
from braze.engine.plan import Plan, SizeOp

n = helper.make_node


def size_at(plan: Plan, index: int, env: tuple[int, ...]) -> int:
    def value(i: int) -> int:
        op: SizeOp = plan.sizes[i]
        if op.op == "const":
            return op.a
        if op.op == "sym":
            return env[op.a]
        a, b = value(op.a), value(op.b)
        known = {"add": a + b, "mul": a * b, "max": max(a, b), "min": min(a, b)}
        if op.op in known:
            return known[op.op]
        return a // b if op.op == "floordiv" else a % b

    return value(index)


def lifetimes(plan: Plan) -> dict[int, tuple[int, int]]:
    """buffer -> first and last step that touches it."""
    out: dict[int, tuple[int, int]] = {}
    for i, step in enumerate(plan.steps):
        for ref in step.buffers:
            first, _ = out.get(ref.buffer, (i, i))
            out[ref.buffer] = (first, i)
    return out


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (conv_net("n", "h", "w"), {"x": ((1, 3, 8, 8), (1, 3, 16, 16), (4, 3, 40, 48))}),
        (attention_net("seq"), {"x": ((1, 1, 32), (2, 16, 32), (3, 64, 32))}),
    ],
)
def test_live_buffers_do_not_overlap_at_any_shape(model: Any, shapes: Any) -> None:
    plan = braze.compile(model, shapes=shapes, optimization_level=1)
    live = lifetimes(plan)
    (profile,) = plan.profiles
    assert profile.lower_bound_bytes <= profile.arena_bytes
    for pick in range(3):
        env = tuple(r[pick] for r in profile.ranges)
        arena = [i for i, b in enumerate(plan.buffers) if b.kind == "arena"]
        spans = {
            i: (profile.offsets[i], profile.offsets[i] + size_at(plan, plan.buffers[i].bytes, env))
            for i in arena
        }
        assert all(0 <= a <= b <= profile.arena_bytes for a, b in spans.values())
        for x in arena:
            for y in arena:
                if x < y and live[x][0] <= live[y][1] and live[y][0] <= live[x][1]:
                    assert spans[x][1] <= spans[y][0] or spans[y][1] <= spans[x][0], (x, y)


def chain(*nodes: Any, outputs: tuple[str, ...] = ("y",)) -> Plan:
    weights = {"w": rand(16, 16), "k": rand(1, 16)}
    model = make(list(nodes), {"x": [8, 16]}, outputs, weights)
    return braze.compile(model, optimization_level=0)


def test_dying_input_is_overwritten_in_place() -> None:
    plan = chain(
        n("MatMul", ["x", "w"], ["a"]), n("Exp", ["a"], ["b"]), n("MatMul", ["b", "w"], ["y"])
    )
    exp = plan.steps[1]
    assert exp.buffers[0].buffer == exp.buffers[1].buffer
    assert [b.kind for b in plan.buffers].count("arena") == 1


def test_input_that_is_read_later_is_not_overwritten() -> None:
    plan = chain(
        n("MatMul", ["x", "w"], ["a"]),
        n("Exp", ["a"], ["b"]),
        n("Add", ["a", "b"], ["c"]),
        n("MatMul", ["c", "w"], ["y"]),
    )
    exp = plan.steps[1]
    assert exp.buffers[0].buffer != exp.buffers[1].buffer


def test_network_input_is_never_overwritten() -> None:
    plan = chain(n("Exp", ["x"], ["b"]), n("MatMul", ["b", "w"], ["y"]))
    kinds = [plan.buffers[r.buffer].kind for r in plan.steps[0].buffers]
    assert kinds == ["input", "arena"]


def test_transposed_input_is_not_overwritten() -> None:
    plan = chain(
        n("MatMul", ["x", "w"], ["a"]),
        n("Transpose", ["a"], ["t"], perm=[1, 0]),
        n("MatMul", ["w", "t"], ["y"]),
    )
    move = plan.steps[1]
    assert move.buffers[0].buffer != move.buffers[1].buffer


def test_steps_wait_for_what_they_read_and_overwrite() -> None:
    plan = chain(
        n("MatMul", ["x", "w"], ["a"]), n("Exp", ["a"], ["b"]), n("MatMul", ["b", "w"], ["y"])
    )
    assert [s.after for s in plan.steps] == [(), (0,), (1,)]


def test_equal_weights_are_stored_once() -> None:
    plan = chain(n("MatMul", ["x", "w"], ["a"]), n("MatMul", ["a", "w"], ["y"]))
    assert len(plan.weights) == 1
    assert len({s.kernel for s in plan.steps}) == 1
