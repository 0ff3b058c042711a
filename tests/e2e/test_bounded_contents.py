"""(min, opt, max) of the content of integer inputs: held to in runs, and what follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import braze
from braze.core.errors import BrazeError, DTypeError, ProfileError, ShapeError
from tests.e2e.test_data_sizes import INT, F, model, node

RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 6)).astype(np.float32)
INT32 = TensorProto.INT32


def engines(net: Any, levels: tuple[int, ...] = (1, 2), **options: Any) -> list[braze.Engine]:
    found = [braze.build(net, threads=1, optimization_level=k, **options) for k in levels]
    return [*found, braze.build(net, target="reference", optimization_level=2, **options)]


def agree(
    net: Any, feeds: list[dict[str, np.ndarray]], levels: tuple[int, ...] = (1, 2), **options: Any
) -> list[braze.Engine]:
    """Engines whose runs give what the reference of ONNX gives."""
    reference, made = ReferenceEvaluator(net), engines(net, levels, **options)
    for feed in feeds:
        want = reference.run(None, feed)
        for engine in made:
            for got, expected in zip(engine(feed).values(), want, strict=True):
                assert got.shape == np.shape(expected), feed
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    return made


def refused(made: list[braze.Engine], feed: dict[str, np.ndarray], match: str) -> None:
    for engine in made:
        with pytest.raises(ProfileError, match=match):
            engine(feed)


def ints(*values: int, dtype: Any = np.int64) -> np.ndarray:
    return np.array(values, dtype)


def expanding(kind: int = INT) -> onnx.ModelProto:
    """y: x of one row as many times as `n` says, z: n itself and a half."""
    nodes = [
        node("Cast", "n", "wide", to=INT), node("Concat", "wide six", "target", axis=0),
        node("Expand", "x target", "y0"), node("Relu", "y0", "y"),
        node("Cast", "n", "nf", to=F), node("Mul", "nf half", "z"),
    ]  # fmt: skip
    given = {"six": ints(6), "half": np.array([0.5], np.float32)}
    return model(nodes, [("x", F, [1, 6]), ("n", kind, [1])], [("y", F), ("z", F)], **given)


@pytest.mark.parametrize("kind, dtype", [(INT, np.int64), (INT32, np.int32)])
def test_a_vector_that_is_a_size_and_data(kind: int, dtype: Any) -> None:
    feeds = [{"x": X[:1], "n": ints(n, dtype=dtype)} for n in (2, 1, 5, 8)]
    made = agree(expanding(kind), feeds, (0, 3), values={"n": ((1,), (4,), (8,))})
    for n in (0, 9, -3):
        found = rf"input 'n' holds {n} at element 0, outside 1\.\.8 of profile 0; pass a value"
        refused(made, {"x": X[:1], "n": ints(n, dtype=dtype)}, found)
    for engine in made:
        assert "n_0 1..4..8" in engine.inspect() and "content (n_0) as in" in engine.inspect()
        assert engine.plan.profiles[0].arena_bytes < 1 << 12
        loaded = type(engine).from_bytes(engine.to_bytes()) if engine is made[0] else engine
        refused([loaded], {"x": X[:1], "n": ints(9, dtype=dtype)}, "outside")


def test_reshape_of_either_sign_beside_an_open_size() -> None:
    nodes = [node("Reshape", "x s", "y0"), node("Relu", "y0", "y")]
    net = model(nodes, [("x", F, ["rows", 6]), ("s", INT, [3])], [("y", F)])
    targets = [(2, 3, 4), (-1, 2, 2), (0, -1, 3), (4, 3, -1), (0, 6, 1), (2, -1, 4)]
    options: dict[str, Any] = {"values": {"s": ((-1, -1, -1), (2, 3, 4), (4, 6, 4))}}
    feeds = [{"x": X, "s": ints(*t)} for t in targets]
    made = agree(net, feeds, shapes={"x": ((1, 6), (4, 6), (8, 6))}, **options)
    refused(made, {"x": X, "s": ints(2, -2, 3)}, "holds -2 at element 1, outside -1..6")
    with pytest.raises(BrazeError, match="element count"):
        made[0]({"x": X, "s": ints(2, 2, 2)})
    small = [{"x": X[:2], "s": ints(0, -1, 3)}, {"x": X[:1], "s": ints(-1, 3, 2)}]
    agree(net, small, dims={"rows": (1, 4, 8)}, **options)


def test_elements_that_are_fixed_beside_one_that_is_not() -> None:
    net = model([node("Reshape", "x s", "y")], [("x", F, ["n", 4]), ("s", INT, [2])], [("y", F)])
    made = agree(net, [{"x": RNG.random((n, 4), np.float32), "s": ints(2 * n, 2)} for n in (1, 3)],
                 dims={"n": (1, 2, 4)}, values={"s": ((2, 2), (4, 2), (8, 2))})  # fmt: skip
    refused(made, {"x": RNG.random((3, 4), np.float32), "s": ints(4, 3)}, "3 at element 1")
    fixed = braze.build(net, dims={"n": (1, 2, 4)}, values={"s": [[(4, 2)] * 3] * 2})
    assert fixed.plan.inputs[1].value == (4, 2) and not fixed.plan.inputs[1].content


def test_scalars() -> None:
    nodes = [node("Range", "zero n one", "r"), node("Cast", "r", "y", to=F)]
    given = {"zero": np.array(0, np.int64), "one": np.array(1, np.int64)}
    net = model(nodes, [("n", INT, [])], [("y", F)], **given)
    made = agree(net, [{"n": np.array(n, np.int64)} for n in (3, 0, 7)], values={"n": (0, 4, 7)})
    refused(made, {"n": np.array(8, np.int64)}, "input 'n' holds 8")
    nodes = [node("TopK", "x k", "v i")]
    net = model(nodes, [("x", F, [4, 6]), ("k", INT, [1])], [("v", F), ("i", INT)])
    made = agree(net, [{"x": X, "k": ints(k)} for k in (1, 6, 3)], values={"k": ([1], [2], [6])})
    refused(made, {"x": X, "k": ints(0)}, "input 'k' holds 0")


@pytest.mark.parametrize("op", ["ConstantOfShape", "Slice", "Resize", "Tile", "Pad", "Concat"])
def test_other_ops(op: str) -> None:
    picture = X.reshape(1, 1, 4, 6)
    data, runs, corners, attributes, names = {
        "ConstantOfShape": (None, [(2, 3), (0, 4)], ((0, 1), (2, 2), (3, 4)), {}, "s"),
        "Slice": (X, [(1, -2), (-3, 4), (0, 0)], ((-3, -2), (1, 2), (4, 6)), {}, "x zeros s"),
        "Resize": (picture, [(1, 1, 8, 9), (1, 1, 2, 12)], ((1, 1, 1, 6), (1, 1, 8, 9),
                   (1, 1, 9, 12)), {"mode": "linear"}, "x   s"),
        "Tile": (X, [(2, 1), (1, 3)], ((1, 1), (2, 1), (2, 3)), {}, "x s"),
        "Pad": (X, [(1, 0, 2, 3), (0, 0, 0, 0)], ((0,) * 4, (1,) * 4, (2, 1, 2, 3)), {}, "x s"),
        "Concat": (X, [(3,), (5,)], ((2,), (3,), (6,)), {}, ""),
    }[op]  # fmt: skip
    if op == "Concat":  # arithmetic between the input and what reads it
        nodes = [node("Mul", "s two", "double"), node("Concat", "double left", "t", axis=0),
                 node("Expand", "row t", "y")]  # fmt: skip
    else:
        nodes = [node(op, "", "y", **attributes)]
        nodes[0].input.extend(names.split(" "))
    extra = {"zeros": ints(0, 0), "two": ints(2), "left": ints(6), "row": X[:1]}
    used = {k: v for k, v in extra.items() if any(k in n.input for n in nodes)}
    inputs = [("s", INT, [len(runs[0])])]
    inputs += [("x", F, list(data.shape))] if data is not None and op != "Concat" else []
    net = model([*nodes, node("Abs", "y", "z")], inputs, [("y", F), ("z", F)], 18, **used)
    feeds = [{"s": ints(*r), **({"x": data} if len(inputs) > 1 else {})} for r in runs]
    made = agree(net, feeds, values={"s": corners})
    over = tuple(high + 1 for high in corners[2])
    refused(made, {**feeds[0], "s": ints(*over)}, "at element 0, outside")


def test_profiles_are_chosen_by_content() -> None:
    feeds = [{"x": X[:1], "n": ints(n)} for n in (2, 30, 8, 21, 1)]
    made = agree(expanding(), feeds, values={"n": [((1,), (4,), (8,)), ((20,), (20,), (32,))]})
    refused(made, {"x": X[:1], "n": ints(9)},
            r"none of the 2 profiles; profile 0: input 'n' holds 9 at element 0, outside 1\.\.8; "
            r"profile 1: input 'n' holds 9 at element 0, outside 20\.\.32")  # fmt: skip
    for engine in made:
        second = engine.create_context(profile=1)
        assert second.run({"x": X[:1], "n": ints(25)})["y"].shape == (25, 6)
        with pytest.raises(ProfileError, match="holds 2 at element 0, outside 20"):
            second.run({"x": X[:1], "n": ints(2)})
    both = agree(
        model([node("Reshape", "x s", "y")], [("x", F, ["n", 6]), ("s", INT, [2])], [("y", F)]),
        [{"x": X, "s": ints(8, 3)}, {"x": np.tile(X, (5, 1)), "s": ints(6, 20)}],
        shapes=[{"x": ((1, 6), (4, 6), (8, 6))}, {"x": ((9, 6), (20, 6), (32, 6))}],
        values={"s": [((1, 1), (8, 3), (8, 8)), ((1, 9), (6, 20), (20, 20))]},
    )
    refused(both, {"x": X, "s": ints(2, 12)}, "none of the 2 profiles")


def test_within_bodies() -> None:
    """A bounded 0 copies an axis in a body as it does outside, and a trip count may be bounded."""
    inner = helper.make_graph(
        [node("Reshape", "x s", "r"), node("Relu", "r", "then")], "t", [],
        [helper.make_tensor_value_info("then", F, None)])  # fmt: skip
    other = helper.make_graph(
        [node("Reshape", "x s", "q"), node("Neg", "q", "else")], "e", [],
        [helper.make_tensor_value_info("else", F, None)])  # fmt: skip
    nodes = [node("If", "c", "y", then_branch=inner, else_branch=other)]
    inputs = [("c", TensorProto.BOOL, []), ("x", F, [4, 6]), ("s", INT, [2])]
    net = model(nodes, inputs, [("y", F)])
    for low, targets in ((0, [(4, 6), (0, 6), (8, 3)]), (-1, [(0, -1), (2, 12), (-1, 4)])):
        feeds = [{"c": np.array(c), "x": X, "s": ints(*t)} for t in targets for c in (True, False)]
        made = agree(net, feeds, values={"s": ((low, low), (4, 6), (8, 12))})
        refused(made, {**feeds[0], "s": ints(24, 1)}, "input 's' holds 24")


def test_a_bounded_trip_count() -> None:
    body = helper.make_graph(
        [node("Add", "a one", "b"), node("Identity", "b", "out"), node("Identity", "go", "more")],
        "body",
        [helper.make_tensor_value_info("i", INT, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("a", F, [6])],
        [helper.make_tensor_value_info("more", TensorProto.BOOL, []),
         helper.make_tensor_value_info("b", F, [6]), helper.make_tensor_value_info("out", F, [6])],
    )  # fmt: skip
    one = {"one": np.float32([1])}
    nodes = [node("Loop", "", "last all", body=body)]
    nodes[0].input.extend(["m", "", "x"])
    net = model(nodes, [("m", INT, []), ("x", F, [6])], [("last", F), ("all", F)], **one)
    made = engines(net, values={"m": (0, 2, 5)})
    for m in (1, 0, 5):
        for engine in made:
            got = engine({"m": np.array(m, np.int64), "x": X[0]})
            steps = X[0] + np.arange(1, m + 1, dtype=np.float32)[:, None]
            np.testing.assert_allclose(got["all"], steps.reshape(m, 6), rtol=1e-6)
            np.testing.assert_allclose(got["last"], X[0] + m, rtol=1e-6)
    refused(made, {"m": np.array(6, np.int64), "x": X[0]}, "input 'm' holds 6")


def test_an_input_that_decides_nothing_is_held_to_its_bounds() -> None:
    net = model([node("Cast", "n", "f", to=F), node("Add", "f x", "y")],
                [("n", INT32, [6]), ("x", F, [4, 6])], [("y", F)])  # fmt: skip
    values = {"n": ((-5,) * 6, (0,) * 6, (5,) * 6)}
    made = agree(net, [{"n": ints(*range(-3, 3), dtype=np.int32), "x": X}], values=values)
    refused(made, {"n": ints(0, 0, 7, 0, 0, 0, dtype=np.int32), "x": X}, "holds 7 at element 2")


def test_bounds_that_make_no_sense() -> None:
    net = expanding()
    for bad, error, match in (
        (((3,), (2,), (5,)), ProfileError, "min <= opt <= max"),
        (((1, 1), (2, 2), (5, 5)), ShapeError, "size 1 on axis 0"),
        (((0.5,), (1,), (2,)), DTypeError, "integers"),
        ([((1,), (2,), (3,))] * 3, ProfileError, "2 profiles but another input has 3"),
    ):
        with pytest.raises(error, match=match):
            braze.build(net, shapes={"x": [((1, 6),) * 3] * 2}, values={"n": bad})
    with pytest.raises(ProfileError, match="integers may have"):
        braze.build(net, values={"x": ([[0] * 6],) * 3})
    with pytest.raises(ProfileError, match="-2147483648 <= min"):
        braze.build(expanding(INT32), values={"n": ((1,), (2,), (1 << 40,))})
    wide = model([node("Abs", "n", "y")], [("n", INT, [65])], [("y", INT)])
    with pytest.raises(ProfileError, match="65 elements"):
        braze.build(wide, values={"n": ((0,) * 65, (1,) * 65, (2,) * 65)})
