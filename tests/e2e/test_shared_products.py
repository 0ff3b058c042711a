"""Products that read the steps of a sequence, as unrolled recurrences do, are one kernel."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from braze.api import compile as plan_of
from braze.fusion.sharing import MIN_KERNELS

FORMS = ("gather", "slice", "split")
STEPS, WIDTH, UNITS = MIN_KERNELS + 4, 20, 24


def unrolled(form: str, steps: int, batch: int | str = 3) -> onnx.ModelProto:
    """tanh(x[:, t] @ w) of every step t."""
    weight = np.random.default_rng(0).normal(size=(WIDTH, UNITS)).astype(np.float32) / 5
    held = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array([1]), "one")]
    nodes = []
    if form == "split":
        parts = [f"p{t}" for t in range(steps)]
        nodes.append(helper.make_node("Split", ["x"], parts, axis=1, num_outputs=steps))
    for t in range(steps):
        if form == "gather":
            held.append(numpy_helper.from_array(np.array(t), f"i{t}"))
            nodes.append(helper.make_node("Gather", ["x", f"i{t}"], [f"s{t}"], axis=1))
        else:
            if form == "slice":
                held.append(numpy_helper.from_array(np.array([t]), f"b{t}"))
                held.append(numpy_helper.from_array(np.array([t + 1]), f"e{t}"))
                ends = ["x", f"b{t}", f"e{t}", "one"]
                nodes.append(helper.make_node("Slice", ends, [f"p{t}"]))
            nodes.append(helper.make_node("Squeeze", [f"p{t}", "one"], [f"s{t}"]))
        nodes.append(helper.make_node("MatMul", [f"s{t}", "w"], [f"m{t}"]))
        nodes.append(helper.make_node("Tanh", [f"m{t}"], [f"y{t}"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, steps, WIDTH])
    outputs = [onnx.ValueInfoProto(name=f"y{t}") for t in range(steps)]
    graph = helper.make_graph(nodes, "steps", [x], outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def data(batch: int, steps: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(batch, steps, WIDTH)).astype(np.float32)


def kernels(form: str, steps: int, target: str = "cpu") -> int:
    """How many kernels the plan has code of."""
    return len(plan_of(unrolled(form, steps), target=target, optimization_level=1).modules)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("form", FORMS)
def test_products_of_steps_are_one_kernel(form: str, target: str) -> None:
    few = kernels(form, STEPS, target)
    assert few == kernels(form, 2 * STEPS, target) < MIN_KERNELS


@pytest.mark.parametrize("form", FORMS)
def test_a_few_products_keep_the_places_that_they_know(form: str) -> None:
    assert kernels(form, MIN_KERNELS - 1) >= MIN_KERNELS - 1


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_they_have_the_bits_of_products_of_their_own(form: str, batch: int, level: int) -> None:
    """Steps of 20 numbers begin at no multiple of a vector, or of its elements' bytes by 64."""
    x = data(batch, STEPS)
    shapes = {"x": x.shape}
    options = {"optimization_level": level, "threads": 1}
    whole = braze.build(unrolled(form, STEPS, "b"), shapes=shapes, **options)({"x": x})
    alone = braze.build(unrolled(form, 1, batch), **options)
    for t in range(STEPS):
        one = alone({"x": np.ascontiguousarray(x[:, t : t + 1])})["y0"]
        assert whole[f"y{t}"].tobytes() == one.tobytes()
        weight = np.random.default_rng(0).normal(size=(WIDTH, UNITS)).astype(np.float32) / 5
        want = np.tanh(x[:, t].astype(np.float64) @ weight.astype(np.float64))
        # sums of 20 products and tanh: some units of 6e-8
        np.testing.assert_allclose(whole[f"y{t}"], want, rtol=0, atol=2e-6)


def test_targets_that_want_known_places_have_them() -> None:
    """Kernels of GPUs read rows and boxes from where they know that they are."""
    pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")
    assert kernels("gather", STEPS, "cuda:sm_90") >= STEPS
