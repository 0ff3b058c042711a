"""ONNX models in mixed precision, as automatic casting makes them, for tests.

Products take float16 operands and give float16 results; everything between them stays float32, as
float32 models that were trained in it leave the range of float16 there (squares, variances).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOAT, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def with_half_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with products in float16; its inputs and outputs keep their types."""
    done = onnx.ModelProto()
    done.CopyFrom(model)
    _convert(done.graph, "")
    return done


def _convert(graph: Any, prefix: str) -> None:
    weights = {t.name: t for t in graph.initializer}
    halves: dict[str, str] = {}
    nodes = []
    for i, node in enumerate(graph.node):
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                _convert(a.g, f"{prefix}{i}.")
        if node.op_type not in PRODUCTS or node.domain not in ("", "ai.onnx"):
            nodes.append(node)
            continue
        for k, name in enumerate(node.input):
            if not name:
                continue
            if name not in halves:
                halves[name] = f"{prefix}{name}.half"
                if name in weights:
                    graph.initializer.append(_half(weights[name], halves[name]))
                else:
                    nodes.append(helper.make_node("Cast", [name], [halves[name]], to=HALF))
            node.input[k] = halves[name]
        result = node.output[0]
        node.output[0] = f"{prefix}{result}.product"
        nodes += [node, helper.make_node("Cast", [node.output[0]], [result], to=FLOAT)]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]


def _half(t: Any, name: str) -> Any:
    return numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float16), name)
