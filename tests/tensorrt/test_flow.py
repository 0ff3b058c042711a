"""Loops and conditionals: layer by layer networks against Python's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from tests.tensorrt.networks import check, floats, new_network, outputs_of, plan_of

E, K, L = trt.ElementWiseOperation, trt.TripLimit, trt.LoopOutput


def number(network: Any, value: Any, dtype: Any = np.int32) -> Any:
    return network.add_constant((), np.array([value], dtype)).get_output(0)


def test_a_loop_with_a_count() -> None:
    x = floats(3, 4)

    def make(network: Any, inputs: Any) -> Any:
        loop = network.add_loop()
        loop.name = "doubling"
        limit = loop.add_trip_limit(number(network, 5), K.COUNT)
        assert limit.kind is K.COUNT and limit.loop is loop and limit.num_outputs == 0
        state = loop.add_recurrence(inputs["x"])
        assert tuple(state.get_output(0).shape) == tuple(inputs["x"].shape)
        now = state.get_output(0)
        state.set_input(1, network.add_elementwise(now, inputs["x"], E.SUM).get_output(0))
        last = loop.add_loop_output(now, L.LAST_VALUE)
        each = loop.add_loop_output(now, L.CONCATENATE)
        each.set_input(1, number(network, 5))
        back = loop.add_loop_output(now, L.REVERSE, axis=1)
        back.set_input(1, number(network, 5))
        assert tuple(each.get_output(0).shape) == (5, *tuple(inputs["x"].shape))
        assert back.kind is L.REVERSE and back.axis == 1
        return {
            "last": last.get_output(0),
            "each": each.get_output(0),
            "back": back.get_output(0),
        }

    steps = np.stack([x * (i + 1) for i in range(5)])
    expected = {"last": x * 6, "each": steps, "back": steps[::-1].transpose(1, 0, 2)}
    check(make, {"x": x}, expected)


def test_a_loop_over_slices() -> None:
    x, w = floats(2, 6, 3), floats(3, 3, seed=1)

    def make(network: Any, inputs: Any) -> Any:
        loop = network.add_loop()
        loop.add_trip_limit(number(network, 6), K.COUNT)
        step = loop.add_iterator(inputs["x"], axis=1)
        turned = loop.add_iterator(inputs["x"], axis=1, reverse=True)
        assert (step.axis, turned.reverse) == (1, True)
        zero = network.add_elementwise(step.get_output(0), step.get_output(0), E.SUB)
        assert tuple(zero.get_output(0).shape) == (inputs["x"].shape[0], 3)
        start = network.add_reduce(inputs["x"], trt.ReduceOperation.MAX, 1 << 1, False)
        state = loop.add_recurrence(start.get_output(0))
        weights = network.add_constant((3, 3), w).get_output(0)
        none = trt.MatrixOperation.NONE
        product = network.add_matrix_multiply(state.get_output(0), none, weights, none)
        both = network.add_elementwise(product.get_output(0), step.get_output(0), E.SUM)
        both = network.add_elementwise(both.get_output(0), turned.get_output(0), E.SUM)
        squashed = network.add_activation(both.get_output(0), trt.ActivationType.TANH)
        state.set_input(1, squashed.get_output(0))
        out = loop.add_loop_output(squashed.get_output(0), L.CONCATENATE, 1)
        out.set_input(1, number(network, 6))
        last = loop.add_loop_output(state.get_output(0), L.LAST_VALUE)
        return {"all": out.get_output(0), "last": last.get_output(0)}

    state, rows = x.max(1).astype(np.float64), []
    for i in range(6):
        state = np.tanh(state @ w + x[:, i] + x[:, 5 - i])
        rows.append(state)
    expected = {"all": np.stack(rows, 1), "last": state}
    wanted = {k: v.astype(np.float32) for k, v in expected.items()}
    check(make, {"x": x}, wanted, rtol=1e-4, atol=1e-5)


def test_a_loop_while_something_holds() -> None:
    x, limit = np.array([1.5], np.float32), np.array([40.0], np.float32)

    def make(network: Any, inputs: Any) -> Any:
        loop = network.add_loop()
        state = loop.add_recurrence(inputs["x"])
        count = loop.add_recurrence(number(network, 0))
        below = network.add_elementwise(state.get_output(0), inputs["limit"], E.LESS)
        scalar = network.add_shuffle(below.get_output(0))
        scalar.reshape_dims = ()
        loop.add_trip_limit(scalar.get_output(0), K.WHILE)
        twice = network.add_elementwise(state.get_output(0), state.get_output(0), E.SUM)
        state.set_input(1, twice.get_output(0))
        more = network.add_elementwise(count.get_output(0), number(network, 1), E.SUM)
        count.set_input(1, more.get_output(0))
        return {
            "last": loop.add_loop_output(state.get_output(0), L.LAST_VALUE).get_output(0),
            "count": loop.add_loop_output(count.get_output(0), L.LAST_VALUE).get_output(0),
        }

    for high, last, count in ((40.0, 48.0, 5), (1.0, 1.5, 0)):
        limit = np.array([high], np.float32)
        outputs = outputs_of(make, {"x": x, "limit": limit}, dynamic=False)
        assert outputs["last"] == last and outputs["count"] == count


def test_a_loop_in_a_loop() -> None:
    x = floats(2, 3)

    def make(network: Any, inputs: Any) -> Any:
        outer = network.add_loop()
        outer.add_trip_limit(number(network, 3), K.COUNT)
        state = outer.add_recurrence(inputs["x"])
        inner = network.add_loop()
        inner.add_trip_limit(number(network, 2), K.COUNT)
        # begins with a value from outside of both, and reads one of the outer loop
        total = inner.add_recurrence(inputs["x"])
        more = network.add_elementwise(total.get_output(0), state.get_output(0), E.SUM)
        total.set_input(1, more.get_output(0))
        made = inner.add_loop_output(total.get_output(0), L.LAST_VALUE)
        state.set_input(1, made.get_output(0))
        last = outer.add_loop_output(state.get_output(0), L.LAST_VALUE)
        return {"y": last.get_output(0)}

    state = x
    for _ in range(3):
        state = x + 2 * state
    check(make, {"x": x}, {"y": state})


@pytest.mark.parametrize("held", [True, False])
def test_conditionals(held: bool) -> None:
    x, c = floats(2, 3), np.array([held])

    def make(network: Any, inputs: Any) -> Any:
        scalar = network.add_shuffle(inputs["c"])
        scalar.reshape_dims = ()
        either = network.add_if_conditional()
        either.name = "either"
        layer = either.set_condition(scalar.get_output(0))
        assert layer.conditional is either
        inner = either.add_input(inputs["x"]).get_output(0)
        twice = network.add_elementwise(inner, inner, E.SUM).get_output(0)
        root = network.add_unary(inner, trt.UnaryOperation.ABS).get_output(0)
        root = network.add_unary(root, trt.UnaryOperation.SQRT).get_output(0)
        first = either.add_output(twice, root)
        second = either.add_output(root, inner)
        assert tuple(first.get_output(0).shape) == (2, 3)
        return {"first": first.get_output(0), "second": second.get_output(0)}

    root = np.sqrt(np.abs(x))
    expected = {"first": x * 2 if held else root, "second": root if held else x}
    check(make, {"x": x, "c": c}, expected, dynamic=False)


def test_a_conditional_in_a_loop() -> None:
    x = np.array([5.0], np.float32)

    def make(network: Any, inputs: Any) -> Any:
        loop = network.add_loop()
        loop.add_trip_limit(number(network, 4), K.COUNT)
        state = loop.add_recurrence(inputs["x"])
        four = network.add_constant((1,), np.array([4], np.float32)).get_output(0)
        large = network.add_elementwise(state.get_output(0), four, E.GREATER)
        scalar = network.add_shuffle(large.get_output(0))
        scalar.reshape_dims = ()
        either = network.add_if_conditional()
        either.set_condition(scalar.get_output(0))
        value = either.add_input(state.get_output(0)).get_output(0)
        less = network.add_elementwise(value, four, E.SUB).get_output(0)
        more = network.add_elementwise(value, value, E.SUM).get_output(0)
        state.set_input(1, either.add_output(less, more).get_output(0))
        last = loop.add_loop_output(state.get_output(0), L.LAST_VALUE)
        return {"y": last.get_output(0)}

    check(make, {"x": x}, {"y": np.array([8.0], np.float32)}, dynamic=False)  # 5 1 2 4 8


def test_what_is_refused() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (3,))
    loop = network.add_loop()
    state = loop.add_recurrence(x)
    out = loop.add_loop_output(state.get_output(0), L.LAST_VALUE).get_output(0)
    network.mark_output(out)
    assert plan_of(network) is None and "no trip limit" in log.errors[-1]
    assert loop.add_trip_limit(number(network, 2), K.COUNT) is not None
    assert plan_of(network) is None and "next value is missing" in log.errors[-1]
    assert loop.add_trip_limit(number(network, 2), K.COUNT) is None
    with pytest.raises(TypeError):
        loop.add_recurrence(None)
    twice = network.add_elementwise(state.get_output(0), x, E.SUM).get_output(0)
    state.set_input(1, twice)
    assert plan_of(network) is not None
    wrong = loop.add_loop_output(twice, L.LAST_VALUE).get_output(0)
    network.mark_output(wrong)
    assert plan_of(network) is None and "recurrence" in log.errors[-1]
