"""A decoded ONNX model -> inputs, layers and outputs of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from braze.core.dtypes import DType
from braze.core.errors import BrazeError, ModelError
from braze.frontend.onnx.order import order_nodes
from braze.frontend.onnx.records import ModelRecord, TensorRecord, Unreadable, ValueRecord
from braze.tensorrt.dims import Dims
from braze.tensorrt.dtypes import closest
from braze.tensorrt.enums_build import ErrorCode
from braze.tensorrt.function_calls import innermost, path_of
from braze.tensorrt.onnx_layer import InputFailedError, OnnxLayer
from braze.tensorrt.parser_error import ParserError, code_of
from braze.tensorrt.plugin_nodes import add_plugin_node, creator_of
from braze.tensorrt.tensor import ITensor
from braze.tensorrt.weights import Weights

if TYPE_CHECKING:
    from braze.tensorrt.network import INetworkDefinition


def fill_network(
    network: INetworkDefinition, record: ModelRecord, file: str
) -> tuple[list[ParserError], dict[str, OnnxLayer]]:
    """Add what the model has to a network. What was wrong, and the layers by name of their node.

    Raises ModelError for a model that is no graph, or a network that has layers already.
    """
    graph = record.graph
    if network.num_layers or network.num_inputs:
        raise ModelError("the network is not empty; parse into a new one")
    network._opsets, network._functions = dict(record.opsets), dict(record.functions)
    tensors: dict[str, ITensor] = {}
    errors: list[ParserError] = []
    for declared in record.runtime_inputs:
        tensor = _input(network, declared)
        if tensor is None:
            why = _unfit(declared)
            errors.append(ParserError(ErrorCode.UNSUPPORTED_NODE_DATATYPE, why, file=file))
        else:
            tensors[declared.name] = tensor
    if errors:  # nodes that read these inputs would be told of as reading nothing
        return errors, {}
    wanted = [o.name for o in graph.outputs]

    def is_defined(name: str) -> bool:
        return name in tensors or name in graph.initializers

    layers: dict[str, OnnxLayer] = {}
    places = {id(n): i for i, n in enumerate(graph.nodes)}
    numbers: dict[int, int] = {}
    for node in order_nodes(graph.nodes, wanted, is_defined, "the graph"):
        creator = creator_of(node)
        if creator is not None:
            made = add_plugin_node(network, node, creator, tensors, graph.initializers)
            tensors |= dict(zip(node.outputs, made._outputs, strict=False))
            continue
        layer = OnnxLayer(network, node, tensors, graph.initializers)
        outputs = [o for o in node.outputs if o]
        network._append(layer, node.name, outputs)
        tensors |= dict(zip(outputs, layer._outputs, strict=True))
        layers.setdefault(node.name, layer)
        numbers[layer._number] = places[id(node)]
    _mark(network, record, tensors)
    network._changed(None)
    for layer in [x for x in network._layers if isinstance(x, OnnxLayer)]:
        failure = network._lowered().through(layer).failure
        layer.complete()
        if failure is not None and not isinstance(failure, InputFailedError):
            errors.append(_error(layer, numbers[layer._number], failure, file))
    return errors, layers


def _input(network: INetworkDefinition, declared: ValueRecord) -> ITensor | None:
    dtype = declared.dtype
    if not isinstance(dtype, DType) or declared.shape is None or not dtype.tensorrt:
        return None
    shape = Dims([d if isinstance(d, int) else -1 for d in declared.shape])
    tensor = network.add_input(declared.name, closest(dtype), shape)
    if tensor is not None:
        tensor._own_dtype = tensor._dtype
        tensor._axis_names = {i: d for i, d in enumerate(declared.shape) if isinstance(d, str)}
    return tensor


def _unfit(declared: ValueRecord) -> str:
    """Why an input cannot be one of a network."""
    dtype = declared.dtype
    if isinstance(dtype, DType) and dtype.tensorrt:
        return f"input {declared.name!r} declares no shape; give it one when it is exported"
    kind = dtype.why if isinstance(dtype, Unreadable) else f"element type {dtype}"
    return (
        f"input {declared.name!r} has {'no type' if dtype is None else kind}, which networks do "
        "not take; cast or encode it outside of the model"
    )


def _mark(network: INetworkDefinition, record: ModelRecord, tensors: dict[str, ITensor]) -> None:
    """Mark the outputs; constants among them get a layer."""
    for output in record.graph.outputs:
        tensor = tensors.get(output.name)
        constant = record.graph.initializers.get(output.name)
        if tensor is None and isinstance(constant, TensorRecord):
            array = np.ascontiguousarray(constant.array)
            layer = network.add_constant(Dims(array.shape), Weights(array))
            assert layer is not None
            tensor = layer._outputs[0]
            tensor._name = output.name
        if tensor is not None:
            network.mark_output(tensor)


def _error(layer: OnnxLayer, place: int, failure: BrazeError, file: str) -> ParserError:
    network, why = layer.network, str(failure)
    path = path_of(network._lowered().importer.findings, why)
    inside = path.removeprefix(layer.name) if path.startswith(f"{layer.name}/") else ""
    calls, node = innermost(network._functions, layer._node, layer._node.name + inside)
    return ParserError(code_of(failure), why, place, node.name, node.op_type, file, calls)
