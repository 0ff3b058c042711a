"""Small ONNX models for the frontend tests, and two fake ops that need no op library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from braze.frontend.onnx.importer import import_model
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ops.base import OnnxNode, Op

FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64


def info(name: str, shape: Sequence[int | str | None] | None, kind: int = FLOAT):
    """A declared input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[onnx.ValueInfoProto] = (),
    *,
    initializers: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[tuple[str, int]] = (),
) -> onnx.ModelProto:
    """A model; nothing is checked, so that broken models can be made too."""
    graph = helper.make_graph(list(nodes), "test", list(inputs), list(outputs), list(initializers))
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, v) for d, v in domains]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def tensor(name: str, array: np.ndarray) -> onnx.TensorProto:
    """An initializer."""
    return onnx.numpy_helper.from_array(np.asarray(array), name)


X = info("x", [2, 3])
Y = info("y", [2, 3])


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attributes: Any
) -> onnx.NodeProto:
    """A node."""
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


@dataclass(frozen=True)
class Same(Op):
    """Elementwise fake: output like input 0; its reference adds `offset`."""

    offset: float = 0.0

    def infer(self, inputs, ctx):
        return (inputs[0],)

    def reference(self, *inputs):
        return (inputs[0] + np.asarray(self.offset, inputs[0].dtype),)


@dataclass(frozen=True)
class Sum2(Op):
    """Elementwise fake with two operands of one shape."""

    def infer(self, inputs, ctx):
        a, b = inputs
        shape = tuple(ctx.broadcast(x, y, "Sum2") for x, y in zip(a.shape, b.shape, strict=True))
        return (TensorType(a.dtype, shape),)

    def reference(self, *inputs):
        return (inputs[0] + inputs[1],)


def import_same(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    return (g.add1(Same(float(n.attr("alpha", 0.0))), n.need(0)),)


def import_sum2(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    return (g.add1(Sum2(), n.need(0), n.need(1)),)


def import_refusing(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    raise n.unsupported("attribute mode='odd' is not supported; use mode='even'")


def import_crashing(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    raise KeyError("surprise")


def import_const_needed(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    if g.sizes(n.need(1)) is None:
        raise n.needs_content(1, "the shape is computed from tensor data; make it a constant")
    return (g.add1(Same(), n.need(0)),)


FAKES = {
    ("", "Relu"): import_same,
    ("", "Identity"): import_same,
    ("", "LeakyRelu"): import_same,
    ("", "Add"): import_sum2,
    ("", "Ceil"): import_refusing,
    ("", "Floor"): import_crashing,
    ("", "Reshape"): import_const_needed,
}


def load(proto: onnx.ModelProto, **options: Any) -> Graph:
    """The graph of a model, by fake importers."""
    return import_model(proto, importers=FAKES, **options)


def ops(graph: Graph) -> list[str]:
    """The names of a graph's ops in order."""
    return [n.op.name for n in graph.nodes]
