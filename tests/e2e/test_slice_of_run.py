"""Slice at the ends of what starts, ends and steps may be: fixed, of sizes, and of the run.

The oracle is a Python list walked by the rules of ONNX: a start is clamped to 0 .. size, backwards
to 0 .. size - 1; an end to 0 .. size, backwards to -1 .. size - 1.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from onnx import parser

import braze
from braze.core.errors import BrazeError
from tests.ops.harness import check, ints

WAYS = [(0, "cpu"), (2, "cpu"), (0, "reference"), (2, "reference")]
LEAST, MOST = -(2**63), 2**63 - 1
PLACES = (LEAST, -9, -5, -4, -1, 0, 3, 4, MOST)
ENDS = (LEAST, -4, -1, 1, MOST)
STEPS = (1, 2, -1, -2, MOST, LEAST)
Array = np.ndarray[Any, Any]


def sliced(x: Array, start: int, end: int, step: int) -> Array:
    """The elements that a slice of a vector takes."""
    n, back = len(x), step < 0
    low, high = (-1, n - 1) if back else (0, n)
    start, end = (p + n if p < 0 else p for p in (start, end))
    first = min(max(start, 0), high)
    return x[list(range(first, min(max(end, low), high), step))]


@functools.cache
def engine(level: int, target: str, text: str) -> Any:
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
    return braze.build(model, shapes={"x": ((0,), (5,), (9,))}, optimization_level=level,
                       target=target)  # fmt: skip


GIVEN = "g (float[n] x, int64[1] a, int64[1] b{}) => (float[m] y) {}"
OF_RUN = GIVEN.format(", int64[1] s", "<int64[1] zero = {0}> { y = Slice(x, a, b, zero, s) }")


@pytest.mark.parametrize(("level", "target"), WAYS)
def test_places_of_the_run(level: int, target: str) -> None:
    made = engine(level, target, OF_RUN)
    for n, step in itertools.product((4, 0, 1), STEPS):
        x = np.arange(n, dtype=np.float32)
        for a, b in itertools.product(PLACES, ENDS):
            y = made({"x": x, "a": ints(a), "b": ints(b), "s": ints(step)})["y"]
            np.testing.assert_array_equal(y, sliced(x, a, b, step), f"{n} {a} {b} {step}")


@pytest.mark.parametrize(("level", "target"), WAYS)
@pytest.mark.parametrize("step", [1, -1, -2, LEAST])
def test_places_of_the_run_and_a_fixed_step(level: int, target: str, step: int) -> None:
    head = f"<int64[1] zero = {{0}}, int64[1] s = {{{step}}}>"
    made = engine(level, target, GIVEN.format("", head + " { y = Slice(x, a, b, zero, s) }"))
    for n, a, b in itertools.product((4, 0), PLACES, ENDS):
        x = np.arange(n, dtype=np.float32)
        y = made({"x": x, "a": ints(a), "b": ints(b)})["y"]
        np.testing.assert_array_equal(y, sliced(x, a, b, step), f"{n} {a} {b} {step}")


@pytest.mark.parametrize(("level", "target"), [(2, "cpu"), (0, "reference")])
@pytest.mark.parametrize(("a", "b"), [(-9, -99), (-5, LEAST), (-3, -99), (7, -4), (-1, LEAST)])
@pytest.mark.parametrize("step", [-1, -2, LEAST])
def test_fixed_places_of_an_axis_of_any_size(
    level: int, target: str, a: int, b: int, step: int
) -> None:
    head = ", ".join(f"int64[1] {k} = {{{v}}}" for k, v in zip("abs", (a, b, step), strict=True))
    text = f"g (float[n] x) => (float[m] y) <int64[1] zero = {{0}}, {head}>"
    made = engine(level, target, text + " { y = Slice(x, a, b, zero, s) }")
    for n in (0, 1, 2, 4, 5, 8, 9):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(made({"x": x})["y"], sliced(x, a, b, step), f"{n}")


@pytest.mark.parametrize("step", STEPS)
def test_fixed_places_and_sizes(step: int) -> None:
    for n, a, b in itertools.product((4, 0), PLACES, ENDS):
        x = np.arange(n, dtype=np.float32)
        want = sliced(x, a, b, step)
        check("Slice", [x, ints(a), ints(b), ints(0), ints(step)], [want], constant=(1, 2, 3, 4))


@pytest.mark.parametrize(("level", "target"), WAYS)
def test_the_least_number_reaches_ends_through_ops_that_move(level: int, target: str) -> None:
    head = "<int64[2] axes = {0, 1}, int64[2] s = {1, -1}, int64[1] zero = {0}, int64[1] one = {1}>"
    nodes = """{ w = Unsqueeze(x, zero) p = Concat <axis = 0> (zero, a)
      q = Concat <axis = 0> (one, b) t = Slice(w, p, q, axes, s) y = Squeeze(t, zero) }"""
    made = engine(level, target, GIVEN.format("", f"{head} {nodes}"))
    x = np.arange(5, dtype=np.float32)
    for a, b in ((MOST, LEAST), (-9, LEAST), (LEAST, LEAST), (3, 1)):
        y = made({"x": x, "a": ints(a), "b": ints(b)})["y"]
        np.testing.assert_array_equal(y, sliced(x, a, b, -1))


@pytest.mark.parametrize(("level", "target"), WAYS)
def test_arithmetic_on_the_least_number_is_not_taken_for_that_on_another(
    level: int, target: str
) -> None:
    """It may be refused; what it may not do is give another slice."""
    head = "<int64[1] zero = {0}, int64[1] most = {9223372036854775807}, int64[1] s = {-1}>"
    nodes = "{ e = Add(b, most) y = Slice(x, a, e, zero, s) }"
    made = engine(level, target, GIVEN.format("", f"{head} {nodes}"))
    x = np.arange(5, dtype=np.float32)
    try:
        y = made({"x": x, "a": ints(MOST), "b": ints(LEAST)})["y"]
    except BrazeError:
        return
    np.testing.assert_array_equal(y, sliced(x, MOST, -1, -1))
