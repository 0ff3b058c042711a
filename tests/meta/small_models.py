"""Small models for the tests of promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

OPSET = 17


def model(
    nodes: Sequence[Any],
    inputs: dict[str, tuple[int, Sequence[int | str]]],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray[Any, Any]] | None = None,
) -> ModelProto:
    """A model from nodes; inputs: name -> (element type, shape). Outputs need no type."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def conv_net(channels: int = 16, size: int = 24) -> ModelProto:
    """Two convolutions with a residual, pooling and a classifier: every kind of fusion."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray[Any, Any]:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    constants = {
        "w1": weight(channels, 3, 3, 3),
        "b1": weight(channels, 1).reshape(-1),
        "w2": weight(channels, channels, 3, 3),
        "w3": weight(channels, 10),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1] * 4),
        helper.make_node("Add", ["c2", "r1"], ["s"], "residual"),
        helper.make_node("Relu", ["s"], ["r2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "w3"], ["m"], "classify"),
        helper.make_node("Softmax", ["m"], ["y"], "softmax"),
    ]
    return model(nodes, {"x": (TensorProto.FLOAT, ["n", 3, size, size])}, ["y"], constants)
