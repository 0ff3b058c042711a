"""Unary, Binary and their importers: numpy semantics, integers, NaN, half types."""

from __future__ import annotations

import math

import numpy as np
import pytest

from braze.core.dtypes import BF16
from braze.core.errors import BrazeError, DTypeError, ShapeError
from braze.ops.pointwise.elementwise import BINARY_NAMES, UNARY_NAMES, Binary, Unary
from braze.ops.pointwise.elementwise_numpy import BINARY_NUMPY, UNARY_NUMPY
from tests.ops.check import bf16, run1, run_node

NAN, INF = np.nan, np.inf
SPECIAL = np.array([NAN, INF, -INF, 0.0, -0.0, 1.5, -2.5, 0.5, 1e30], np.float32)
MATH = {
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "sin": math.sin, "cos": math.cos,
    "tan": math.tan, "asin": math.asin, "acos": math.acos, "atan": math.atan, "sinh": math.sinh,
    "cosh": math.cosh, "tanh": math.tanh, "asinh": math.asinh, "acosh": lambda x: math.acosh(x + 1),
    "atanh": math.atanh, "erf": math.erf, "floor": math.floor, "ceil": math.ceil, "round": round,
    "reciprocal": lambda x: 1 / x, "neg": lambda x: -x, "abs": abs, "trunc": math.trunc,
    "sign": lambda x: math.copysign(1, x),
}  # fmt: skip


def test_every_name_has_a_meaning() -> None:
    assert set(UNARY_NAMES) == set(UNARY_NUMPY)
    assert set(BINARY_NAMES) == set(BINARY_NUMPY)


@pytest.mark.parametrize("op", sorted(MATH))
def test_unary_matches_the_math_library(op: str) -> None:
    x = np.linspace(0.05, 0.95, 19).astype(np.float32)
    argument = x + 1 if op == "acosh" else x
    expected = [
        MATH[op](float(v) if op != "acosh" else float(a) - 1)
        for v, a in zip(x, argument, strict=True)
    ]
    np.testing.assert_allclose(run1(Unary(op), argument), expected, rtol=1e-6)


@pytest.mark.parametrize("op", sorted(set(UNARY_NAMES) - {"not"}))
def test_unary_special_values_lower_as_they_evaluate(op: str) -> None:
    run1(Unary(op), SPECIAL)


def test_sign_and_max_keep_nan() -> None:
    assert np.isnan(run1(Unary("sign"), np.array([NAN], np.float32)))[0]
    pair = run1(Binary("max"), np.array([NAN, 2], np.float32), np.array([1, NAN], np.float32))
    assert np.isnan(pair).all()


def test_round_is_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
    np.testing.assert_array_equal(run1(Unary("round"), x), [0, 2, 2, 0, -2])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64"])
def test_not_is_logical_or_bitwise(dtype: str) -> None:
    x = np.array([0, 1, 1, 0]).astype(dtype)
    np.testing.assert_array_equal(run1(Unary("not"), x), ~x)


def test_uint8_addition_and_multiplication_wrap() -> None:
    a, b = np.array([200, 100, 255, 128], np.uint8), np.array([100, 200, 10, 200], np.uint8)
    np.testing.assert_array_equal(run1(Binary("add"), a, b), [44, 44, 9, 72])
    a, b = np.array([200, 100, 50, 10], np.uint8), np.array([200, 3, 6, 30], np.uint8)
    np.testing.assert_array_equal(run1(Binary("mul"), a, b), [64, 44, 44, 44])


