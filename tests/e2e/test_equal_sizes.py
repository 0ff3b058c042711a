"""Sizes of different names that meet: equal in the run, or 1 in the build, or told in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import braze
from tests.e2e.test_data_sizes import INT, F, model, node

TARGETS = ["cpu", "reference"]
MUST = "sizes batch and unk__12 must be equal (one that broadcasts must be 1 in the build)"


def added(op: str = "Add") -> Any:
    return model([node(op, "a b", "y")],
                 [("a", F, ["batch", 3, 3]), ("b", F, ["unk__12", 3, 3])], [("y", F)])  # fmt: skip


def rows(a: int, b: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(a + 10 * b)
    return {n: rng.random((k, 3, 3), np.float32) for n, k in (("a", a), ("b", b))}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["Add", "MatMul"])
def test_a_run_with_other_sizes_is_told_which_and_where(target: str, op: str) -> None:
    engine = braze.build(added(op), target=target, optimization_level=1)
    for feed in (rows(2, 2), rows(1, 1)):
        want = feed["a"] + feed["b"] if op == "Add" else feed["a"] @ feed["b"]
        # sums of three products of numbers below 1, in float32
        np.testing.assert_allclose(engine(feed)["y"], want, rtol=1e-6)
    for a, b in ((2, 1), (1, 2), (2, 3)):
        with pytest.raises(braze.ShapeError) as caught:
            engine(rows(a, b))
        told = str(caught.value)
        assert told.startswith(f"node {op.lower()!r}, ")
        assert f"{MUST}, but they are {a} and {b} here" in told
        assert told.endswith("; pass other shapes, or build for these shapes")


@pytest.mark.parametrize("target", TARGETS)
def test_a_size_that_the_build_fixes_to_1_broadcasts(target: str) -> None:
    engine = braze.build(added(), target=target, optimization_level=1,
                         dims={"batch": (1, 2, 8), "unk__12": 1})  # fmt: skip
    for a in (1, 2, 5):
        feed = rows(a, 1)
        np.testing.assert_array_equal(engine(feed)["y"], feed["a"] + feed["b"])


def test_opt_shapes_that_no_run_can_have_are_refused() -> None:
    with pytest.raises(braze.ProfileError) as caught:
        braze.compile(added(), dims={"batch": (1, 2, 8), "unk__12": (1, 1, 8)})
    assert f"{MUST}, but they are 2 and 1 at the opt shapes of profile 0" in str(caught.value)
    shapes = {"a": [((1, 3, 3), (k, 3, 3), (8, 3, 3)) for k in (2, 4)],
              "b": [((1, 3, 3), (2, 3, 3), (8, 3, 3))] * 2}  # fmt: skip
    with pytest.raises(braze.ProfileError, match="4 and 2 at the opt shapes of profile 1"):
        braze.compile(added(), shapes=shapes)


def test_opt_shapes_that_are_guessed_refuse_nothing() -> None:
    braze.compile(added(), dims={"batch": (1, 2, 8)}, target="reference")


@pytest.mark.parametrize("target", TARGETS)
def test_an_expansion_by_data_tells_both_sizes(target: str) -> None:
    made = model([node("Expand", "a s", "y")],
                 [("a", F, ["batch", 3]), ("s", INT, [2])], [("y", F)])  # fmt: skip
    engine = braze.build(made, target=target, optimization_level=1)
    a = np.ones((2, 3), np.float32)
    assert engine({"a": a, "s": np.array([1, 3])})["y"].shape == (2, 3)
    with pytest.raises(braze.ShapeError, match=r"node 'expand' .* but they are 4 and 2 here"):
        engine({"a": a, "s": np.array([4, 3])})


@pytest.mark.parametrize("target", TARGETS)
def test_the_size_of_a_first_row_asks_expand_for_what_there_is(target: str) -> None:
    """Exporters write index_add as an Expand to the shape of x[:1], a size of 0 or 1."""
    nodes = [node("Slice", "x zero one zero", "first"), node("Shape", "first", "shape"),
             node("Expand", "w shape", "y")]  # fmt: skip
    inputs = [("x", F, ["N", 4]), ("w", F, ["M", 4])]
    engine = braze.build(model(nodes, inputs, [("y", F)], zero=np.array([0]), one=np.array([1])),
                         target=target, optimization_level=1)  # fmt: skip
    for n, m in ((5, 3), (1, 1), (2, 0), (0, 0)):
        w = np.arange(4 * m, dtype="f").reshape(m, 4)
        np.testing.assert_array_equal(engine({"x": np.ones((n, 4), "f"), "w": w})["y"], w)
    with pytest.raises(braze.ShapeError, match="a size asked for that is not 1"):
        engine({"x": np.ones((0, 4), "f"), "w": np.ones((3, 4), "f")})


ENDS = {"last": np.array([-1]), "far": np.array([2**63 - 1]), "two": np.array([-2]),
        "zero": np.array([0]), "one": np.array([1])}  # fmt: skip


def ones_of(op: str, inputs: str, first: str = "last far", **sizes: Any) -> Any:
    """`op` of a and the last (or first) rows of b, w."""
    nodes = [node("Slice", f"b {first} zero", "w"), node(op, inputs, "y")]
    a, b = sizes.get("a", ["N", 2, 2]), sizes.get("b", ["N", 2, 2])
    used = {k: v for k, v in ENDS.items() if k in (*first.split(), "zero")}
    kind = TensorProto.BOOL if op == "Less" else F
    return model(nodes, [("a", F, a), ("b", F, b)], [("y", kind)], **used)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("first", ["last far", "zero one"])
def test_one_row_of_an_axis_broadcasts_to_it(target: str, first: str) -> None:
    """x / x[-1:]: the size of the row is 0 where the axis is empty, and 1 elsewhere."""
    part = slice(-1, None) if first == "last far" else slice(0, 1)
    for op, want in (("Div", np.divide), ("Less", np.less), ("MatMul", np.matmul)):
        for inputs in ("a w", "w a"):
            made = ones_of(op, inputs, first)
            engine = braze.build(made, target=target, optimization_level=1)
            for n in (0, 1, 2, 7):
                feed = {k: 1 + np.random.default_rng(n).random((n, 2, 2), np.float32) for k in "ab"}
                pair = {"a": feed["a"], "w": feed["b"][part]}
                expected = want(*(pair[k] for k in inputs.split()))
                # two products of numbers below 2 at most
                np.testing.assert_allclose(engine(feed)["y"], expected, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_one_row_of_an_axis_of_the_run_broadcasts_to_it(target: str) -> None:
    """Where only the run knows how long the axis is."""
    nodes = [node("Compress", "x c", "b", axis=0), node("Slice", "b last far zero", "w"),
             node("Div", "b w", "y")]  # fmt: skip
    inputs = [("x", F, [4, 3]), ("c", TensorProto.BOOL, [4])]
    used = {k: ENDS[k] for k in ("last", "far", "zero")}
    engine = braze.build(model(nodes, inputs, [("y", F)], **used), target=target,
                         optimization_level=1)  # fmt: skip
    x = 1 + np.random.default_rng(0).random((4, 3), np.float32)
    for taken in ([1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]):
        c = np.array(taken, bool)
        got = engine({"x": x, "c": c})["y"]
        np.testing.assert_allclose(got, x[c] / x[c][-1:], rtol=1e-6)  # one division


@pytest.mark.parametrize("target", TARGETS)
def test_one_row_of_another_axis_must_be_there(target: str) -> None:
    made = ones_of("Add", "a w", a=["M", 2, 3], b=["N", 1, 3])
    engine = braze.build(made, target=target, optimization_level=1)
    for m, n in ((3, 1), (2, 5), (1, 4), (0, 2), (0, 0)):
        a, b = np.ones((m, 2, 3), "f"), np.arange(3 * n, dtype="f").reshape(n, 1, 3)
        np.testing.assert_array_equal(engine({"a": a, "b": b})["y"], a + b[-1:])
    with pytest.raises(braze.ShapeError, match="is empty, the size M that it meets and 0 must be"):
        engine({"a": np.ones((3, 2, 3), "f"), "b": np.ones((0, 1, 3), "f")})


def test_two_rows_do_not_broadcast() -> None:
    engine = braze.build(ones_of("Div", "a w", "two far"), target="reference")
    for n in (1, 2):
        feed = {k: np.ones((n, 2, 2), "f") for k in "ab"}
        np.testing.assert_array_equal(engine(feed)["y"], feed["a"])
    with pytest.raises(braze.ShapeError, match="but they are 3 and 2 here"):
        engine({k: np.ones((3, 2, 2), "f") for k in "ab"})
