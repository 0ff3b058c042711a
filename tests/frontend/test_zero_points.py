"""Shapes of zero points, scales and biases of quantized ops, also where they hold zeros alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import braze
from braze.core.errors import ShapeError
from tests.frontend.test_operand_shapes import CODES, Array, one, refusal, run

DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


def linear(op: str, scale: Array, zero: Array, dynamic: str = "") -> onnx.ModelProto:
    x = DATA if op == "QuantizeLinear" else DATA.astype(CODES)
    given = {"x": x, **({"z": zero} if dynamic else {})}
    constants = {"s": scale, **({} if dynamic else {"z": zero})}
    return one(op, given, constants, "x s z", dynamic=dynamic, axis=1)


def feed(op: str) -> Array:
    return DATA if op == "QuantizeLinear" else DATA.astype(CODES)


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize("content", [0, 4])
@pytest.mark.parametrize(
    ("scale", "zero"),
    [((3,), z) for z in ((1,), (), (2,), (1, 3))] + [((1,), (3,)), ((), (3,)), ((1,), (0,))],
)
def test_a_zero_point_has_the_shape_of_its_scale(
    op: str, content: int, scale: tuple[int, ...], zero: tuple[int, ...]
) -> None:
    text = refusal(linear(op, np.ones(scale, np.float32), np.full(zero, content, CODES)))
    assert f"node 'here' ({op}): zero point 'z' has shape {list(zero)} but" in text


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize("scale", [(), (1,), (1, 1)])
@pytest.mark.parametrize("zero", [(), (1,), (1, 1)])
def test_one_element_may_have_any_rank(
    op: str, scale: tuple[int, ...], zero: tuple[int, ...]
) -> None:
    half, four = np.array(0.5, np.float32), np.array(4, CODES)
    wanted = run(linear(op, half, four), x=feed(op))
    got = run(linear(op, np.full(scale, half), np.full(zero, four)), x=feed(op))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_zero_point_of_open_size_is_measured_in_the_run(op: str, size: int) -> None:
    scale, zero = np.full(size, 0.5, np.float32), np.arange(1, size + 1).astype(CODES)
    engine = braze.build(linear(op, scale, zero, "z"), target="reference", optimization_level=0)
    wanted = run(linear(op, scale, zero), x=feed(op))
    np.testing.assert_array_equal(engine({"x": feed(op), "z": zero})["y"], wanted)
    for bad in ({1, 2, 3} - {size}):
        with pytest.raises(ShapeError, match=f"'here' .{op}.: zero point 'z'"):
            engine({"x": feed(op), "z": np.ones(bad, CODES)})


A, B = np.arange(12, dtype=CODES).reshape(3, 4), np.arange(20, dtype=CODES).reshape(4, 5)


@pytest.mark.parametrize("content", [0, 4])
@pytest.mark.parametrize("left", [True, False])
def test_zero_points_of_integer_products(content: int, left: bool) -> None:
    def product(shape: tuple[int, ...]) -> onnx.ModelProto:
        constants = {"b": B, "z": np.full(shape, content, CODES)}
        return one("MatMulInteger", {"a": A}, constants, "a b z" if left else "a b - z")

    wide_a, wide_b = A.astype(np.int32), B.astype(np.int32)
    wanted = (wide_a - content) @ wide_b if left else wide_a @ (wide_b - content)
    for shape in ((), (1,), (1, 1), *(((3,), (3, 1)) if left else ((5,), (1, 5)))):
        np.testing.assert_array_equal(run(product(shape), a=A), wanted)
    for bad in ((2,), (4,), (1, 4), (4, 1), (3, 4), (4, 5), (0,), (1, 1, 3)):
        assert "node 'here' (MatMulInteger)" in refusal(product(bad)), bad


@pytest.mark.parametrize("content", [0, 4])
@pytest.mark.parametrize("op", ["ConvInteger", "QLinearConv"])
def test_zero_points_of_the_filters(content: int, op: str) -> None:
    x, w = np.ones((1, 2, 3, 3), CODES), np.ones((4, 2, 2, 2), CODES)

    def convolution(shape: tuple[int, ...]) -> onnx.ModelProto:
        zero = np.full(shape, content, CODES)
        constants = {"w": w, "e": np.zeros((), CODES), "s": np.ones((), np.float32), "z": zero}
        names = "x w e z" if op == "ConvInteger" else "x s e w s z s e"
        return one(op, {"x": x}, constants, names)

    wanted = np.full((1, 4, 2, 2), max(8 * (1 - content), 0 if op == "QLinearConv" else -99))
    for shape in ((), (1,), (4,)):
        np.testing.assert_array_equal(run(convolution(shape), x=x), wanted)
    for bad in ((2,), (3,), (0,), (1, 4), (4, 2, 2, 2)):
        assert f"node 'here' ({op})" in refusal(convolution(bad)), bad


@pytest.mark.parametrize("content", [0, 4])
@pytest.mark.parametrize("op", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_parameters_of_products_of_onnx_runtime(content: int, op: str) -> None:
    dynamic = op == "DynamicQuantizeMatMul"
    x = A.astype(np.float32) if dynamic else A

    def product(
        scale: tuple[int, ...] = (5,), zero: tuple[int, ...] = (5,), bias: tuple[int, ...] = (5,)
    ) -> onnx.ModelProto:
        constants = {
            "b": B,
            "t": np.ones((), np.float32),
            "s": np.ones(scale, np.float32),
            "z": np.full(zero, content, CODES),
            "c": np.ones(bias, np.float32),
        }
        names = "x b s z c" if dynamic else "x b t s - z c"
        return one(op, {"x": x}, constants, names, domain="com.microsoft")

    for good in (product(), product((), ()), product((1,), (1,)), product((1, 1))):
        assert run(good, x=x).shape == (3, 5)
    for bad in (
        *(product(scale=s) for s in ((4,), (3, 1), (4, 5), (1, 1, 5))),
        *(product(zero=s) for s in ((4,), (4, 1), (4, 5), (1, 1, 5))),
        *(product(bias=s) for s in ((), (1,), (4,), (3, 5), (1, 1, 5))),
    ):
        assert f"node 'here' ({op})" in refusal(bad)
