"""Comparisons, Where and Cast."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from braze.core.dtypes import BF16, BOOL, BY_NAME, F16, F32, I8, I32, I64, NUMBERS, U8, U64
from braze.core.errors import BrazeError, DTypeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.evaluator import evaluate
from braze.ops.pointwise.cast import BitCast, Cast
from braze.ops.pointwise.compare import Compare, IsInf, IsNaN, Where
from tests.ops.check import bf16, run1, run_node

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "uint8"])
def test_comparisons(dtype: str) -> None:
    a, b = np.array([1, 2, 3]).astype(dtype), np.array([[2], [3]]).astype(dtype)
    np.testing.assert_array_equal(run1(Compare("lt"), a, b), a < b)
    np.testing.assert_array_equal(run1(Compare("le"), a, b), a <= b)
    np.testing.assert_array_equal(run1(Compare("eq"), a, b), a == b)


def test_comparisons_with_nan_are_false() -> None:
    a = np.array([NAN, 1.0, NAN], np.float32)
    b = np.array([NAN, NAN, 1.0], np.float32)
    for op in ("lt", "le", "eq"):
        assert not run1(Compare(op), a, b).any()


def test_bool_can_be_equal_but_has_no_order() -> None:
    a, b = np.array([True, False, True]), np.array([True, True, False])
    np.testing.assert_array_equal(run1(Compare("eq"), a, b), a == b)
    with pytest.raises(DTypeError, match="no order"):
        run1(Compare("lt"), a, b)


def test_large_integers_compare_exactly() -> None:
    a = np.array([2**53, 2**53 + 1], np.int64)
    np.testing.assert_array_equal(run1(Compare("eq"), a, a[:1]), [True, False])


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("Greater", np.greater),
        ("Less", np.less),
        ("GreaterOrEqual", np.greater_equal),
        ("LessOrEqual", np.less_equal),
    ],
)
def test_comparison_importers_of_unequal_ranks(name: str, function: np.ufunc) -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.array([1, 1, 4], np.float32)
    (y,) = run_node(name, {"a": a, "b": b}, 16)
    np.testing.assert_array_equal(y, function(a, b))


def test_special_value_tests() -> None:
    x = np.array([NAN, INF, -INF, 0.0, 1.0], np.float32)
    np.testing.assert_array_equal(run1(IsNaN(), x), np.isnan(x))
    np.testing.assert_array_equal(run1(IsInf(), x), np.isinf(x))
    np.testing.assert_array_equal(run1(IsInf(negative=False), x), np.isposinf(x))
    np.testing.assert_array_equal(run1(IsInf(positive=False), x), np.isneginf(x))
    assert not run1(IsInf(negative=False, positive=False), x).any()
    np.testing.assert_array_equal(run1(IsNaN(), x.astype(np.float16)), np.isnan(x))


def test_where_broadcasts_all_three() -> None:
    c = np.array([[True], [False]])
    x, y = np.array([1, 2, 3], np.int64), np.array(9, np.int64)
    np.testing.assert_array_equal(run1(Where(), c, x, y), np.where(c, x, y))
    with pytest.raises(DTypeError, match="condition"):
        run1(Where(), x, x, x)


def test_where_never_mixes_in_the_other_branch() -> None:
    c = np.array([True, False])
    x, y = np.array([1, NAN], np.float32), np.array([NAN, 2], np.float32)
    np.testing.assert_array_equal(run1(Where(), c, x, y), [1, 2])


def test_float_to_int_truncates() -> None:
    x = np.array([1.5, 2.7, 3.2, 4.9, -1.5, -0.9], np.float32)
    np.testing.assert_array_equal(run1(Cast(I32), x), [1, 2, 3, 4, -1, 0])


def test_float_to_int_out_of_range_gives_the_minimum() -> None:
    x = np.array([NAN, INF, -INF, 1e20, -1e20, 300.0, -129.0], np.float64)
    for to in (I8, I32, I64):
        low = np.iinfo(to.name).min
        y = run1(Cast(to), x[:5])
        np.testing.assert_array_equal(y, [low] * 5)
    np.testing.assert_array_equal(run1(Cast(I8), x[5:]), [-128, -128])
    np.testing.assert_array_equal(
        run1(Cast(U8), np.array([-1.0, 256.0, NAN, 255.9, -0.9])), [0, 0, 0, 255, 0]
    )


def test_float_to_int_limits_are_exact() -> None:
    x = np.array([2.0**63, np.nextafter(2.0**63, 0), -(2.0**63), 2.0**64])
    y = run1(Cast(I64), x)
    np.testing.assert_array_equal(y, [-(2**63), 2**63 - 1024, -(2**63), -(2**63)])
    y = run1(Cast(U64), np.array([2.0**63, np.nextafter(2.0**64, 0), 2.0**64]))
    np.testing.assert_array_equal(y, np.array([2**63, 2**64 - 2048, 0], np.uint64))


def test_int_to_int_keeps_the_low_bits() -> None:
    x = np.array([200, -1, 256, 2**31], np.int64)
    np.testing.assert_array_equal(run1(Cast(I8), x), [-56, -1, 0, 0])
    np.testing.assert_array_equal(run1(Cast(U8), x), [200, 255, 0, 0])
    np.testing.assert_array_equal(run1(Cast(I32), x), [200, -1, 256, -(2**31)])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64", "bool"])
def test_anything_to_bool_tests_for_nonzero(dtype: str) -> None:
    x = np.array([0, 1, 1, 0]).astype(dtype)
    np.testing.assert_array_equal(run1(Cast(BOOL), x), [False, True, True, False])


def test_small_nan_and_tiny_numbers_are_true() -> None:
    x = np.array([NAN, 1e-30, -0.0, 0.3], np.float32)
    np.testing.assert_array_equal(run1(Cast(BOOL), x), [True, True, False, True])


def test_float16_rounds_to_even_and_overflows() -> None:
    x = np.array([2049.0, 2051.0, 65519.0, 65520.0, -1e9, 1e-8, NAN], np.float32)
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
    np.testing.assert_array_equal(run1(Cast(F16), x), want)


@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_bfloat16_rounding_agrees_with_ml_dtypes(source: type) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 4000, dtype=np.uint32)
    x = bits.view(np.float32)
    x = x[np.isfinite(x)].astype(source)
    got = run1(Cast(BF16), np.concatenate([x, np.array([INF, -INF], source)]))
    want = np.concatenate([x.astype(ml_dtypes.bfloat16), bf16([INF, -INF])])
    np.testing.assert_array_equal(got, want)


def test_float64_to_bfloat16_rounds_once() -> None:
    # just above a tie: rounding to float32 first would make it a tie and lose the excess
    x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 2.0**-8 - 2.0**-40])
    got = run1(Cast(BF16), x, symbolic=False, rtol=0.01)
    np.testing.assert_array_equal(got, bf16([1 + 2.0**-7, 1, 1]))


def test_bfloat16_to_others() -> None:
    x = bf16([1.5, -2.0, 300.0])
    np.testing.assert_array_equal(run1(Cast(F32), x, dtypes={0: BF16}), [1.5, -2, 300])
    np.testing.assert_array_equal(run1(Cast(I32), x, dtypes={0: BF16}), [1, -2, 300])


@pytest.mark.parametrize("to", sorted(d.name for d in NUMBERS))
@pytest.mark.parametrize("source", sorted({d.name for d in NUMBERS} - {"bfloat16"}))
def test_small_numbers_survive_every_cast(source: str, to: str) -> None:
    x = np.array([0, 1, 1, 0]).astype(source)
    y = run1(Cast(BY_NAME[to]), x, symbolic=False)
    want = bf16([0, 1, 1, 0]) if to == "bfloat16" else np.array([0, 1, 1, 0]).astype(to)
    np.testing.assert_array_equal(y, want)


def test_cast_importers() -> None:
    x = np.array([1.7, -2.2], np.float32)
    (y,) = run_node("Cast", {"x": x}, 13, to=7)
    assert y.dtype == np.int64
    (y,) = run_node("CastLike", {"x": x, "like": np.zeros(1, np.int8)}, 15)
    np.testing.assert_array_equal(y, np.array([1, -2], np.int8))
    (y,) = run_node("Cast", {"x": x}, 19, to=1, saturate=0)
    np.testing.assert_array_equal(y, x)


def test_bit_cast_reads_the_same_bits() -> None:
    x = np.array([1.0, -0.0, NAN, 1e-40], np.float32)
    y = run1(BitCast("float32", "int32"), x)
    np.testing.assert_array_equal(y, x.view(np.int32))
    np.testing.assert_array_equal(run1(BitCast("int32", "float32"), y), x)
    np.testing.assert_array_equal(run1(BitCast("int8", "uint8"), np.array([-1], np.int8)), [255])
    b = run1(BitCast("uint16", "bfloat16"), np.array([0x3F80], np.uint16))
    np.testing.assert_array_equal(b, bf16([1.0]))
    np.testing.assert_array_equal(run1(BitCast("bfloat16", "int16"), b, dtypes={0: BF16}), [0x3F80])


def test_bit_cast_needs_one_width() -> None:
    with pytest.raises(DTypeError, match="width"):
        run1(BitCast("float32", "int64"), np.zeros(2, np.float32))
    with pytest.raises(BrazeError, match="width"):
        run_node("BitCast", {"x": np.zeros(2, np.float32)}, 26, to=7)


def test_bit_cast_survives_float64_mode() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(I32, (2,)))
    y = g.add1(BitCast("float32", "int32"), g.add1(BitCast("int32", "float32"), x))
    graph = g.finish([("y", y)])
    feeds = {"x": np.array([5, 0x3F800000], np.int32)}
    np.testing.assert_array_equal(evaluate(graph, feeds, float64=True)["y"], feeds["x"])
