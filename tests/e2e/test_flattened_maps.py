"""Tokens of a feature map of dynamic height and width: flatten, attend, restore, as detectors do.

The sizes h' and w' of two strided convolutions are multiplied, used as a shape, an axis to sum
over, a range and a target of Expand; every level runs them at every shape of one engine.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import braze

SHAPES = [(1, 3, 5, 5), (2, 3, 21, 14), (3, 3, 32, 29)]
PROFILE = {"x": ((1, 3, 5, 5), (2, 3, 21, 14), (3, 3, 32, 32))}


def attention_over_a_map() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []

    def node(op: str, inputs: str, output: str, **attributes: object) -> None:
        nodes.append(helper.make_node(op, inputs.split(), [output], **attributes))

    strided = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    node("Conv", "x w0", "a", **strided)
    node("Relu", "a", "b")
    node("Conv", "b w1", "map", **strided)
    node("Shape", "map", "shape")
    for axis in range(4):
        node("Gather", f"shape {axis}", f"d{axis}")
    node("Mul", "d2 d3", "count")
    node("Concat", "d0 d1 count", "flat_shape", axis=0)
    node("Reshape", "map flat_shape", "flat")
    node("Transpose", "flat", "tokens", perm=[0, 2, 1])
    node("MatMul", "tokens q", "queries")
    node("MatMul", "queries flat", "scores")
    node("Softmax", "scores", "weights", axis=-1)
    node("MatMul", "weights tokens", "mixed")
    node("Squeeze", "count", "limit")
    node("Range", "start limit step", "places")
    node("Cast", "places", "numbers", to=onnx.TensorProto.FLOAT)
    node("Concat", "d0 minus count", "open", axis=0)
    node("Equal", "open minus", "is_open")
    node("Where", "is_open eight open", "wide")
    node("Unsqueeze", "numbers last", "row")
    node("Expand", "row wide", "positions")
    node("Transpose", "positions", "columns", perm=[0, 2, 1])
    node("Add", "mixed columns", "placed")
    node("Transpose", "placed", "turned", perm=[0, 2, 1])
    node("Concat", "d0 minus d2 d3", "image_shape", axis=0)
    node("Reshape", "turned image_shape", "image")
    node("Add", "image map", "y")
    node("Reshape", "placed rows", "z")
    constants = {
        "w0": (rng.standard_normal((8, 3, 3, 3)) / 5).astype(np.float32),
        "w1": (rng.standard_normal((8, 8, 3, 3)) / 8).astype(np.float32),
        "q": (rng.standard_normal((8, 8)) / 3).astype(np.float32),
        **{str(axis): np.array([axis]) for axis in range(4)},
        **{"minus": np.array([-1]), "eight": np.array([8]), "rows": np.array([-1, 8])},
        **{"start": np.array(0), "step": np.array(1), "last": np.array([0, 1])},
    }
    graph = helper.make_graph(
        nodes,
        "map",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info(k, onnx.TensorProto.FLOAT, None) for k in "yz"],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_flattened_map_of_any_size(level: int) -> None:
    model = attention_over_a_map()
    engine = braze.build(model, shapes=PROFILE, optimization_level=level, threads=1)
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        x = rng.standard_normal(shape).astype(np.float32)
        y, z = ReferenceEvaluator(model).run(None, {"x": x})
        got = engine({"x": x})
        # float32 sums of up to 72 products in another order, beside positions of up to 64
        np.testing.assert_allclose(got["y"], y, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(got["z"], z, rtol=1e-5, atol=1e-4)
