"""Which kind of error a parser reports for what is wrong with a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze.tensorrt as trt
from tests.tensorrt.networks import new_network

FLOAT = TensorProto.FLOAT
CODE = trt.ErrorCode


OPSETS = [helper.make_opsetid(d, v) for d, v in (("", 17), ("other", 1), ("mine", 1))]


def model(
    nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], functions: Sequence[Any] = ()
) -> bytes:
    """A model whose only output is y."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.ones(3, np.float32), "w")],
    )
    made = helper.make_model(graph, opset_imports=OPSETS, functions=list(functions), ir_version=8)
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


def test_nodes_within_functions() -> None:
    """Names of nodes have slashes, as torch exports them; the inner function is called twice."""
    inner = helper.make_function(
        "mine", "Inner", ["a"], ["b"],
        [helper.make_node("Unheard", ["a"], ["b"], "/in/bad", domain="other")], OPSETS,
    )  # fmt: skip
    outer = helper.make_function(
        "mine", "Outer", ["a"], ["b"],
        [
            helper.make_node("Relu", ["a"], ["r"], "/out"),
            helper.make_node("Inner", ["r"], ["b"], "/out/call", domain="mine"),
        ], OPSETS,
    )  # fmt: skip
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], "/top"),
        helper.make_node("Outer", ["h"], ["y"], "/top/fn", domain="mine"),
    ]
    data = model(nodes, X, functions=[inner, outer])
    for call in (trt.OnnxParser.parse, trt.OnnxParser.supports_model_v2):
        network, log = new_network()
        parser = trt.OnnxParser(network, log)
        assert not call(parser, data) and parser.num_errors == 1
        error = parser.get_error(0)
        assert error.local_function_stack() == ["Outer", "Inner"]
        assert error.local_function_stack_size() == 2
        assert (error.node(), error.node_name(), error.node_operator()) == (1, "/in/bad", "Unheard")
    groups = [parser.get_subgraph_nodes(i) for i in range(parser.num_subgraphs)]
    assert groups == [[0], [1]] and not parser.is_subgraph_supported(1)


def test_inputs_of_strings() -> None:
    network, log = new_network()
    parser = trt.OnnxParser(network, log)
    strings = {"s": (TensorProto.STRING, [2])}
    assert not parser.parse(model([node("Identity", "s")], strings)) and parser.num_errors == 1
    error = parser.get_error(0)
    assert error.code() is CODE.UNSUPPORTED_NODE_DATATYPE
    assert "input 's' has element type string" in error.desc().lower()


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
