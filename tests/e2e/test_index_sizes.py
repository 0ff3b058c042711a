"""Sizes and lengths beside indexes: smaller indices are allowed, what does not fit is refused."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from onnx import parser

import braze
from braze.core.errors import ExecutionError, ShapeError

WAYS = [(0, "cpu"), (2, "cpu"), (0, "reference"), (2, "reference")]
pytestmark = pytest.mark.parametrize(("level", "target"), WAYS)
RNG = np.random.default_rng(3)
ELEMENTS = {
    "gather": "(float[a,2,c] x, int64[p,2,r] i) => (float[p,2,r] y) "
    "{ e = Exp(x) y = GatherElements <axis = 2> (e, i) }",
    "scatter": "(float[a,2,c] x, int64[p,2,r] i, float[p,2,r] u) => (float[a,2,c] y) "
    "{ e = Exp(x) y = ScatterElements <axis = 2, reduction = {}> (e, i, u) }",
}
SHAPES = [((4, 3), (4, 3)), ((4, 3), (2, 3)), ((4, 3), (1, 7)), ((1, 1), (1, 2)), ((3, 2), (0, 2)),
          ((3, 2), (3, 0))]  # fmt: skip


@functools.cache
def engine(level: int, target: str, text: str, opset: int = 18) -> Any:
    head = f'<ir_version: 9, opset_import: ["" : {opset}]> g '
    model = parser.parse_model(head + text)
    return braze.build(model, optimization_level=level, target=target)


def feed(data: tuple[int, int], picked: tuple[int, int]) -> dict[str, np.ndarray[Any, Any]]:
    (a, c), (p, r) = data, picked
    return {
        "x": RNG.normal(size=(a, 2, c)).astype(np.float32),
        "i": RNG.integers(-c, c, (p, 2, r)),
        "u": RNG.normal(size=(p, 2, r)).astype(np.float32),
    }


def test_gathered_indices_may_be_smaller_than_the_data(level: int, target: str) -> None:
    made = engine(level, target, ELEMENTS["gather"])
    for data, picked in SHAPES:
        given = feed(data, picked)
        x, i = given["x"], given["i"]
        y = made({"x": x, "i": i})["y"]
        want = np.take_along_axis(np.exp(x)[: picked[0]], i, axis=2)
        np.testing.assert_allclose(y, want, rtol=1e-6)  # exp within some ulp


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scattered_indices_may_be_smaller_than_the_data(
    level: int, target: str, reduction: str
) -> None:
    made = engine(level, target, ELEMENTS["scatter"].replace("{}", f'"{reduction}"'))
    for data, picked in SHAPES:
        given = feed(data, picked)
        want = np.exp(given["x"])
        for at in np.ndindex(given["i"].shape):
            to = (*at[:2], given["i"][at])
            want[to] = given["u"][at] + (want[to] if reduction == "add" else 0)
        np.testing.assert_allclose(made(given)["y"], want, rtol=1e-5, atol=1e-6)  # sums in float32


def test_larger_indices_are_refused(level: int, target: str) -> None:
    given = feed((2, 3), (3, 3))
    for text in ELEMENTS.values():
        made = engine(level, target, text.replace("{}", '"none"'))
        with pytest.raises(ShapeError, match=r"Elements axis 0: data against indices at least"):
            made({k: given[k] for k in ("x", "i", "u") if f" {k}" in text})


def test_an_update_longer_than_the_cache_is_refused(level: int, target: str) -> None:
    text = "(float[b,n] x, float[b,m] u) => (float[b,n] y) { y = TensorScatter <axis = 1> (x, u) }"
    made = engine(level, target, text, opset=24)
    x = np.zeros((2, 4), np.float32)
    y = made({"x": x, "u": x[:, :3] + 1})["y"]
    assert y.tolist() == [[1, 1, 1, 0]] * 2
    with pytest.raises(ShapeError, match="TensorScatter axis 1: cache against update at least"):
        made({"x": x, "u": np.ones((2, 6), np.float32)})
    fixed = text.replace("b,n", "2,4").replace("b,m", "2,6")
    with pytest.raises(ShapeError, match=r"size 4 is less than 6"):
        engine(level, target, fixed, opset=24)


def test_lengths_outside_of_the_axis_are_refused(level: int, target: str) -> None:
    text = "(float[a,b] x, int64[b] n) => (float[a,b] y) { y = ReverseSequence(x, n) }"
    made = engine(level, target, text)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    y = made({"x": x, "n": np.array([0, 4])})["y"]
    assert y[:, 0].tolist() == [0, 2, 4, 6] and y[:, 1].tolist() == [7, 5, 3, 1]
    for wrong in (-1, -2, -(2**63), 5, 2**63 - 1):
        for lengths in ([wrong, 1], [1, wrong]):
            with pytest.raises(ExecutionError, match="out of range"):
                made({"x": x, "n": np.array(lengths)})


def test_zeros_that_stand_beside_a_rest_are_refused(level: int, target: str) -> None:
    text = "(float[a,3] x, int64[2] s) => (float[p,q] y) { y = Reshape <allowzero = 1> (x, s) }"
    made = engine(level, target, text)
    none, some = np.zeros((0, 3), np.float32), np.zeros((2, 3), np.float32)
    for x, shape, want in [(none, (0, 3), (0, 3)), (none, (5, 0), (5, 0)), (none, (3, -1), (3, 0)),
                           (some, (3, -1), (3, 2)), (some, (-1, 6), (1, 6))]:  # fmt: skip
        assert made({"x": x, "s": np.array(shape)})["y"].shape == want
    for x, shape in [(none, (0, -1)), (none, (-1, 0)), (some, (0, -1)), (some, (-1, 0))]:
        with pytest.raises(ShapeError, match=r"\(Reshape\): with allowzero=1 a shape must not"):
            made({"x": x, "s": np.array(shape)})
