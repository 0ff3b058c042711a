"""Reading a model: path, bytes or ModelProto -> ModelRecord. The import sees protobuf only here."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Union

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from braze.core.dtypes import BY_ONNX, DType
from braze.core.errors import BrazeError, FileError, ModelError
from braze.core.files import describe_os_error
from braze.engine.schema import MAGIC
from braze.frontend.onnx.records import (
    AttributeRef,
    DeclaredDim,
    FunctionRecord,
    GraphRecord,
    ModelRecord,
    NodeRecord,
    TensorRecord,
    Unreadable,
    ValueRecord,
)
from braze.frontend.onnx.tensors import ExternalData, decode_sparse, decode_tensor, onnx_type_name

ProtoSource = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, onnx.ModelProto]
ModelSource = Union[ProtoSource, ModelRecord]

# protobuf cannot parse more
MAX_MODEL_BYTES = (1 << 31) - 1
MIN_IR_VERSION = 3
MAX_IR_VERSION = 14
# protobuf itself stops at about 30
MAX_GRAPH_DEPTH = 24


def load_model(source: ModelSource) -> ModelRecord:
    """Decode a model (a ModelRecord is returned as it is).

    Raises FileError for a file that cannot be read, ModelError for one that is empty, truncated,
    too large or no ONNX model, for unknown IR versions, and for tensors whose data does not fit or
    lies outside the folder.
    """
    if isinstance(source, ModelRecord):
        return source
    proto, path, where = parse_model(source)
    return _Decoder(path, where).model(proto)


def parse_model(source: ProtoSource) -> tuple[onnx.ModelProto, Path | None, str]:
    """The message of a model, the path that tensors in other files are found from, and what the
    model is called in errors. Raises as `load_model` does, of what is read so far.
    """
    if isinstance(source, onnx.ModelProto):
        return source, None, "the model"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parse(bytes(source), "the model"), None, "the model"
    if isinstance(source, (str, os.PathLike)):
        path = _path(source)
        where = f"model file {str(path)!r}"
        return _parse(_content(path, where), where), path, where
    raise ModelError(
        f"a model must be a path, bytes or an onnx.ModelProto, not {type(source).__name__}"
    )


def _path(source: str | os.PathLike[str]) -> Path:
    name = os.fsdecode(source)  # a path may also be bytes inside
    if not name:
        raise FileError("the path of the model is empty; give the name of an ONNX file")
    return Path(name)


def _content(path: Path, where: str) -> bytes:
    try:
        found = path.stat()
        if stat.S_ISCHR(found.st_mode):
            raise FileError(f"{where} is a device, not a file; give the name of an ONNX file")
        size = found.st_size
        if size > MAX_MODEL_BYTES:
            raise ModelError(
                f"{where} has {size} bytes, more than protobuf's limit of {MAX_MODEL_BYTES}; save "
                "it with external data"
            )
        return path.read_bytes()
    except (OSError, ValueError) as e:
        raise FileError(f"{where} cannot be read: {describe_os_error(e)}; give another") from e


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    """Raises ModelError, and MemoryError where there is none for the message."""
    if not data:
        raise ModelError(f"{where} is empty; export it again")
    if len(data) > MAX_MODEL_BYTES:
        raise ModelError(
            f"{where} has {len(data)} bytes, more than protobuf's limit of {MAX_MODEL_BYTES}; save "
            "it with external data"
        )
    try:
        proto: onnx.ModelProto = onnx.ModelProto.FromString(data)
        return proto
    except (DecodeError, ValueError) as e:
        if "alloc" in str(e):  # what protobuf says where memory runs out
            raise MemoryError(f"{where}: {e}") from e
        if data.startswith(MAGIC):
            raise ModelError(
                f"{where} is an engine, not an ONNX model; load it, or give the model that it was "
                "built from"
            ) from e
        raise ModelError(
            f"{where} is not an ONNX model, or it is truncated ({e}); export it again"
        ) from e


class _Decoder:
    """Turns protobuf messages into records; holds what error messages need."""

    def __init__(self, path: Path | None, where: str) -> None:
        self._external = ExternalData(path)
        self._where = where

    def model(self, proto: onnx.ModelProto) -> ModelRecord:
        try:
            return self._model(proto)
        except BrazeError:
            raise
        except (ValueError, TypeError, OverflowError, RecursionError, UnicodeError) as e:
            raise ModelError(f"{self._where} is damaged: {type(e).__name__}: {e}") from e

    def _model(self, proto: onnx.ModelProto) -> ModelRecord:
        if not proto.HasField("graph"):
            raise ModelError(f"{self._where} holds no graph; it is not an ONNX model or is damaged")
        if not MIN_IR_VERSION <= proto.ir_version <= MAX_IR_VERSION:
            raise ModelError(
                f"{self._where} has IR version {proto.ir_version}; braze reads versions "
                f"{MIN_IR_VERSION} to {MAX_IR_VERSION}: convert it with another version of onnx"
            )
        functions: dict[tuple[str, str, str], FunctionRecord] = {}
        for f in proto.functions:
            function = self.function(f)
            key = (function.domain, function.name, text(f.overload))
            if key in functions:
                raise ModelError(f"{self._where}: function {function.name!r} is defined twice")
            functions[key] = function
        opsets = self._opsets(proto.opset_import, self._where)
        return ModelRecord(opsets, self._graph(proto.graph, "", 0), functions)

    def _opsets(self, imports: Iterable[Any], where: str) -> dict[str, int]:
        opsets: dict[str, int] = {}
        for entry in imports:
            domain = domain_name(entry.domain)
            if opsets.get(domain, entry.version) != entry.version:
                raise ModelError(f"{where} imports domain {domain!r} in two versions")
            opsets[domain] = entry.version
        return opsets

    def function(self, proto: onnx.FunctionProto) -> FunctionRecord:
        name = text(proto.name)
        where = f"function {name!r}"
        attributes, kinds = self.attributes(proto.attribute_proto, where, 0)
        nodes = tuple(self._node(n, i, 0) for i, n in enumerate(proto.node))
        return FunctionRecord(
            domain=domain_name(proto.domain),
            name=name,
            inputs=texts(proto.input),
            outputs=texts(proto.output),
            attributes=attributes,
            kinds=kinds,
            required=texts(proto.attribute),
            opsets=self._opsets(proto.opset_import, where),
            nodes=nodes,
        )

    def _graph(self, proto: onnx.GraphProto, where: str, depth: int) -> GraphRecord:
        if depth > MAX_GRAPH_DEPTH:
            raise ModelError(f"{where}: subgraphs are nested deeper than {MAX_GRAPH_DEPTH}")
        nodes = tuple(self._node(n, i, depth) for i, n in enumerate(proto.node))
        initializers: dict[str, TensorRecord | Unreadable] = {}
        tensors = [(t.name, decode_tensor, t) for t in proto.initializer]
        tensors += [(t.values.name, decode_sparse, t) for t in proto.sparse_initializer]
        for given, decode, t in tensors:
            name = text(given)
            if not name:
                raise ModelError(f"{where or 'the graph'} has an initializer without a name")
            if name in initializers:
                raise ModelError(f"initializer {name!r} is defined twice")
            initializers[name] = decode(t, self._external, f"initializer {name!r}")
        return GraphRecord(
            name=text(proto.name),
            inputs=tuple(_input(v) for v in proto.input),
            outputs=tuple(decode_value(v) for v in proto.output),
            initializers=initializers,
            nodes=nodes,
        )

    def _node(self, proto: onnx.NodeProto, index: int, depth: int) -> NodeRecord:
        place = f"node number {index}"
        op_type = text(proto.op_type, place)
        name = text(proto.name, place) or f"{op_type}_{index}"
        where = f"node {name!r} ({op_type})"
        attributes, kinds = self.attributes(proto.attribute, where, depth)
        return NodeRecord(
            op_type=op_type,
            domain=domain_name(proto.domain),
            name=name,
            inputs=texts(proto.input, where),
            outputs=texts(proto.output, where),
            attributes=attributes,
            kinds=kinds,
            overload=text(proto.overload),
        )

    def attributes(
        self, protos: Iterable[Any], where: str, depth: int
    ) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        values: dict[str, Any] = {}
        kinds: dict[str, str] = {}
        for a in protos:
            name = text(a.name, where)
            if name in values:
                raise ModelError(f"{where}: attribute {name!r} is given twice")
            try:
                kinds[name] = onnx.AttributeProto.AttributeType.Name(a.type)
            except ValueError as e:
                raise ModelError(f"{where}: attribute {name!r} has type number {a.type}") from e
            if a.ref_attr_name:
                values[name] = AttributeRef(text(a.ref_attr_name))
            else:
                place = f"{where}: attribute {name!r}"
                values[name] = self._attribute(a, kinds[name], place, depth)
        return values, kinds

    def _attribute(self, a: onnx.AttributeProto, kind: str, place: str, depth: int) -> Any:
        if kind in _SCALARS:
            return getattr(a, _SCALARS[kind])
        if kind == "STRING":
            return a.s.decode("utf-8", "surrogateescape")
        if kind in ("FLOATS", "INTS"):
            return tuple(getattr(a, kind.lower()))
        if kind == "STRINGS":
            return tuple(s.decode("utf-8", "surrogateescape") for s in a.strings)
        if kind in ("TENSOR", "SPARSE_TENSOR"):
            record = (
                decode_tensor(a.t, self._external, place)
                if kind == "TENSOR"
                else decode_sparse(a.sparse_tensor, self._external, place)
            )
            return record if isinstance(record, Unreadable) else record.array
        if kind == "GRAPH":
            return self._graph(a.g, place, depth + 1)
        return Unreadable(f"type {kind}")


_SCALARS = {"FLOAT": "f", "INT": "i"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def decode_function(proto: onnx.FunctionProto) -> FunctionRecord:
    """A function body that comes from an operator schema (it has no external data)."""
    return _Decoder(None, f"function {proto.name!r}").function(proto)


def decode_attribute(proto: onnx.AttributeProto) -> tuple[Any, str]:
    """The value and type name of one attribute."""
    values, kinds = _Decoder(None, "attribute").attributes([proto], "schema", 0)
    return values[proto.name], kinds[proto.name]


def domain_name(domain: str) -> str:
    """The domain with ONNX's own spelled "" (files also write "ai.onnx")."""
    return "" if domain == "ai.onnx" else text(domain)


