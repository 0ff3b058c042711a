"""One constant with several readers: a packed copy belongs to one use, never to the value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import braze
from tests.e2e.models import make, rand

node = helper.make_node
PRODUCT = node("MatMul", ["x", "w"], ["p"])
CONV = node("Conv", ["i", "w"], ["p"])
SQUARE = rand(24, 24, seed=1)
# by what shares the constant w: the nodes, the outputs, and w
MODELS: dict[str, tuple[list[Any], list[str], np.ndarray]] = {
    "epilogue": ([PRODUCT, node("Add", ["p", "w"], ["y"])], ["y"], SQUARE),
    "epilogue, twice": (
        [PRODUCT, node("Less", ["p", "w"], ["c"]), node("Where", ["c", "p", "w"], ["y"])],
        ["y"],
        rand(24, 24, seed=4),
    ),
    "epilogue, turned": (
        [PRODUCT, node("Transpose", ["w"], ["t"]), node("Mul", ["p", "t"], ["y"])],
        ["y"],
        SQUARE,
    ),
    "epilogue of the left side": (
        [node("MatMul", ["w", "x"], ["p"]), node("Add", ["p", "w"], ["y"])],
        ["y"],
        SQUARE,
    ),
    "an output": ([PRODUCT, node("Identity", ["w"], ["y"])], ["p", "y"], rand(24, 17)),
    "two packings": (
        [PRODUCT, node("Gemm", ["p", "w"], ["y"], transB=1)],
        ["y"],
        SQUARE,
    ),
    "left of one, right of one": ([PRODUCT, node("MatMul", ["w", "p"], ["y"])], ["y"], SQUARE),
    "both sides of one": (
        [node("MatMul", ["w", "w"], ["p"]), node("Add", ["p", "x"], ["y"])],
        ["y"],
        SQUARE,
    ),
    "convolution": ([CONV, node("Add", ["p", "w"], ["y"])], ["y"], rand(20, 20, 1, 1)),
    "convolution 3x3": (
        [node("Conv", ["i", "w"], ["p"], pads=[0, 0, 0, 0]), node("Mul", ["p", "w"], ["y"])],
        ["y"],
        rand(20, 20, 3, 3),
    ),
    "depthwise": (
        [node("Conv", ["i", "w"], ["p"], group=20), node("Add", ["p", "w"], ["y"])],
        ["y"],
        rand(20, 1, 1, 1),
    ),
    "convolution and product": (
        [
            node("MatMul", ["x", "w"], ["p"]),
            node("Unsqueeze", ["w", "ends"], ["f"]),
            node("Conv", ["j", "f"], ["y"]),
        ],
        ["p", "y"],
        SQUARE,
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("level", [0, 1, 3])
def test_every_reader_sees_the_constant(name: str, level: int) -> None:
    nodes, outputs, w = MODELS[name]
    shapes = {"x": (24, 24), "i": (20, 20, 5, 5), "j": (2, 24, 4, 4)}
    read = {i for n in nodes for i in n.input}
    inputs = {k: rand(*s, seed=2) for k, s in shapes.items() if k in read}
    weights = {"w": w} | ({"ends": np.array([2, 3])} if "ends" in read else {})
    model = make(nodes, {k: v.shape for k, v in inputs.items()}, outputs, weights)
    got = braze.build(model, optimization_level=level)(inputs)
    for output, want in zip(outputs, ReferenceEvaluator(model).run(None, inputs), strict=True):
        # sums of at most 180 float32 products of normal values
        np.testing.assert_allclose(got[output], want, rtol=2e-5, atol=2e-5)
