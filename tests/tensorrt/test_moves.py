"""Shuffle, concatenation, slices, squeezes, shapes and assertions against numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import braze
import braze.tensorrt as trt
from tests.tensorrt.networks import check, floats, new_network, plan_of

S = trt.SampleMode


def test_shuffles() -> None:
    x = floats(2, 3, 4, 5)

    def make(network: Any, inputs: Any) -> Any:
        def add(**values: Any) -> Any:
            layer = network.add_shuffle(inputs["x"])
            for name, value in values.items():
                setattr(layer, name, value)
            return layer

        both = add(
            first_transpose=(0, 2, 3, 1), reshape_dims=(0, -1, 3), second_transpose=(2, 0, 1)
        )
        assert tuple(both.reshape_dims) == (0, -1, 3)
        assert list(both.first_transpose) == [0, 2, 3, 1]
        shape = network.add_shape(inputs["x"]).get_output(0)
        start = network.add_slice(shape, (0,), (1,), (1,)).get_output(0)
        rest = network.add_constant((2,), np.array([-1, 6], np.int64)).get_output(0)
        by_tensor = add()
        by_tensor.set_input(1, network.add_concatenation([start, rest]).get_output(0))
        assert shape.is_shape_tensor and not inputs["x"].is_shape_tensor
        assert start.is_shape_tensor and rest.is_shape_tensor
        return {
            "nothing": add().get_output(0),
            "both": both.get_output(0),
            "left": add(reshape_dims=(0, 0, -1)).get_output(0),
            "by_tensor": by_tensor.get_output(0),
        }

    t = x.transpose(0, 2, 3, 1).reshape(2, 20, 3).transpose(2, 0, 1)
    expected = {"nothing": x, "both": t, "left": x.reshape(2, 3, 20)}
    check(make, {"x": x}, {**expected, "by_tensor": x.reshape(2, 10, 6)})


def test_zero_is_a_size_where_it_is_no_placeholder() -> None:
    network, _ = new_network()
    x = network.add_input("x", trt.float32, (0, 3))
    layer = network.add_shuffle(x)
    layer.reshape_dims, layer.zero_is_placeholder = (3, 0), False
    assert tuple(layer.get_output(0).shape) == (3, 0)


def test_concatenations() -> None:
    x, y = floats(2, 3, 4, 5), floats(2, 3, 4, 5, seed=1)

    def make(network: Any, inputs: Any) -> Any:
        pair = [inputs["x"], inputs["y"]]
        usual, last = network.add_concatenation(pair), network.add_concatenation(tuple(pair))
        assert usual.axis == 1  # the third from last
        last.axis = 3
        return {"usual": usual.get_output(0), "last": last.get_output(0)}

    expected = {"usual": np.concatenate([x, y], 1), "last": np.concatenate([x, y], 3)}
    check(make, {"x": x, "y": y}, expected)


def test_slices_of_all_modes() -> None:
    x = floats(2, 4, 6)

    def make(network: Any, inputs: Any) -> Any:
        def add(mode: Any, start: Any, shape: Any, stride: Any, axes: Any = None) -> Any:
            layer = network.add_slice(inputs["x"], start, shape, stride)
            layer.mode = mode
            if axes is not None:
                layer.axes = axes
            return layer.get_output(0)

        def some(mode: Any) -> Any:
            return add(mode, (-2, -3), (7, 9), (1, 2), (1, 2))

        fill = network.add_slice(inputs["x"], (-1, 4), (6, 4), (1, 1))
        fill.mode, fill.axes = S.FILL, (1, 2)
        fill.set_input(4, network.add_constant((), np.array([7], np.float32)).get_output(0))
        return {
            "strict": add(S.STRICT_BOUNDS, (1, 1), (2, 3), (2, 2), (1, 2)),
            "back": add(S.STRICT_BOUNDS, (3, 5), (4, 3), (-1, -2), (1, 2)),
            "still": add(S.STRICT_BOUNDS, (2,), (3,), (0,), (1,)),
            "wrap": some(S.WRAP),
            "clamp": some(S.CLAMP),
            "reflect": some(S.REFLECT),
            "fill": some(S.FILL),
            "filled": fill.get_output(0),
        }

    rows, columns = np.arange(-2, 5), np.arange(-3, 15, 2)

    def pick(r: Any, c: Any) -> Any:
        return x[:, r][:, :, c]

    def mirror(at: Any, n: int) -> Any:
        turn = at % (2 * n - 2)
        return np.minimum(turn, 2 * n - 2 - turn)

    inside = ((rows >= 0) & (rows < 4))[:, None] & ((columns >= 0) & (columns < 6))
    clamped = pick(rows.clip(0, 3), columns.clip(0, 5))
    filled = np.full((2, 6, 4), 7, np.float32)
    filled[:, 1:5, :2] = x[:, :, 4:]
    expected = {
        "strict": x[:, 1:4:2, 1:6:2],
        "back": x[:, ::-1, 5:0:-2],
        "still": x[:, [2, 2, 2]],
        "wrap": pick(rows % 4, columns % 6),
        "clamp": clamped,
        "reflect": pick(mirror(rows, 4), mirror(columns, 6)),
        "fill": np.where(inside, clamped, np.float32(0)),
        "filled": filled,
    }
    check(make, {"x": x}, expected)


def test_slices_by_tensors() -> None:
    x = floats(3, 4, 6)

    def make(network: Any, inputs: Any) -> Any:
        def ints(*values: int) -> Any:
            return network.add_constant((len(values),), np.array(values, np.int32)).get_output(0)

        sizes = network.add_cast(network.add_shape(inputs["x"]).get_output(0), trt.int32)
        half = network.add_elementwise(
            sizes.get_output(0), ints(1, 2, 2), trt.ElementWiseOperation.FLOOR_DIV
        ).get_output(0)
        front = network.add_slice(inputs["x"], (0,) * 3, (0,) * 3, (1,) * 3)
        front.set_input(2, half)
        back = network.add_slice(inputs["x"], (0,) * 3, (0,) * 3, (0,) * 3)
        back.set_input(1, half)
        back.set_input(2, half)
        back.set_input(3, ints(1, 1, 1))
        back.mode = S.CLAMP
        named = network.add_slice(inputs["x"], (1,), (2,), (1,))
        named.set_input(5, ints(-2))
        assert half.is_shape_tensor
        return {
            "front": front.get_output(0),
            "back": back.get_output(0),
            "named": named.get_output(0),
        }

    expected = {
        "front": x[:, :2, :3],
        "back": x[[2, 2, 2]][:, [2, 3]][:, :, [3, 4, 5]],
        "named": x[:, 1:3],
    }
    # batch 3: back starts at 3, beyond the end, so the last is repeated
    check(make, {"x": x}, expected)


def test_shapes_and_squeezes() -> None:
    x = floats(2, 1, 3)

    def make(network: Any, inputs: Any) -> Any:
        def ints(*values: int) -> Any:
            return network.add_constant((len(values),), np.array(values, np.int64)).get_output(0)

        return {
            "shape": network.add_shape(inputs["x"]).get_output(0),
            "squeeze": network.add_squeeze(inputs["x"], ints(1)).get_output(0),
            "unsqueeze": network.add_unsqueeze(inputs["x"], ints(0, -1)).get_output(0),
        }

    expected = {
        "shape": np.array([2, 1, 3]), "squeeze": x[:, 0], "unsqueeze": x[None, ..., None],
    }  # fmt: skip
    check(make, {"x": x}, expected)


def test_assertions() -> None:
    for size, holds in ((4, True), (5, False)):
        network, log = new_network()
        x = network.add_input("x", trt.float32, (size,))
        four = network.add_constant((1,), np.array([4], np.int64)).get_output(0)
        same = network.add_elementwise(
            network.add_shape(x).get_output(0), four, trt.ElementWiseOperation.EQUAL
        ).get_output(0)
        layer = network.add_assertion(same, "four elements are needed")
        assert layer.num_outputs == 0 and layer.message == "four elements are needed"
        network.mark_output(network.add_identity(x).get_output(0))
        assert (plan_of(network) is not None) == holds
        assert holds or "four elements are needed" in log.errors[-1]


def _least_below(network: Any, x: Any, most: int) -> Any:
    """Whether the first size of a tensor is below a number."""
    size = network.add_slice(network.add_shape(x).get_output(0), (0,), (1,), (1,)).get_output(0)
    limit = network.add_constant((1,), np.array([most], np.int64)).get_output(0)
    return network.add_elementwise(size, limit, trt.ElementWiseOperation.LESS).get_output(0)


def test_a_run_checks_assertions_about_sizes() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (-1, 3))
    network.add_assertion(_least_below(network, x, 3), "too many rows")
    network.add_assertion(_least_below(network, x, 4), "far too many rows")
    y = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    data = plan_of(network, {"x": ((1, 3), (2, 3), (5, 3))})
    assert data is not None, log.errors
    context = trt.Runtime(log).deserialize_cuda_engine(data).create_execution_context()
    for rows, broken in ((2, ""), (3, "too many rows"), (4, "too many rows"), (1, "")):
        given, found = floats(rows, 3), np.zeros((rows, 3), np.float32)
        assert context.set_input_shape("x", given.shape)
        assert context.execute_v2([given.ctypes.data, found.ctypes.data]) == (not broken)
        if broken:
            assert broken in log.errors[-1] and "Assert" in log.errors[-1]
        else:
            np.testing.assert_array_equal(found, -given)


def test_a_run_checks_assertions_about_data_and_two_inputs() -> None:
    network, _ = new_network()
    a, b = (network.add_input(n, trt.int32, (-1,)) for n in "ab")
    shapes = [network.add_shape(t).get_output(0) for t in (a, b)]
    same = network.add_elementwise(*shapes, trt.ElementWiseOperation.EQUAL).get_output(0)
    network.add_assertion(same, "a and b differ")
    most = network.add_reduce(a, trt.ReduceOperation.MAX, 1, False).get_output(0)
    ten = network.add_constant((), np.array(10, np.int32)).get_output(0)
    less = network.add_elementwise(most, ten, trt.ElementWiseOperation.LESS).get_output(0)
    network.add_assertion(less, "a is too large")
    network.mark_output(network.add_concatenation([a, b]).get_output(0))
    network.get_output(0).name = "y"
    engine = braze.Engine.from_bytes(plan_of(network, dict.fromkeys("ab", ((1,), (2,), (5,)))))

    def run(*given: Sequence[int]) -> Any:
        return engine({n: np.array(v, np.int32) for n, v in zip("ab", given, strict=True)})["y"]

    assert list(run([1, 9], [3, 4])) == [1, 9, 3, 4]
    with pytest.raises(braze.ShapeError, match="a and b differ"):
        run([1, 9], [3])
    with pytest.raises(braze.BrazeError, match="a is too large"):
        run([1, 10], [3, 4])


def test_an_assertion_in_a_branch_is_told_of() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (-1, 3))
    chosen = network.add_if_conditional()
    flag = network.add_input("flag", trt.bool, ())
    chosen.set_condition(flag)
    inner = chosen.add_input(x).get_output(0)
    network.add_assertion(_least_below(network, inner, 3), "too many rows")
    negative = network.add_unary(inner, trt.UnaryOperation.NEG).get_output(0)
    network.mark_output(chosen.add_output(negative, inner).get_output(0))
    assert plan_of(network, {"x": ((1, 3), (2, 3), (5, 3))}) is not None, log.errors
    warned = [m for s, m in log.messages if s == trt.Logger.WARNING]
    assert any("Assertion" in m and "no run checks" in m for m in warned)


def test_what_is_refused() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    assert network.add_concatenation([]) is None and log.errors
    with pytest.raises(TypeError):
        network.add_concatenation([x, None])
    cases = (
        (network.add_slice(x, (0, 1), (2, 3), (1, 1)), "elements 1 to 3 of axis 1"),
        (network.add_slice(x, (0,), (2,), (1,)), "need 2 numbers"),
        (network.add_softmax(x), ""),
        (network.add_shuffle(x), "no order"),
        (network.add_slice(x, (0, 0), (2, -5), (1, 1)), "[2, -5] has sizes below 0"),
        (network.add_slice(x, (0, 0), (-1, 3), (1, 1)), "[-1, 3] has sizes below 0"),
    )
    cases[5][0].mode = trt.SampleMode.FILL
    cases[3][0].first_transpose = (1, 1)
    cases[2][0].axes = 3
    for layer, why in cases:
        with pytest.raises(ValueError):
            _ = layer.get_output(0).shape
        assert why in log.errors[-1] and layer.name in log.errors[-1]
