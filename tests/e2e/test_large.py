"""Networks of many nodes and ops of many inputs, from the model to the result."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import braze
from tests.e2e.models import make, rand


def deep(count: int) -> tuple[list, np.ndarray]:
    """A chain of elementwise ops and moves of elements, and what it makes of ones (4, 4)."""
    nodes, want, name = [], np.ones((4, 4)), "x"
    moves = ("Transpose", "Slice", "Reshape", "Flatten")
    for i in range(count):
        kind = ("Add", "Relu", "Mul", "Sigmoid", "Neg", "Abs", "Tanh", *moves)[i % 11]
        inputs = {"Add": [name, "k"], "Mul": ["k", name], "Reshape": [name, "shape"]}
        inputs["Slice"] = [name, "first", "last", "axes", "steps"]
        nodes.append(helper.make_node(kind, inputs.get(kind, [name]), [f"v{i}"]))
        name = f"v{i}"
        if kind in ("Add", "Mul"):
            want = want + 0.5 if kind == "Add" else want * 0.5
        elif kind == "Sigmoid":
            want = 1 / (1 + np.exp(-want))
        elif kind == "Relu":
            want = np.maximum(want, 0)
        elif kind == "Slice":
            want = want[::-1]
        elif kind == "Transpose":
            want = want.T
        elif kind not in moves:
            want = {"Neg": np.negative, "Abs": np.abs, "Tanh": np.tanh}[kind](want)
    return nodes, want


@pytest.mark.parametrize("level", [0, 1, 3])
def test_a_chain_deeper_than_the_stack(level: int) -> None:
    nodes, want = deep(1200 if level == 0 else 3300)
    weights = {
        "k": np.full((4, 4), 0.5, np.float32),
        "shape": np.array([4, 4]),
        "first": np.array([-1]),
        "last": np.array([-9]),
        "axes": np.array([0]),
        "steps": np.array([-1]),
    }
    model = make(nodes, {"x": [4, 4]}, [nodes[-1].output[0]], weights)
    engine = braze.build(model, target="cpu", optimization_level=level)
    (got,) = engine({"x": np.ones((4, 4), np.float32)}).values()
    # activations contract: errors of earlier steps die out
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize("kind", ["Sum", "Max", "Concat"])
def test_a_thousand_inputs(kind: str) -> None:
    names = [f"x{i}" for i in range(1000)]
    attributes = {"axis": 0} if kind == "Concat" else {}
    node = helper.make_node(kind, names, ["y"], **attributes)
    model = make([node], {n: [2, 3] for n in names}, ["y"])
    engine = braze.build(model, target="cpu", optimization_level=2)
    feeds = {n: rand(2, 3, seed=i) for i, n in enumerate(names)}
    arrays = [a.astype(np.float64) for a in feeds.values()]
    want = {"Sum": sum, "Max": np.maximum.reduce, "Concat": np.concatenate}[kind](arrays)
    # the sum: 1000 roundings of partial sums of size up to 100
    np.testing.assert_allclose(engine(feeds)["y"], want, 1e-5, 1e-4)


def test_pieces_in_another_order() -> None:
    count = 300
    parts = [f"s{i}" for i in range(count)]
    order = [i * 7 % count for i in range(count)]
    nodes = [
        helper.make_node("Split", ["x"], parts, axis=0),
        helper.make_node("Concat", [parts[i] for i in order], ["y"], axis=0),
    ]
    plan = braze.compile(make(nodes, {"x": [count, 4]}, ["y"], opset=12), target="cpu")
    assert len(plan.steps) <= count // 64 + 2
    x = rand(count, 4)
    np.testing.assert_array_equal(braze.Engine.from_plan(plan)({"x": x})["y"], x[order])


@pytest.mark.parametrize(("target", "level"), [("cpu", 1), ("cpu", 3), ("reference", 3)])
@pytest.mark.parametrize("batch", [2, "b"])
def test_an_unrolled_recurrence(target: str, level: int, batch: int | str) -> None:
    """h = tanh(h @ w + x[:, t]): one kernel however many steps, and the right x at each."""
    count = 40
    nodes, name = [], "h"
    weights = {"w": rand(8, 8) / 4, "one": np.array([1])}
    for t in range(count):
        weights[f"t{t}"] = np.array(t)
        nodes += [
            helper.make_node("Gather", ["x", f"t{t}"], [f"x{t}"], axis=1),
            helper.make_node("MatMul", [name, "w"], [f"m{t}"]),
            helper.make_node("Add", [f"m{t}", f"x{t}"], [f"a{t}"]),
            helper.make_node("Tanh", [f"a{t}"], [f"h{t}"]),
            helper.make_node("Unsqueeze", [f"h{t}", "one"], [f"u{t}"]),
        ]
        name = f"h{t}"
    nodes.append(helper.make_node("Concat", [f"u{t}" for t in range(count)], ["y"], axis=1))
    model = make(nodes, {"x": [batch, count, 8], "h": [batch, 8]}, ["y"], weights)
    shapes = {"x": ((1, count, 8), (2, count, 8), (4, count, 8)), "h": ((1, 8), (2, 8), (4, 8))}
    options = {} if batch == 2 else {"shapes": shapes}
    plan = braze.compile(model, target=target, optimization_level=level, **options)
    if target == "cpu":
        assert len(plan.kernels) <= 3
    engine = braze.Engine.from_plan(plan)
    x, h = rand(2, count, 8, seed=1), rand(2, 8, seed=2)
    want, state = [], h.astype(np.float64)
    for t in range(count):
        state = np.tanh(state @ weights["w"].astype(np.float64) + x[:, t])
        want.append(state)
    got = engine({"x": x, "h": h})["y"]
    # the recurrence contracts (weights of norm below 1): errors do not pile up
    np.testing.assert_allclose(got, np.stack(want, 1), 1e-5, 1e-5)
