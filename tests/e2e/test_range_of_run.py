"""Range whose limits only the run knows; numpy and Python integers are the oracle."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from onnx import parser

import braze
from braze.core.errors import ProfileError, ShapeError

WAYS = [(0, "cpu"), (2, "cpu"), (0, "reference"), (2, "reference")]
pytestmark = pytest.mark.parametrize(("level", "target"), WAYS)
ENDS = {name: (np.iinfo(name).min, np.iinfo(name).max) for name in ("int16", "int32", "int64")}


@functools.cache
def engine(level: int, target: str, dtype: str, nodes: str = "y = Range(a, b, d)") -> Any:
    kind = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    inputs = ", ".join(f"{kind} {name}" for name in "abd")
    text = f'<ir_version: 9, opset_import: ["" : 17]> g ({inputs}) => ({kind}[n] y) {{ {nodes} }}'
    return braze.build(parser.parse_model(text), optimization_level=level, target=target)


def run(way: tuple[int, str], dtype: str, a: Any, b: Any, d: Any) -> np.ndarray[Any, Any]:
    feed = {n: np.asarray(v, dtype) for n, v in zip("abd", (a, b, d), strict=True)}
    y: np.ndarray[Any, Any] = engine(*way, dtype)(feed)["y"]
    return y


def edges(dtype: str) -> list[tuple[int, int, int]]:
    low, high = ENDS[dtype]
    near = [
        (high - 2, high, 1), (high - 2, high, 2), (high, high - 3, -1), (low, low + 3, 1),
        (low + 3, low, -1), (low + 3, low, -2), (low, high, high), (low, high, high // 3),
        (high, low, low), (high, low, low + 1), (0, low, low), (0, high, high), (low, low, 1),
        (low, high, -1), (high, low, 1), (low, high, low), (-1, high, high), (3, -8, -4),
        (high, low, low // 3), (5, 5, -1), (0, 10, 3), (10, 4, -2),
    ]  # fmt: skip
    return near


@pytest.mark.parametrize("dtype", ENDS)
def test_integers_are_counted_in_integers(level: int, target: str, dtype: str) -> None:
    for a, b, d in edges(dtype):
        y = run((level, target), dtype, a, b, d)
        assert y.dtype == dtype and y.tolist() == list(range(a, b, d)), (a, b, d)


def test_stamps_in_nanoseconds(level: int, target: str) -> None:
    start = 1_700_000_000_000_000_000
    for a, b, d in [(start, start + 100, 10), (2**53, 2**53 + 3, 1), (2**63 - 3, 2**63 - 1, 1)]:
        want = np.arange(a, b, d)
        np.testing.assert_array_equal(run((level, target), "int64", a, b, d), want)


def test_a_limit_that_is_computed(level: int, target: str) -> None:
    made = engine(level, target, "int64", "five = Add(b, d) e = Add(a, five) y = Range(a, e, d)")
    for a in (0, 2**62 + 1, 1_700_000_000_000_000_000, -(2**63)):
        feed = {"a": np.array(a), "b": np.array(4), "d": np.array(1)}
        np.testing.assert_array_equal(made(feed)["y"], a + np.arange(5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_counted_in_float64(level: int, target: str, dtype: str) -> None:
    for given in [(1, 2, 0.3), (0, 10, 1), (3, -3, -0.5), (0, 0, 1), (0, -1, 1), (2.5, 9, 1.25)]:
        a, b, d = np.array(given, dtype).tolist()
        count = max(0, math.ceil((b - a) / d))
        y = run((level, target), dtype, a, b, d)
        # one product and one sum, each rounded once
        np.testing.assert_allclose(y, a + np.arange(count) * d, rtol=2 * np.finfo(dtype).eps)


def test_no_number_of_elements_names_its_cause(level: int, target: str) -> None:
    way = (level, target)
    for dtype in (*ENDS, "float32", "float64"):
        with pytest.raises(ShapeError, match=r"\(Range\): deltas that are 0 must be none"):
            run(way, dtype, 0, 5, 0)
    lost = r"\(Range\): numbers of start, limit and delta that are not finite must be none"
    for wrong in (math.inf, -math.inf, math.nan):
        for given in ((wrong, 5, 1), (0, wrong, 1), (0, 5, wrong), (0, wrong, 0)):
            with pytest.raises(ShapeError, match=f"{lost}, but they are 1 and 0"):
                run(way, "float32", *given)
    with pytest.raises(ShapeError, match=f"{lost}, but they are 2 and 0"):
        run(way, "float64", math.inf, math.nan, 1)


def test_more_elements_than_there_may_be_are_refused(level: int, target: str) -> None:
    low, high = ENDS["int64"]
    for a, b, d in [(low, high, 1), (high, low, -1), (low, 0, 1), (0, high, 1)]:
        with pytest.raises(ProfileError, match="_size"):
            run((level, target), "int64", a, b, d)
    with pytest.raises(ProfileError, match="_size"):
        run((level, target), "float64", -1e308, 1e308, 1e-3)
    assert run((level, target), "int64", 0, 2, 1).tolist() == [0, 1]  # and it goes on
