"""Nodes of ops that braze lacks, where a plugin of that name is registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from braze.core.errors import ModelError
from braze.frontend.onnx.records import NodeRecord, TensorRecord
from braze.ops.catalog import IMPORTERS
from braze.tensorrt.dims import Dims
from braze.tensorrt.enums_plugin import PluginFieldType, TensorRTPhase
from braze.tensorrt.plugin_fields import PluginField, PluginFieldCollection
from braze.tensorrt.plugin_registry import get_plugin_registry
from braze.tensorrt.plugins import IPluginCreator
from braze.tensorrt.recorder import RAISED
from braze.tensorrt.tensor import ITensor
from braze.tensorrt.weights import Weights

if TYPE_CHECKING:
    from braze.tensorrt.layer import ILayer
    from braze.tensorrt.network import INetworkDefinition

_OF_CREATOR: Final = ("plugin_version", "plugin_namespace")


def creator_of(node: NodeRecord) -> Any:
    """The creator of plugins that stands for an op, or None; ops of braze go before it."""
    if (node.domain, node.op_type) in IMPORTERS:
        return None
    version = str(node.attributes.get("plugin_version", "1"))
    given = node.attributes.get("plugin_namespace")
    for namespace in (node.domain, "") if given is None else (str(given),):
        found = get_plugin_registry().get_creator(node.op_type, version, namespace)
        if found is not None:
            return found
    return None


def add_plugin_node(
    network: INetworkDefinition,
    node: NodeRecord,
    creator: Any,
    tensors: Mapping[str, ITensor],
    initializers: Mapping[str, Any],
) -> ILayer:
    """A node as a plugin; its attributes are the fields. Raises ModelError where that fails."""
    fields = PluginFieldCollection(
        _field(k, v) for k, v in node.attributes.items() if k not in _OF_CREATOR
    )
    inputs = [_input(network, n, tensors, initializers) for n in node.inputs if n]
    is_v2 = isinstance(creator, IPluginCreator)
    phase = () if is_v2 else (TensorRTPhase.BUILD,)
    try:
        plugin = creator.create_plugin(node.name, fields, *phase)
    except RAISED as e:
        raise ModelError(f"{node.where}: its creator raised {type(e).__name__}: {e}") from e
    layer: ILayer | None = (
        network.add_plugin_v2(inputs, plugin)
        if is_v2
        else network.add_plugin_v3(inputs, [], plugin)
    )
    if layer is None or layer.num_outputs < len(node.outputs):
        raise ModelError(f"{node.where}: its plugin cannot be added, or has too few outputs")
    layer._name = node.name
    for tensor, name in zip(layer._outputs, node.outputs, strict=False):
        tensor._name = name
    return layer


def _input(
    network: INetworkDefinition,
    name: str,
    tensors: Mapping[str, ITensor],
    initializers: Mapping[str, Any],
) -> ITensor:
    if name in tensors:
        return tensors[name]
    record = initializers[name]
    if not isinstance(record, TensorRecord):
        raise ModelError(f"initializer {name!r} has {record.why}, which no plugin takes")
    array = np.ascontiguousarray(record.array)
    layer = network.add_constant(Dims(array.shape), Weights(array))
    assert layer is not None
    return layer._outputs[0]


def _field(name: str, value: Any) -> PluginField:
    if isinstance(value, str):
        data = np.frombuffer(value.encode(), np.int8)
        return PluginField(name, data, PluginFieldType.CHAR)
    if isinstance(value, np.ndarray):
        return PluginField(name, value)
    values = value if isinstance(value, tuple) else (value,)
    whole = all(isinstance(v, int) for v in values)
    return PluginField(name, np.array(values, np.int32 if whole else np.float32))