def test_int64_division_is_exact() -> None:
    a = np.array([2**31 - 1, 2**31, 2**40, 2**62], np.int64)
    expected = [195225786, 195225786, 99955602525, 419244183493398900]
    np.testing.assert_array_equal(run1(Binary("div"), a, np.array([11], np.int64)), expected)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integer_division_truncates_and_defines_the_edge_cases(dtype: str) -> None:
    low = np.iinfo(dtype).min
    a = np.array([-5, 5, -5, 5, 7, low, 0], dtype)
    b = np.array([2, -2, -2, 2, 0, -1, 0], dtype)
    np.testing.assert_array_equal(run1(Binary("div"), a, b), [-2, -2, 2, 2, 0, low, 0])
    np.testing.assert_array_equal(run1(Binary("floordiv"), a, b), [-3, -3, 2, 2, 0, low, 0])
    np.testing.assert_array_equal(run1(Binary("mod"), a, b), [1, -1, -1, 1, 0, 0, 0])
    np.testing.assert_array_equal(run1(Binary("fmod"), a, b), [-1, 1, -1, 1, 0, 0, 0])


def test_int64_modulo_is_exact() -> None:
    a = np.array([3, 1234567890, 999999999, 1999999993, 1500000001], np.int64)
    expected = [3, 10, 11, 4, 6]
    np.testing.assert_array_equal(run1(Binary("mod"), a, np.array([13], np.int64)), expected)


def test_float_modulo_follows_the_signs_of_opset_28() -> None:
    a = np.array([5.5, -5.5, 5.5, -5.5, 0.0, -0.0, INF, 1.0, -1.0, NAN, 3.0], np.float32)
    b = np.array([2.0, 2.0, -2.0, -2.0, -2.0, 2.0, 2.0, INF, INF, 1.0, 0.0], np.float32)
    y = run1(Binary("mod"), a, b)
    np.testing.assert_array_equal(
        y, np.array([1.5, 0.5, -0.5, -1.5, -0.0, 0.0, NAN, 1.0, INF, NAN, NAN], np.float32)
    )
    assert np.signbit(y[4]) and not np.signbit(y[5])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_power_wraps_and_cuts_fractions(dtype: str) -> None:
    a = np.array([2, -2, 1, -1, -1, 2, 0, 3, 7], dtype)
    b = np.array([10, 3, -5, -5, -4, -1, 0, 40, 0], dtype)
    wrapped = np.array(pow(3, 40) % 2 ** (8 * a.itemsize)).astype(np.uint64).astype(dtype)
    expected = np.array([1024, -8, 1, -1, 1, 0, 1, wrapped, 1], dtype)
    np.testing.assert_array_equal(run1(Binary("pow"), a, b), expected)


def test_shifts_outside_the_word_leave_the_sign_fill() -> None:
    a = np.array([1, 1, -8, -8, 127], np.int8)
    b = np.array([7, 8, 1, 9, -1], np.int8)
    np.testing.assert_array_equal(run1(Binary("shr"), a, b), [0, 0, -4, -1, 0])
    np.testing.assert_array_equal(run1(Binary("shl"), a, b), [-128, 0, -16, 0, 0])
    a, b = np.array([16, 4, 1], np.uint8), np.array([1, 2, 200], np.uint8)
    np.testing.assert_array_equal(run1(Binary("shr"), a, b), [8, 1, 0])


