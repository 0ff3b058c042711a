"""A model as one message, for what edits models: tensors in files beside it are read into it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx

from braze.core.dtypes import BY_ONNX
from braze.core.elements import size_of
from braze.frontend.onnx.proto import ProtoSource, parse_model
from braze.frontend.onnx.tensors import ExternalData


def whole_model(source: ProtoSource) -> onnx.ModelProto:
    """The message of a model, with all its data; of a ModelProto that has it, the same.

    Files are looked for where `load_model` looks. Raises FileError and ModelError as it does.
    """
    proto, path, _ = parse_model(source)
    read_in(proto, path)
    return proto


def read_in(proto: onnx.ModelProto, path: Path | None) -> None:
    """Put the data of tensors in other files into the message. path: that of the model."""
    external = ExternalData(path)
    for tensor in _tensors(proto):
        dtype = BY_ONNX.get(tensor.data_type)
        # a type that braze has no arithmetic for stays where it is: what reads it is refused
        if tensor.data_location != onnx.TensorProto.EXTERNAL or dtype is None:
            continue
        count = size_of(math.prod(tensor.dims), dtype)
        tensor.raw_data = external.read(tensor, count, f"tensor {tensor.name!r}").tobytes()
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from _of_graph(proto.graph)
    for function in proto.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _of_sparse(graph.sparse_initializer)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for attribute in (a for node in nodes for a in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        yield from _of_sparse((attribute.sparse_tensor, *attribute.sparse_tensors))
        for body in (attribute.g, *attribute.graphs):
            yield from _of_graph(body)


def _of_sparse(tensors: Iterable[onnx.SparseTensorProto]) -> Iterator[onnx.TensorProto]:
    for tensor in tensors:
        yield from (tensor.values, tensor.indices)
