"""OnnxParser: an ONNX model as the content of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from braze.core.errors import BrazeError, ModelError
from braze.frontend.onnx.findings import Finding
from braze.frontend.onnx.flow import CONTROL_FLOW
from braze.frontend.onnx.importer import check_model
from braze.frontend.onnx.proto import load_model
from braze.frontend.onnx.records import ModelRecord
from braze.frontend.onnx.schemas import find_schema
from braze.frontend.onnx.whole import read_in
from braze.ops.catalog import IMPORTERS
from braze.tensorrt.addresses import AddressError, bytes_at
from braze.tensorrt.deprecation import Scoped, warn_deprecated
from braze.tensorrt.enums_build import ErrorCode, OnnxParserFlag
from braze.tensorrt.enums_layers import WeightsRole
from braze.tensorrt.function_calls import innermost, owner
from braze.tensorrt.logger import ILogger, Severity
from braze.tensorrt.network import INetworkDefinition
from braze.tensorrt.onnx_layer import OnnxLayer
from braze.tensorrt.params import member, text, whole
from braze.tensorrt.parser_error import ParserError
from braze.tensorrt.parsing import fill_network
from braze.tensorrt.recorder import tell
from braze.tensorrt.tensor import ITensor

_NEWEST = 28  # opset that ops are looked up in


class OnnxParser(Scoped):
    """Parses models into a network. Errors are kept, and go to the logger."""

    flags: int

    def __init__(self, network: INetworkDefinition, logger: ILogger) -> None:
        if not isinstance(network, INetworkDefinition):
            raise TypeError(f"OnnxParser: an INetworkDefinition is expected, not {network!r}")
        if not isinstance(logger, ILogger):
            raise TypeError(f"OnnxParser: an ILogger is expected, not {logger!r}")
        self._network, self._logger = network, logger
        self._errors: list[ParserError] = []
        self._layers: dict[str, OnnxLayer] = {}
        self._groups: list[tuple[list[int], bool]] = []
        self._proto: onnx.ModelProto | None = None
        self.flags = 1 << int(OnnxParserFlag.NATIVE_INSTANCENORM)

    # ---- parsing ------------------------------------------------------------------------

    def parse(self, model: Any, path: str | None = None) -> bool:
        """Parse the bytes of a model. path: the file it is from, for data beside it."""
        return self._fill(lambda: _record(model, path), path or "")

    def parse_from_file(self, model: str) -> bool:
        """Parse a file, and the data beside it."""
        name = text(model, "parse_from_file")
        return self._fill(lambda: load_model(name), name)

    def parse_with_weight_descriptors(self, model: Any) -> bool:
        """As `parse`; weights that lie elsewhere come by load_initializer."""
        warn_deprecated("parse_with_weight_descriptors", "10.13", "load_initializer")
        return self.parse(model)

    def load_model_proto(self, model: Any, path: str | None = None) -> bool:
        """Read a model without parsing it, so that initializers can be replaced."""
        if self._proto is not None:
            return self._failed(ErrorCode.INTERNAL_ERROR, "a model is loaded already")
        try:
            self._proto = _proto(model, path)
        except BrazeError as e:
            return self._failed(ErrorCode.MODEL_DESERIALIZE_FAILED, str(e))
        return True

    def load_initializer(self, name: str, data: int, size: int) -> bool:
        """Give an initializer of the loaded model its bytes, by their address."""
        where = "load_initializer"
        key, address, count = text(name, where), whole(data, where), whole(size, where)
        found = None if self._proto is None else initializer(self._proto, key)
        if found is None:
            return self._failed(ErrorCode.INVALID_VALUE, f"no loaded model has a {key!r}")
        try:
            return self._kept(replace_data(found, address, count), key)
        except AddressError as e:
            return self._failed(ErrorCode.INVALID_VALUE, str(e))

    def _kept(self, fits: bool, name: str) -> bool:
        if not fits:
            self._failed(ErrorCode.INVALID_VALUE, f"initializer {name!r} has another size")
        return fits

    def parse_model_proto(self) -> bool:
        """Parse the loaded model."""
        proto = self._proto
        if proto is None:
            return self._failed(ErrorCode.INTERNAL_ERROR, "no model is loaded")
        return self._fill(lambda: load_model(proto), "")

    def _fill(self, read: Any, file: str) -> bool:
        before = len(self._errors)
        try:
            record = read()
        except BrazeError as e:
            return self._failed(ErrorCode.MODEL_DESERIALIZE_FAILED, str(e), file)
        try:
            found, self._layers = fill_network(self._network, record, file)
        except BrazeError as e:
            return self._failed(ErrorCode.INVALID_GRAPH, str(e), file)
        for error in found:
            self._add(error)
        return len(self._errors) == before

    # ---- what is supported --------------------------------------------------------------

    def supports_model_v2(self, model: Any, path: str | None = None) -> bool:
        """Whether all nodes can be parsed; `get_subgraph_nodes` tells which."""
        try:
            record = _record(model, path)
            findings = check_model(record)
        except BrazeError as e:
            self._groups = []
            return self._failed(ErrorCode.MODEL_DESERIALIZE_FAILED, str(e), path or "")
        nodes = record.graph.nodes
        bad: dict[str, Finding] = {}
        for finding in [f for f in findings if not f.supported]:
            of = owner(nodes, finding.node)
            bad.setdefault(finding.node if of is None else of.name, finding)
        self._groups = []
        for place, node in enumerate(nodes):
            found = bad.get(node.name)
            if found is not None:
                calls, inner = innermost(record.functions, node, found.node)
                what = (inner.name, inner.op_type, path or "", calls)
                self._add(ParserError(ErrorCode.UNSUPPORTED_NODE, found.reason, place, *what))
            self._group(place, found is None)
        return not bad

    def _group(self, place: int, good: bool) -> None:
        if self._groups and self._groups[-1][1] == good:
            self._groups[-1][0].append(place)
        else:
            self._groups.append(([place], good))

    @property
    def num_subgraphs(self) -> int:
        """Runs of nodes that are all supported, or all not."""
        return len(self._groups)

    def is_subgraph_supported(self, index: int) -> bool:
        """Whether a run of nodes is supported."""
        place = whole(index, "is_subgraph_supported")
        return 0 <= place < len(self._groups) and self._groups[place][1]

    def get_subgraph_nodes(self, index: int) -> list[int]:
        """The places of the nodes of a run in the model."""
        place = whole(index, "get_subgraph_nodes")
        return list(self._groups[place][0]) if 0 <= place < len(self._groups) else []

    def supports_model(
        self, model: Any, path: str | None = None
    ) -> tuple[bool, list[tuple[list[int], bool]]]:
        """Whether all nodes can be parsed, and the runs of nodes."""
        warn_deprecated("OnnxParser.supports_model", "10.1", "supports_model_v2")
        good = self.supports_model_v2(model, path)
        return good, [(list(nodes), fine) for nodes, fine in self._groups]

    def supports_operator(self, op_name: str) -> bool:
        """Whether there is an op of a name."""
        name = text(op_name, "supports_operator")
        if name in CONTROL_FLOW or any(op == name for _, op in IMPORTERS):
            return True
        schema = find_schema(name, "", min(_NEWEST, onnx.defs.onnx_opset_version()))
        return schema is not None and (schema.has_function or schema.has_context_dependent_function)

    # ---- results ------------------------------------------------------------------------

    def get_layer_output_tensor(self, name: str, i: int) -> ITensor | None:
        """An output of the layer of a node, or None."""
        layer = self._layers.get(text(name, "get_layer_output_tensor"))
        return None if layer is None else layer.get_output(i)

    def get_refit_map(self) -> tuple[list[str], list[str], list[WeightsRole]]:
        """Names of weights, and for each the layer and the role that releases to 7 set it by."""
        warn_deprecated("OnnxParser.get_refit_map", "7.1", "Refitter.set_named_weights")
        found = [(name, x.name) for x in self._layers.values() for name in x.roles()]
        names = [name for name, _ in found]
        return names, [layer for _, layer in found], [WeightsRole.ANY] * len(found)

    def get_used_vc_plugin_libraries(self) -> list[str]:
        """None: no library of plugins is used."""
        return []

    @property
    def num_errors(self) -> int:
        """How many errors there were."""
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        """An error."""
        place = whole(index, "get_error")
        if not 0 <= place < len(self._errors):
            raise IndexError(f"there are {len(self._errors)} errors, none is {place}")
        return self._errors[place]

    def clear_errors(self) -> None:
        """Forget the errors."""
        self._errors = []

    def _add(self, error: ParserError) -> None:
        self._errors.append(error)
        tell(self._logger, Severity.ERROR, str(error))

    def _failed(self, code: ErrorCode, why: str, file: str = "") -> bool:
        self._add(ParserError(code, why, file=file))
        return False

    # ---- flags --------------------------------------------------------------------------

    def set_flag(self, flag: OnnxParserFlag) -> None:
        """Set a flag; none changes what is parsed."""
        self.flags |= 1 << int(member(OnnxParserFlag)(flag, "set_flag"))

    def clear_flag(self, flag: OnnxParserFlag) -> None:
        """Clear a flag."""
        self.flags &= ~(1 << int(member(OnnxParserFlag)(flag, "clear_flag")))

    def get_flag(self, flag: OnnxParserFlag) -> bool:
        """Whether a flag is set."""
        return bool(self.flags >> int(member(OnnxParserFlag)(flag, "get_flag")) & 1)

    def set_builder_config(self, config: Any) -> bool:
        """Take the configuration that will be built with; it changes nothing that is parsed."""
        return config is not None


def _proto(model: Any, path: str | None) -> onnx.ModelProto:
    """The message in bytes, with data beside `path` read in; raises ModelError."""
    try:
        data = bytes(memoryview(model))
        proto: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except TypeError:
        raise TypeError(f"the bytes of a model are expected, not {type(model).__name__}") from None
    except Exception as e:  # protobuf's own errors have no common class
        raise ModelError(f"the bytes are no ONNX model ({e}); export it again") from e
    if path is not None:
        read_in(proto, Path(path))
    return proto


def _record(model: Any, path: str | None) -> ModelRecord:
    if path is None:
        try:
            return load_model(bytes(memoryview(model)))
        except TypeError:
            kind = type(model).__name__
            raise TypeError(f"the bytes of a model are expected, not {kind}") from None
    return load_model(_proto(model, path))


def initializer(proto: onnx.ModelProto, name: str) -> onnx.TensorProto | None:
    """The initializer of a name, or None."""
    return next((t for t in proto.graph.initializer if t.name == name), None)


def replace_data(tensor: onnx.TensorProto, address: int, size: int) -> bool:
    """Give a tensor the bytes at an address; False where they are not as many as it takes.

    Raises AddressError where there is no such memory.
    """
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count = 1
    for d in tensor.dims:
        count *= d
    if size != count * kind.itemsize:
        return False
    data = bytes_at(address, size, f"initializer {tensor.name!r}").tobytes()
    dims, number, name = list(tensor.dims), tensor.data_type, tensor.name
    tensor.Clear()
    tensor.name, tensor.data_type = name, number
    tensor.dims.extend(dims)
    tensor.raw_data = data
    return True


def get_nv_onnx_parser_version() -> int:
    """The version of the API, as a number."""
    return 101300
