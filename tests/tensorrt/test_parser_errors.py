"""Which kind of error a parser reports for what is wrong with a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze.tensorrt as trt
from tests.tensorrt.networks import new_network

FLOAT = TensorProto.FLOAT
CODE = trt.ErrorCode


def model(nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], opset: int = 17) -> bytes:
    """A model whose only output is y."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.ones(3, np.float32), "w")],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("other", 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return bytes(made.SerializeToString())


def node(op: str, *inputs: str, domain: str = "", **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), ["y"], "it", domain=domain, **attributes)


X = {"x": (FLOAT, [2, 4])}
OF_NODES = {
    "unheard": (CODE.UNSUPPORTED_NODE, [node("Unheard", "x", domain="other")], X),
    "shapes": (CODE.UNSUPPORTED_NODE_SHAPE, [node("Add", "x", "w")], X),
    "types": (CODE.UNSUPPORTED_NODE_DATATYPE, [node("Cast", "x", to=TensorProto.STRING)], X),
    "input": (CODE.INVALID_NODE, [node("Add", "x")], X),
}  # fmt: skip


@pytest.mark.parametrize("what", OF_NODES)
def test_nodes(what: str) -> None:
    code, nodes, inputs = OF_NODES[what]
    network, log = new_network()
    parser = trt.OnnxParser(network, log)
    assert not parser.parse(model(nodes, inputs))
    error = parser.get_error(0)
    assert error.code() is code, str(error)
    assert (error.node(), error.node_name()) == (0, "it")
    head = f"In node 0 with name: it and operator: {nodes[0].op_type} ({error.func()}): "
    assert str(error) == f"{head}{code.name}: {error.desc()}" == log.errors[-1]
    assert str(code) == code.name


def damaged(parser: Any) -> bool:
    return bool(parser.parse(b"no model"))


def twice(parser: Any) -> bool:
    good = model([node("Relu", "x")], X)
    return bool(parser.parse(good) and parser.parse(good))


def unloaded(parser: Any) -> bool:
    return bool(parser.parse_model_proto())


def unknown(parser: Any) -> bool:
    parser.load_model_proto(model([node("Add", "x", "w")], X))
    return bool(parser.load_initializer("none", 0, 0))


OF_MODELS = {
    damaged: CODE.MODEL_DESERIALIZE_FAILED,
    twice: CODE.INVALID_GRAPH,
    unloaded: CODE.INTERNAL_ERROR,
    unknown: CODE.INVALID_VALUE,
}


@pytest.mark.parametrize("call", OF_MODELS)
def test_models(call: Callable[[Any], bool]) -> None:
    network, log = new_network()
    parser = trt.OnnxParser(network, log)
    assert not call(parser)
    error = parser.get_error(parser.num_errors - 1)
    assert error.code() is OF_MODELS[call] and error.node() == -1
    assert str(error).startswith("In node -1 ") is (call is not damaged)
    assert str(error).endswith(f"(parse): {error.code()}: {error.desc()}")
