"""Decoded nodes as protobuf again: onnx writes the bodies of some functions for a given node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from braze.core.dtypes import DType
from braze.core.errors import UnsupportedOpError
from braze.frontend.onnx.records import GraphRecord, NodeRecord, TensorRecord, ValueRecord
from braze.ir.graph import TensorType


def type_proto(type_: TensorType | None) -> onnx.TypeProto:
    """The type of an input; an empty one for an input that is left out."""
    if type_ is None:
        return onnx.TypeProto()
    shape = [d if isinstance(d, int) else str(d) for d in type_.shape]
    return onnx.helper.make_tensor_type_proto(type_.dtype.onnx, shape)


def node_proto(node: NodeRecord) -> onnx.NodeProto:
    """A node; raises UnsupportedOpError for an attribute that braze has no data for."""
    proto = onnx.NodeProto(
        op_type=node.op_type,
        domain=node.domain,
        name=node.name,
        overload=node.overload,
        input=list(node.inputs),
        output=list(node.outputs),
    )
    for key, value in node.attributes.items():
        proto.attribute.append(_attribute_proto(node, key, value))
    return proto


def _attribute_proto(node: NodeRecord, key: str, value: Any) -> onnx.AttributeProto:
    kind = onnx.AttributeProto.AttributeType.Value(node.kinds[key])
    if isinstance(value, str):
        return onnx.AttributeProto(name=key, type=kind, s=value.encode("utf-8", "surrogateescape"))
    if isinstance(value, GraphRecord):
        return onnx.AttributeProto(name=key, type=kind, g=_graph_proto(node, value))
    if isinstance(value, np.ndarray):
        value = onnx.numpy_helper.from_array(value)
    if isinstance(value, (int, float, tuple, onnx.TensorProto)):
        return onnx.helper.make_attribute(key, value, attr_type=kind)
    raise UnsupportedOpError(
        f"{node.where}: attribute {key!r} has a kind that braze does not run; write the node out "
        "as the ops of its definition"
    )


def _graph_proto(node: NodeRecord, graph: GraphRecord) -> onnx.GraphProto:
    proto = onnx.GraphProto(name=graph.name)
    for name, tensor in graph.initializers.items():
        if not isinstance(tensor, TensorRecord):
            raise UnsupportedOpError(
                f"{node.where}: tensor {name!r} in its subgraph has {tensor.why}, which braze does "
                "not run; store it in another type"
            )
        proto.initializer.append(onnx.numpy_helper.from_array(tensor.array, name))
    proto.node.extend(node_proto(n) for n in graph.nodes)
    proto.input.extend(_values(graph.inputs))
    proto.output.extend(_values(graph.outputs))
    return proto


def _values(records: Sequence[ValueRecord]) -> list[onnx.ValueInfoProto]:
    return [
        onnx.helper.make_tensor_value_info(v.name, v.dtype.onnx, v.shape)
        if isinstance(v.dtype, DType)
        else onnx.ValueInfoProto(name=v.name)
        for v in records
    ]