@pytest.mark.parametrize("op", ["and", "or", "xor"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32"])
def test_bitwise_and_logical(op: str, dtype: str) -> None:
    a, b = np.array([0, 1, 0, 1]).astype(dtype), np.array([0, 0, 1, 1]).astype(dtype)
    expected = {"and": a & b, "or": a | b, "xor": a ^ b}[op]
    np.testing.assert_array_equal(run1(Binary(op), a, b), expected)


@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 3)), ((2, 1, 3), (5, 1)), ((0, 3), (1, 3))],
)
def test_broadcasting(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    np.testing.assert_array_equal(run1(Binary("sub"), a, b), a - b)


def test_half_types_compute_in_float32_and_round_once() -> None:
    a, b = np.array([1.0, 2048.0], np.float16), np.array([3.0, 1.0], np.float16)
    expected = (a.astype(np.float32) / b.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(run1(Binary("div"), a, b), expected)
    # 256 + 1 lies between two bfloat16 numbers, a tie that goes to the even one
    y = run1(Binary("add"), bf16([256.0, 258.0]), bf16([1.0, 1.0]), dtypes={0: BF16, 1: BF16})
    np.testing.assert_array_equal(y, bf16([256.0, 260.0]))


def test_types_and_shapes_that_do_not_fit_are_refused() -> None:
    f, i = np.ones(3, np.float32), np.ones(3, np.int32)
    with pytest.raises(DTypeError, match="insert a Cast"):
        run1(Binary("add"), f, i)
    with pytest.raises(DTypeError):
        run1(Binary("add"), f > 0, f > 0)
    with pytest.raises(DTypeError):
        run1(Unary("sqrt"), i)
    with pytest.raises(DTypeError):
        run1(Binary("and"), f, f)
    with pytest.raises(ShapeError, match="Add axis 0"):
        run1(Binary("add"), f, np.ones(2, np.float32))


def test_importers_of_variadic_ops() -> None:
    x = np.array([1.0, -2.0], np.float32)
    column = np.full((2, 1), 3, np.float32)
    (y,) = run_node("Sum", {"a": x, "b": 2 * x, "c": column}, 13)
    np.testing.assert_allclose(y, 3 * x + column)
    (y,) = run_node("Mean", {"a": x, "b": 2 * x, "c": 3 * x}, 13)
    np.testing.assert_allclose(y, 2 * x)
    (y,) = run_node("Max", {"a": np.array([1, 5], np.int8), "b": np.array([3, 2], np.int8)}, 13)
    np.testing.assert_array_equal(y, [3, 5])
    (y,) = run_node("Min", {"a": x}, 8)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize(
    ("base", "exponent"),
    [
        ("float32", "int64"),
        ("float32", "float64"),
        ("int32", "float32"),
        ("int64", "int32"),
        ("int32", "int64"),
        ("float16", "float32"),
    ],
)
def test_pow_of_mixed_types_has_the_type_of_the_base(base: str, exponent: str) -> None:
    a, b = np.array([1, 2, 3, 5]).astype(base), np.array([3, 2, 0, 1]).astype(exponent)
    (y,) = run_node("Pow", {"a": a, "b": b}, 15)
    assert y.dtype == a.dtype
    np.testing.assert_array_equal(y, [1, 4, 1, 5])


def test_half_means_neither_overflow_nor_round_twice() -> None:
    x = np.array([60000.0, 2048.0], np.float16)
    (y,) = run_node("Mean", {"a": x, "b": x}, 13)
    np.testing.assert_array_equal(y, x)
    one = np.array([0.0, 1.0], np.float16)
    (y,) = run_node("Sum", {"a": x, "b": one, "c": one}, 13)
    np.testing.assert_array_equal(y, [60000.0, 2050.0])  # 2048 + 1 alone rounds back to 2048


def test_pow_keeps_the_precision_of_the_exponent() -> None:
    x, third = np.array([27000.0], np.float16), np.array([1 / 3], np.float32)
    (y,) = run_node("Pow", {"a": x, "b": third}, 15)
    np.testing.assert_array_equal(y, np.float16([30]))
    minus, odd = np.array([-1.0], np.float32), np.array([2**24 + 1])
    for constants in ({}, {"b": odd}):
        inputs = {"a": minus} if constants else {"a": minus, "b": odd}
        (y,) = run_node("Pow", inputs, 15, constants)
        np.testing.assert_array_equal(y, [-1])


def test_float_mod_before_opset_28_needs_fmod() -> None:
    x = np.array([-5.5], np.float32)
    (y,) = run_node("Mod", {"a": x, "b": np.array([2.0], np.float32)}, 13, fmod=1)
    np.testing.assert_array_equal(y, [-1.5])
    with pytest.raises(BrazeError, match="fmod=1"):
        run_node("Mod", {"a": x, "b": np.array([2.0], np.float32)}, 13)


def test_bit_shift_needs_a_direction() -> None:
    x = np.array([16], np.uint32)
    (y,) = run_node("BitShift", {"a": x, "b": np.array([2], np.uint32)}, 11, direction="LEFT")
    np.testing.assert_array_equal(y, [64])
    with pytest.raises(BrazeError, match="LEFT or RIGHT"):
        run_node("BitShift", {"a": x, "b": x}, 11, direction="UP")
