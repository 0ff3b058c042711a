"""Three small float networks for onnxruntime's quantizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]


class Net:
    """Nodes and weights of a network from x to y."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.held: list[TensorProto] = []

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """A constant; by default its products keep the size of the data."""
        width = scale if scale is not None else (2 / max(1, np.prod(shape[1:]))) ** 0.5
        return self.const(self.rng.normal(0, width, shape).astype(np.float32))

    def const(self, array: Array) -> str:
        name = f"w{len(self.held)}"
        self.held.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        out = name or f"t{len(self.nodes)}"
        node = helper.make_node(op, list(inputs), [out], f"{op}_{len(self.nodes)}", **attributes)
        self.nodes.append(node)
        return out

    def model(self, shape: Sequence[int | str], out: Sequence[int | str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(out))], self.held,
        )  # fmt: skip
        opset = [helper.make_opsetid("", 17)]
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=opset, ir_version=9)
        )


def pictures() -> onnx.ModelProto:
    """Convolutions: strided, depthwise, residual, joined, pooled; a classifier behind them."""
    n = Net(1)
    x = n.add("Relu", n.add("Conv", "x", n.weight(16, 3, 3, 3), n.weight(16, scale=0.1),
                            strides=[2, 2], pads=[1, 1, 1, 1]))  # fmt: skip
    deep = n.add("Clip", n.add("Conv", x, n.weight(16, 1, 3, 3), n.weight(16, scale=0.1), group=16,
                               pads=[1, 1, 1, 1]), n.const(np.float32(0)),
                 n.const(np.float32(6)))  # fmt: skip
    point = n.add("Conv", deep, n.weight(16, 16, 1, 1), n.weight(16, scale=0.1))
    x = n.add("Relu", n.add("Add", x, point))
    pooled = n.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    mean = n.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = n.add("Concat", pooled, mean, axis=1)
    x = n.add("LeakyRelu", n.add("Conv", x, n.weight(24, 32, 3, 3), pads=[1, 1, 1, 1]), alpha=0.1)
    x = n.add("Flatten", n.add("GlobalAveragePool", x))
    n.add("Gemm", x, n.weight(10, 24), n.weight(10, scale=0.1), transB=1, name="y")
    return n.model(["n", 3, 18, 20], ["n", 10])


def layers() -> onnx.ModelProto:
    """Matrix products with gates, sums and a softmax."""
    n = Net(2)
    x = n.add("Relu", n.add("Add", n.add("MatMul", "x", n.weight(24, 40, scale=0.25)),
                            n.weight(40, scale=0.1)))  # fmt: skip
    gate = n.add("Sigmoid", n.add("MatMul", x, n.weight(40, 40, scale=0.2)))
    x = n.add("Mul", x, gate)
    n.add("Softmax", n.add("MatMul", x, n.weight(40, 12, scale=0.2)), axis=-1, name="y")
    return n.model(["n", 5, 24], ["n", 5, 12])


def attention() -> onnx.ModelProto:
    """A transformer's block of two heads over eight positions."""
    n = Net(3)
    heads = n.const(np.array([0, 8, 2, 16]))
    parts = []
    for _ in range(3):
        part = n.add("Add", n.add("MatMul", "x", n.weight(32, 32, scale=0.2)),
                     n.weight(32, scale=0.1))  # fmt: skip
        parts.append(n.add("Transpose", n.add("Reshape", part, heads), perm=[0, 2, 1, 3]))
    keys = n.add("Transpose", parts[1], perm=[0, 1, 3, 2])
    score = n.add("Mul", n.add("MatMul", parts[0], keys), n.const(np.float32(0.25)))
    mixed = n.add("MatMul", n.add("Softmax", score, axis=-1), parts[2])
    mixed = n.add("Reshape", n.add("Transpose", mixed, perm=[0, 2, 1, 3]),
                  n.const(np.array([0, 8, 32])))  # fmt: skip
    x = n.add("Add", "x", n.add("MatMul", mixed, n.weight(32, 32, scale=0.2)))
    x = n.add("LayerNormalization", x, n.weight(32, scale=1.0), n.weight(32, scale=0.1))
    inner = n.add("Relu", n.add("MatMul", x, n.weight(32, 64, scale=0.2)))
    n.add("Add", x, n.add("MatMul", inner, n.weight(64, 32, scale=0.1)), name="y")
    return n.model(["n", 8, 32], ["n", 8, 32])


NETWORKS: Mapping[str, tuple[Any, tuple[int, ...]]] = {
    "pictures": (pictures, (3, 18, 20)), "layers": (layers, (5, 24)),
    "attention": (attention, (8, 32)),
}  # fmt: skip


def data(name: str, batch: int, seed: int = 0) -> Array:
    """Inputs of a network."""
    shape = (batch, *NETWORKS[name][1])
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)
