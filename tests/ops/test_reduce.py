"""Reductions, arg reductions and running totals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from braze.core.dtypes import BF16
from braze.core.errors import BrazeError, DTypeError, ShapeError
from braze.ops.reduce.reduce import REDUCE_NAMES, ArgReduce, Reduce
from braze.ops.reduce.scan import Cumulative
from tests.ops.check import as_float, bf16, run1, run_node

NAN, INF = np.nan, np.inf
Array = np.ndarray[Any, Any]
FORMULAS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
    "l1": lambda x, **o: np.sum(np.abs(x), **o),
    "l2": lambda x, **o: np.sqrt(np.sum(x * x, **o)),
    "logsum": lambda x, **o: np.log(np.sum(x, **o)),
    "logsumexp": lambda x, **o: np.log(np.sum(np.exp(x), **o)),
    "sumsquare": lambda x, **o: np.sum(x * x, **o),
}
AXES = [(0,), (2,), (0, 2), (1, 3), (0, 1, 2, 3)]


def sample(dtype: str = "float32") -> Array:
    rng = np.random.default_rng(1)
    return (rng.random((2, 3, 4, 5)) * 2 + 0.1).astype(dtype)


def test_the_table_is_complete() -> None:
    assert set(FORMULAS) == set(REDUCE_NAMES)


@pytest.mark.parametrize("kind", FORMULAS)
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reduce(kind: str, axes: tuple[int, ...], keepdims: bool) -> None:
    x = sample()
    want = FORMULAS[kind](x.astype(np.float64), axis=axes, keepdims=keepdims)
    got = run1(Reduce(kind, axes, keepdims), x, rtol=1e-5)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5)  # sums of 120 float32 numbers


@pytest.mark.parametrize("kind", FORMULAS)
def test_without_axes_the_elementwise_part_remains(kind: str) -> None:
    x = sample()
    got = run1(Reduce(kind, (), True), x)
    np.testing.assert_allclose(
        got, FORMULAS[kind](x[..., None].astype(np.float64), axis=-1), rtol=1e-5
    )


@pytest.mark.parametrize("kind", FORMULAS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integers(kind: str, dtype: str) -> None:
    x = np.array([[1, 2, 3], [7, 5, 4]]).astype(dtype)
    want = np.trunc(FORMULAS[kind](x.astype(np.float64), axis=1))
    np.testing.assert_array_equal(run1(Reduce(kind, (1,), False), x), want)


def test_integer_sums_wrap_and_means_truncate() -> None:
    x = np.array([2**31 - 1, 1], np.int32)
    assert run1(Reduce("sum", (0,), False), x) == -(2**31)
    assert run1(Reduce("mean", (0,), False), np.array([-3, -2], np.int32)) == -2
    assert run1(Reduce("l1", (0,), False), np.array([-3, -2], np.int32)) == 5


@pytest.mark.parametrize("kind", ["max", "min"])
def test_max_and_min_of_bool_and_small_integers(kind: str) -> None:
    b = np.array([[True, False], [False, False], [True, True]])
    want = b.any(1) if kind == "max" else b.all(1)
    np.testing.assert_array_equal(run1(Reduce(kind, (1,), False), b), want)
    i = np.array([[-5, 3], [100, -128]], np.int8)
    want = i.max(1) if kind == "max" else i.min(1)
    np.testing.assert_array_equal(run1(Reduce(kind, (1,), False), i), want)
    with pytest.raises(DTypeError):
        run1(Reduce("sum", (1,), False), b)


@pytest.mark.parametrize("x", [[NAN, 1.0], [1.0, NAN], [NAN, NAN], [-INF, NAN]])
def test_max_and_min_do_not_depend_on_the_place_of_nan(x: list[float]) -> None:
    for kind in ("max", "min", "sum", "logsumexp", "l2"):
        assert np.isnan(run1(Reduce(kind, (0,), False), np.array(x, np.float32)))


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        ("sum", 0),
        ("prod", 1),
        ("max", -INF),
        ("min", INF),
        ("mean", NAN),
        ("l1", 0),
        ("l2", 0),
        ("logsum", -INF),
        ("logsumexp", -INF),
        ("sumsquare", 0),
    ],
)
def test_the_empty_set(kind: str, want: float) -> None:
    got = run1(Reduce(kind, (1,), True), np.zeros((2, 0, 3), np.float32))
    np.testing.assert_array_equal(got, np.full((2, 1, 3), want))


def test_the_empty_set_of_integers_and_bool() -> None:
    x = np.zeros((2, 0), np.int32)
    assert (run1(Reduce("max", (1,), False), x) == np.iinfo(np.int32).min).all()
    assert (run1(Reduce("min", (1,), False), x) == np.iinfo(np.int32).max).all()
    assert (run1(Reduce("mean", (1,), False), x) == 0).all()
    assert not run1(Reduce("max", (1,), False), x > 0).any()
    assert run1(Reduce("min", (1,), False), x > 0).all()


def test_logsumexp_neither_overflows_nor_loses_infinities() -> None:
    x = np.array([[1000, 1000], [-1000, -1000], [INF, 1], [-INF, -INF], [-INF, 2]], np.float32)
    got = run1(Reduce("logsumexp", (1,), False), x)
    log2 = np.log(2)
    np.testing.assert_allclose(got, [1000 + log2, -1000 + log2, INF, -INF, 2], rtol=1e-6)


def test_half_sums_accumulate_in_float32() -> None:
    x = np.ones(65536, np.float16)
    assert run1(Reduce("mean", (0,), False), x, symbolic=False) == 1
    x = np.full(4096, 1.0)
    got = run1(Reduce("sum", (0,), False), bf16(x), dtypes={0: BF16}, symbolic=False)
    assert as_float(got, BF16) == 4096  # adding in bfloat16 would stop at 256


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_arg_reduce(kind: str, axis: int, keepdims: bool, last: bool) -> None:
    x = np.random.default_rng(2).integers(0, 3, (3, 4, 5)).astype(np.float32)
    got = run1(ArgReduce(kind, axis, keepdims, last), x)
    best = x.max(axis, keepdims=True) if kind == "max" else x.min(axis, keepdims=True)
    hits = x == best
    want = (
        np.argmax(hits, axis)
        if not last
        else (x.shape[axis] - 1 - np.argmax(np.flip(hits, axis), axis))
    )
    want = np.expand_dims(want, axis) if keepdims else want
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("kind", "x", "want"),
    [
        ("max", [2, NAN, 7, 4, 1], 1),
        ("max", [NAN, 2, 7, 4, 1], 0),
        ("max", [2, 4, 7, 1, NAN], 4),
        ("min", [8, NAN, 3, 1, 5], 1),
        ("max", [NAN] * 58, 0),
        ("min", [-INF, NAN], 1),
    ],
)
def test_arg_reduce_takes_the_first_nan(kind: str, x: list[float], want: int) -> None:
    assert run1(ArgReduce(kind, 0, False), np.array(x, np.float32)) == want


def test_arg_min_of_int32() -> None:
    x = np.zeros(16, np.int32)
    x[9] = -1
    np.testing.assert_array_equal(run1(ArgReduce("min", 0, True), x), [9])


# --------------------------------------------------------------------------- importers


@pytest.mark.parametrize("opset", [7, 11, 13])
def test_axes_as_an_attribute(opset: int) -> None:
    x = sample()
    (got,) = run_node("ReduceMean", {"x": x}, opset, axes=[1, 2], keepdims=0)
    np.testing.assert_allclose(got, x.mean((1, 2)), rtol=1e-6)
    (got,) = run_node("ReduceL2", {"x": x}, opset)
    assert got.shape == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("name", "opset"), [("ReduceSum", 13), ("ReduceMax", 18), ("ReduceL1", 18)]
)
def test_axes_as_an_input(name: str, opset: int) -> None:
    x = sample()
    (got,) = run_node(name, {"x": x}, opset, {"axes": np.array([-1, 0])}, keepdims=0)
    assert got.shape == (3, 4)
    empty = {"axes": np.zeros(0, np.int64)}
    (got,) = run_node(name, {"x": x}, opset, empty)
    assert got.shape == (1, 1, 1, 1)
    (got,) = run_node(name, {"x": x}, opset, empty, noop_with_empty_axes=1)
    np.testing.assert_array_equal(got, x)
    (got,) = run_node(name, {"x": x}, opset, noop_with_empty_axes=1)
    np.testing.assert_array_equal(got, x)


def test_axes_of_the_run() -> None:
    x = sample()
    for axis in range(-x.ndim, x.ndim):
        (got,) = run_node("ReduceMax", {"x": x, "axes": np.array([axis])}, 18)
        np.testing.assert_array_equal(got, x.max(axis, keepdims=True))
    with pytest.raises(BrazeError, match="axes"):
        run_node("ReduceMax", {"x": x, "axes": np.array([x.ndim])}, 18)


def test_bad_axes_are_refused() -> None:
    with pytest.raises(ShapeError, match="outside"):
        run_node("ReduceSum", {"x": sample()}, 13, {"axes": np.array([4])})
    with pytest.raises(ShapeError, match="twice"):
        run_node("ReduceSum", {"x": sample()}, 13, {"axes": np.array([1, -3])})


def test_arg_importer() -> None:
    x = np.array([[1, 3, 3], [5, 5, 2]], np.float32)
    (got,) = run_node("ArgMax", {"x": x}, 13, axis=-1, keepdims=0, select_last_index=1)
    np.testing.assert_array_equal(got, [2, 1])
    (got,) = run_node("ArgMin", {"x": x}, 7)
    np.testing.assert_array_equal(got, [[0, 0, 1]])


# --------------------------------------------------------------------------- running totals


@pytest.mark.parametrize("kind", ["sum", "prod"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_cumulative(kind: str, axis: int, exclusive: bool, reverse: bool, dtype: str) -> None:
    x = np.array([[1, 2, 3], [4, 5, 6], [2, 1, 3]]).astype(dtype)
    want = np.empty_like(x)
    for i in range(3):
        span = slice(i + exclusive, None) if reverse else slice(None, i + 1 - exclusive)
        part = np.moveaxis(x, axis, 0)[span]
        np.moveaxis(want, axis, 0)[i] = part.sum(0) if kind == "sum" else part.prod(0)
    np.testing.assert_array_equal(run1(Cumulative(kind, axis, exclusive, reverse), x), want)


def test_cumulative_edge_sizes() -> None:
    (got,) = run_node(
        "CumSum", {"x": np.ones((1, 2), np.float32)}, 14, {"axis": np.array(-2)}, exclusive=1
    )
    np.testing.assert_array_equal(got, [[0, 0]])
    assert run1(Cumulative("sum", 0, True), np.zeros((0, 2), np.float32)).shape == (0, 2)
