"""BERT-base as an ONNX model whose linear layers multiply float8_e4m3fn, with weights from a seed.

Data and weights of a layer have one scale each, as `ranges` says; between layers all is float16:
attention, norms and residuals. Without ranges the same network is plain float32 or float16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
WIDTH, HEADS, INNER, LAYERS, WORDS = 768, 12, 3072, 12, 30522
LARGEST: Final = 448.0  # of float8_e4m3fn
OPSET: Final = 20


@dataclass
class _Network:
    """An ONNX graph under construction. real: the element type between layers; largest: the
    magnitudes of what linear layers read, in order, or None to multiply `real`."""

    real: int
    largest: Sequence[float] | None
    draw: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    read: list[str] = field(default_factory=list)  # by linear layers

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, array: Array, to: int | None = None) -> str:
        name = f"constant{len(self.weights)}"
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(self.real if to is None else to))
        self.weights.append(numpy_helper.from_array(array.astype(kind), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values), TensorProto.INT64)

    def single(self, number: float) -> str:
        return self.constant(np.array(number), TensorProto.FLOAT)

    def codes(self, array: Array) -> str:
        """A constant of 8-bit floats."""
        name = f"constant{len(self.weights)}"
        raw = array.astype(ml_dtypes.float8_e4m3fn).tobytes()
        kind = TensorProto.FLOAT8E4M3FN
        self.weights.append(helper.make_tensor(name, kind, array.shape, raw, raw=True))
        return name

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """x @ w + b."""
        w = self.draw.standard_normal((inputs, outputs)).astype(np.float32) / inputs**0.5
        b = self.draw.standard_normal(outputs) * 0.02
        self.read.append(x)
        if self.largest is None:
            y = self.add("MatMul", [x, self.constant(w)])
            return self.add("Add", [y, self.constant(b)])
        y = self.add("MatMul", [self.quantized(x), self.weight(w)])
        y = self.add("Add", [y, self.constant(b, TensorProto.FLOAT)])
        return self.add("Cast", [y], to=self.real)

    def quantized(self, x: str) -> str:
        assert self.largest is not None
        largest = self.largest[len(self.read) - 1]
        scale, zero = self.single(largest / LARGEST), self.codes(np.zeros(()))
        wide = self.add("Cast", [x], to=TensorProto.FLOAT)
        q = self.add("QuantizeLinear", [wide, scale, zero])
        return self.add("DequantizeLinear", [q, scale, zero])

    def weight(self, w: Array) -> str:
        scale = np.float32(np.abs(w).max() / LARGEST)
        return self.add("DequantizeLinear", [self.codes(w / scale), self.single(float(scale))])

    def norm(self, x: str) -> str:
        one = self.constant(1 + 0.1 * self.draw.standard_normal(WIDTH))
        zero = self.constant(0.1 * self.draw.standard_normal(WIDTH))
        return self.add("LayerNormalization", [x, one, zero], epsilon=1e-12)

    def attention(self, qkv: str, batch: int, tokens: int) -> str:
        shape = self.integers(batch, tokens, HEADS, WIDTH // HEADS)
        thirds = self.integers(WIDTH, WIDTH, WIDTH)
        names = [f"{qkv}.{c}" for c in "qkv"]
        self.nodes.append(helper.make_node("Split", [qkv, thirds], names, axis=2))
        heads = [self.add("Reshape", [n, shape]) for n in names]
        perms = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        q, k, v = (self.add("Transpose", [h], perm=p) for h, p in zip(heads, perms, strict=True))
        score = self.add("Mul", [self.add("MatMul", [q, k]), self.constant(np.array(0.125))])
        y = self.add("MatMul", [self.add("Softmax", [score], axis=-1), v])
        y = self.add("Transpose", [y], perm=[0, 2, 1, 3])
        return self.add("Reshape", [y, self.integers(batch, tokens, WIDTH)])


def bert_base(
    batch: int,
    tokens: int,
    largest: Sequence[float] | None = None,
    real: int = TensorProto.FLOAT16,
    layers: int = LAYERS,
) -> tuple[onnx.ModelProto, list[str]]:
    """The model, from token ids to the last hidden state, and what its linear layers read."""
    net = _Network(real, largest)
    words = net.constant(net.draw.standard_normal((WORDS, WIDTH)).astype(np.float32))
    places = net.constant(net.draw.standard_normal((tokens, WIDTH)) * 0.5)
    x = net.norm(net.add("Add", [net.add("Gather", [words, "input"]), places]))
    for _ in range(layers):
        y = net.attention(net.linear(x, WIDTH, 3 * WIDTH), batch, tokens)
        x = net.norm(net.add("Add", [net.linear(y, WIDTH, WIDTH), x]))
        y = net.linear(net.add("Gelu", [net.linear(x, WIDTH, INNER)]), INNER, WIDTH)
        x = net.norm(net.add("Add", [y, x]))
    net.nodes.append(helper.make_node("Identity", [x], ["output"]))
    graph = helper.make_graph(
        net.nodes, "bert_base",
        [helper.make_tensor_value_info("input", TensorProto.INT64, [batch, tokens])],
        [helper.make_tensor_value_info("output", real, [batch, tokens, WIDTH])], net.weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return model, net.read