def text(value: str | bytes, where: str = "the model") -> str:
    """A protobuf string that can name something.

    Raises ModelError, naming `where`, for invalid UTF-8 (protobuf hands out bytes then) and for
    control characters, which no engine file, C interface or report can show.
    """
    if isinstance(value, bytes) or _SURROGATE.search(value):
        raise ModelError(f"{where} is damaged: name {value!r} is not valid UTF-8; rename it")
    if _CONTROL.search(value):
        raise ModelError(f"{where}: name {value!r} holds a control character; rename it")
    return value


def texts(values: Iterable[str | bytes], where: str = "the model") -> tuple[str, ...]:
    """`text` of each."""
    return tuple(text(v, where) for v in values)


def decode_value(proto: onnx.ValueInfoProto) -> ValueRecord:
    """A declared input or output."""
    name = text(proto.name)
    kind = proto.type.WhichOneof("value")
    if kind is None:
        return ValueRecord(name, None, None)
    if kind != "tensor_type":
        return ValueRecord(name, Unreadable(f"type {kind.removesuffix('_type')}"), None)
    tensor = proto.type.tensor_type
    dtype: DType | Unreadable | None = BY_ONNX.get(tensor.elem_type)
    if dtype is None and tensor.elem_type:
        dtype = Unreadable(f"element type {onnx_type_name(tensor.elem_type)}")
    if not tensor.HasField("shape"):
        return ValueRecord(name, dtype, None)
    return ValueRecord(name, dtype, tuple(_declared(d) for d in tensor.shape.dim))


def _input(proto: onnx.ValueInfoProto) -> ValueRecord:
    """A declared input; raises ModelError for sizes below -1."""
    record = decode_value(proto)
    for axis, dim in enumerate(proto.type.tensor_type.shape.dim):
        if dim.dim_value < -1:
            raise ModelError(
                f"input {record.name!r} has size {dim.dim_value} on axis {axis}; declare a size, "
                "or a name for a dynamic axis"
            )
    return record


def _declared(dim: Any) -> DeclaredDim:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        # exporters write -1 for "any size"
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return text(dim.dim_param) if kind == "dim_param" else None
