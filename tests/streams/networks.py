"""Networks that run in a loop with what they return: a voice detector and a decoder.

Both take any number of steps at once, so that one long run can be compared with many short ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
SAMPLES, UNITS = 256, 64
VOCABULARY, WIDTH, HEADS, LAYERS = 50, 32, 2, 2
LAYER_STATES = ("k", "v")


class Writer:
    """A graph on its way to a model."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.held: list[onnx.TensorProto] = []

    def node(self, op: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> str:
        """Its first output, which is named after the node where no name is given."""
        made = list(outputs or (f"{op}{len(self.nodes)}",))
        self.nodes.append(helper.make_node(op, list(inputs), made, made[0], **attributes))
        return made[0]

    def floats(self, *shape: int) -> str:
        """Weights that keep results near their inputs."""
        terms = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        return self.values((self.rng.uniform(-1, 1, shape) * 1.5 * terms**-0.5).astype("f4"))

    def values(self, array: Any) -> str:
        """A constant."""
        name = f"c{len(self.held)}"
        self.held.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def model(
        self, inputs: Mapping[str, tuple[str, Sequence[Any]]], outputs: Mapping[str, int]
    ) -> onnx.ModelProto:
        """inputs: name -> (element type, sizes); outputs: name -> rank, all float32."""

        def info(name: str, dtype: str, shape: Sequence[Any]) -> onnx.ValueInfoProto:
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            return helper.make_tensor_value_info(name, kind, shape)

        graph = helper.make_graph(
            self.nodes,
            "stream",
            [info(name, *rest) for name, rest in inputs.items()],
            [info(name, "f4", [None] * rank) for name, rank in outputs.items()],
            self.held,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def detector() -> onnx.ModelProto:
    """Chunks [t, 1, samples] and an LSTM's states to [t, 1, 1] and the states behind them."""
    w = Writer(0)
    x = w.node("Conv", ["x", w.floats(16, 1, 64), w.floats(16)], strides=[32])
    x = w.node("Conv", [w.node("Relu", [x]), w.floats(32, 16, 3), w.floats(32)], strides=[2])
    x = w.node("Reshape", [w.node("Relu", [x]), w.values([0, 1, 96])])
    rows = 4 * UNITS
    cell = [w.floats(1, rows, 96), w.floats(1, rows, UNITS), w.floats(1, 2 * rows)]
    w.node("LSTM", [x, *cell, "", "h", "c"], "every", "h.next", "c.next", hidden_size=UNITS)
    x = w.node("Squeeze", ["every", w.values([1])])
    x = w.node("MatMul", [w.node("Relu", [x]), w.floats(UNITS, 1)])
    w.node("Sigmoid", [w.node("Add", [x, w.values(np.float32(-0.1))])], "y")
    state = ("f4", [1, 1, UNITS])
    inputs = {"x": ("f4", ["t", 1, SAMPLES]), "h": state, "c": state}
    return w.model(inputs, {"y": 3, "h.next": 3, "c.next": 3})


def decoder(positions: int) -> onnx.ModelProto:
    """Tokens [1, t] and the keys and values of those before to logits [1, t, vocabulary] and all
    keys and values; for up to so many positions.
    """
    w = Writer(1)
    size = w.node("Shape", ["past.0.k"], start=2, end=3)
    count = w.node("Shape", ["tokens"], start=1, end=2)
    first, last = (w.node("Squeeze", [v]) for v in (size, w.node("Add", [size, count])))
    places = w.node("Range", [first, last, w.values(1)])
    x = w.node(
        "Add",
        [
            w.node("Gather", [w.floats(VOCABULARY, WIDTH), "tokens"]),
            w.node("Gather", [w.floats(positions, WIDTH), places]),
        ],
    )
    for layer in range(LAYERS):
        x = w.node("Add", [x, _attention(w, layer, _normal(w, x))])
        wide = w.node("MatMul", [_normal(w, x), w.floats(WIDTH, 4 * WIDTH)])
        narrow = w.node("MatMul", [w.node("Gelu", [wide]), w.floats(4 * WIDTH, WIDTH)])
        x = w.node("Add", [x, narrow])
    w.node("MatMul", [_normal(w, x), w.floats(WIDTH, VOCABULARY)], "logits")
    names = [f"{layer}.{s}" for layer in range(LAYERS) for s in LAYER_STATES]
    cache = ("f4", [1, HEADS, "p", WIDTH // HEADS])
    inputs = {"tokens": ("i8", [1, "t"]), **{f"past.{n}": cache for n in names}}
    return w.model(inputs, {"logits": 3, **{f"present.{n}": 4 for n in names}})


def _normal(w: Writer, x: str) -> str:
    return w.node("RMSNormalization", [x, w.values(np.ones(WIDTH, "f4"))])


def _attention(w: Writer, layer: int, x: str) -> str:
    parts = [w.node("MatMul", [x, w.floats(WIDTH, WIDTH)]) for _ in range(3)]
    past = [f"past.{layer}.{s}" for s in LAYER_STATES]
    made = w.node(
        "Attention", [*parts, "", *past],
        f"seen{layer}", *(f"present.{layer}.{s}" for s in LAYER_STATES),
        is_causal=1, q_num_heads=HEADS, kv_num_heads=HEADS,
    )  # fmt: skip
    return w.node("MatMul", [made, w.floats(WIDTH, WIDTH)])
