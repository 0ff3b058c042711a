"""Random programs of size arithmetic: what the import knows equals what onnx's evaluator computes.

Sizes of strided convolutions and pools are multiplied, divided, compared and concatenated as
exporters do; every result must stay a size (an expression of the input's sizes), never "data".
"""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from braze.core.dims import evaluate
from braze.frontend.onnx.importer import import_network
from braze.ops.move.shape import SizeTensor
from tests.frontend.onnx_models import INT64, info, model, tensor

SHAPES = ((1, 3, 6, 7), (2, 3, 9, 13), (4, 3, 40, 33))


class Program:
    """Builds one random size program; `scalars` are names of int64[1] tensors."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.scalars: list[str] = []

    def node(self, op: str, inputs: list[str], **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def number(self, value: int) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(tensor(name, np.array([value])))
        return name

    def maps(self) -> None:
        """Feature maps of x and their sizes."""
        x = "x"
        for _ in range(self.rng.randint(1, 2)):
            k = self.rng.choice([2, 3])
            x = self.node("MaxPool", [x], kernel_shape=[k, k], strides=[2, self.rng.choice([1, 2])],
                          pads=[1, k - 2, 1, k - 2])  # fmt: skip
            shape = self.node("Shape", [x])
            for i in (0, 2, 3):
                self.scalars.append(self.node("Gather", [shape, self.number(i)]))

    def step(self) -> None:
        """One more size."""
        a, b = self.rng.choice(self.scalars), self.rng.choice(self.scalars)
        c = self.number(self.rng.randint(1, 6))
        kind = self.rng.choice(["Mul", "Mul", "Add", "Sub", "Div", "Mod", "Max", "Where", "Prod"])
        if kind == "Sub":  # never negative: sizes are not
            made = self.node("Sub", [self.node("Add", [self.node("Mul", [a, c]), b]), b])
        elif kind in ("Div", "Mod"):
            made = self.node(kind, [a, c])
        elif kind == "Max":
            made = self.node("Max", [a, self.number(1)])
        elif kind == "Where":
            unknown = self.node("Equal", [a, self.number(-1)])
            made = self.node("Where", [unknown, c, a])
        elif kind == "Prod":
            both = self.node("Concat", [a, b], axis=0)
            made = self.node("ReduceProd", [both], axes=[0], keepdims=1)
        else:
            made = self.node(kind, [a, b])
        self.scalars.append(made)

    def model(self) -> onnx.ModelProto:
        outputs = [info(name, [1], INT64) for name in self.scalars]
        x = info("x", ["b", 3, "h", "w"])
        return model(self.nodes, [x], outputs, initializers=self.initializers)


@pytest.mark.parametrize("seed", range(60))
def test_every_size_is_known_and_right(seed: int) -> None:
    program = Program(seed)
    program.maps()
    for _ in range(8):
        program.step()
    proto = program.model()
    graph = import_network(proto, shapes={"x": SHAPES}).graph
    made = {v.name: n.op for n in graph.nodes for v in n.outputs}
    names = [str(d) for d in graph.inputs[0].shape]
    for shape in SHAPES:
        env = {n: d for n, d in zip(names, shape, strict=True) if not n.isdigit()}
        want = ReferenceEvaluator(proto).run(None, {"x": np.zeros(shape, np.float32)})
        for (name, value), right in zip(graph.outputs, want, strict=True):
            content = graph.constant(value)
            if content is None:
                op = made[value.name]
                assert isinstance(op, SizeTensor), f"{name} is no size: {op}"
                content = [evaluate(d, env) for d in op.dims]
            assert list(content) == list(right), name
