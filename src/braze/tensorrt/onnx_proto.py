"""A decoded model as an ONNX message again, so that an engine can keep it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from braze.core.dtypes import DType, from_numpy
from braze.core.elements import pack
from braze.frontend.onnx.records import (
    AttributeRef,
    FunctionRecord,
    GraphRecord,
    ModelRecord,
    NodeRecord,
    TensorRecord,
    ValueRecord,
)

IR_VERSION = 10


def to_proto(record: ModelRecord) -> onnx.ModelProto:
    """The message of a model."""
    imports = [helper.make_opsetid(d, v) for d, v in record.opsets.items()]
    functions = [_function(key, f) for key, f in record.functions.items()]
    return helper.make_model(
        _graph(record.graph),
        opset_imports=imports,
        functions=functions,
        ir_version=IR_VERSION,
        producer_name="braze",
    )


def _graph(record: GraphRecord) -> onnx.GraphProto:
    graph = onnx.GraphProto(name=record.name or "graph")
    graph.input.extend(map(_value, record.inputs))
    graph.output.extend(map(_value, record.outputs))
    for name, tensor in record.initializers.items():
        if isinstance(tensor, TensorRecord):
            graph.initializer.append(_tensor(name, tensor.dtype, tensor.array))
    graph.node.extend(map(_node, record.nodes))
    return graph


def _value(record: ValueRecord) -> onnx.ValueInfoProto:
    value = onnx.ValueInfoProto(name=record.name)
    if isinstance(record.dtype, DType):
        value.type.tensor_type.elem_type = record.dtype.onnx
    if isinstance(record.dtype, DType) and record.shape is not None:
        value.type.tensor_type.shape.SetInParent()
        for d in record.shape:
            dim = value.type.tensor_type.shape.dim.add()
            if isinstance(d, int):
                dim.dim_value = d
            elif d is not None:
                dim.dim_param = d
    return value


def _tensor(name: str, dtype: DType, array: np.ndarray[Any, Any]) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=dtype.onnx, dims=array.shape)
    tensor.raw_data = pack(np.ascontiguousarray(array), dtype).tobytes()
    return tensor


def _node(record: NodeRecord) -> onnx.NodeProto:
    node = onnx.NodeProto(
        op_type=record.op_type, domain=record.domain, name=record.name, overload=record.overload
    )
    node.input.extend(record.inputs)
    node.output.extend(record.outputs)
    node.attribute.extend(_attributes(record.attributes, record.kinds))
    return node


def _attributes(values: Mapping[str, Any], kinds: Mapping[str, str]) -> list[onnx.AttributeProto]:
    return [_attribute(k, v, kinds[k]) for k, v in values.items()]


def _attribute(name: str, value: Any, kind: str) -> onnx.AttributeProto:
    attribute = onnx.AttributeProto(name=name, type=onnx.AttributeProto.AttributeType.Value(kind))
    if isinstance(value, AttributeRef):
        attribute.ref_attr_name = value.name
    elif isinstance(value, GraphRecord):
        attribute.g.CopyFrom(_graph(value))
    elif isinstance(value, np.ndarray):
        attribute.type = onnx.AttributeProto.TENSOR
        attribute.t.CopyFrom(_tensor("", from_numpy(value.dtype), value))
    elif kind in ("INT", "FLOAT"):
        setattr(attribute, kind[0].lower(), value)
    elif kind == "STRING":
        attribute.s = value.encode("utf-8", "surrogateescape")
    elif kind == "STRINGS":
        attribute.strings.extend(v.encode("utf-8", "surrogateescape") for v in value)
    elif kind in ("INTS", "FLOATS"):
        getattr(attribute, kind.lower()).extend(value)
    return attribute


def _function(key: tuple[str, str, str], record: FunctionRecord) -> onnx.FunctionProto:
    function = onnx.FunctionProto(name=record.name, domain=record.domain, overload=key[2])
    function.input.extend(record.inputs)
    function.output.extend(record.outputs)
    function.attribute.extend(record.required)
    function.attribute_proto.extend(_attributes(record.attributes, record.kinds))
    function.opset_import.extend(helper.make_opsetid(d, v) for d, v in record.opsets.items())
    function.node.extend(map(_node, record.nodes))
    return function
