"""Plugins in runs: they get their inputs as an engine tells of them, and fill its tensors.

An address that a plugin gets is an int, and has the tensor as an array too: `inputs[0].array`.
"""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from braze.core.errors import ExecutionError, TargetError
from braze.tensorrt.dims import Dims
from braze.tensorrt.dtypes import array_type
from braze.tensorrt.enums_plugin import PluginCapabilityType, PluginFieldType, TensorRTPhase
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layers_plugin import CARRIERS
from braze.tensorrt.plugin_fields import (
    PluginField,
    PluginFieldCollection,
    PluginTensorDesc,
    evaluate,
)
from braze.tensorrt.plugin_registry import IPluginRegistry, get_plugin_registry
from braze.tensorrt.plugins import IPluginResourceContext

Array = np.ndarray[Any, Any]
MARK: Final = b"braze+plugins\0\0\0"  # in front of engines that run with their plugins alone


class Address(int):
    """Where a tensor lies. array: the tensor itself."""

    array: Array


def address_of(array: Array) -> Address:
    """The address of an array, which it keeps alive."""
    made = Address(array.ctypes.data)
    made.array = array
    return made


class EnginePlugins:
    """The plugins of an engine. Raises TargetError where a creator is not registered."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        registry = get_plugin_registry()
        self.plugins = [EnginePlugin(e, registry) for e in entries]
        self.inputs: dict[str, list[tuple[int, int]]] = {}
        self.outputs: dict[str, tuple[int, int]] = {}
        for number, entry in enumerate(entries):
            for place, source in enumerate(entry["inputs"]):
                if "debug" in source:
                    self.inputs.setdefault(source["debug"], []).append((number, place))
            for place, target in enumerate(entry["outputs"]):
                self.outputs[target["debug"]] = (number, place)

    @property
    def names(self) -> frozenset[str]:
        """The tensors that a run must tell of."""
        return frozenset((*self.inputs, *self.outputs))


class EnginePlugin:
    """One plugin, made by its creator."""

    def __init__(self, entry: Mapping[str, Any], registry: IPluginRegistry) -> None:
        self.entry = entry
        name, version, namespace = entry["creator"]
        creator = registry.get_creator(name, version, namespace)
        if creator is None:
            raise TargetError(
                f"the engine needs plugin {name!r} version {version!r} (namespace {namespace!r}), "
                "whose creator is not registered; register it before the engine is loaded"
            )
        if entry["kind"] == "v2":
            self.plugin = creator.deserialize_plugin(
                entry["layer"], base64.b64decode(entry["bytes"])
            )
            self.plugin.initialize()
            return
        fields = PluginFieldCollection(_field(f) for f in entry["fields"])
        made = creator.create_plugin(entry["layer"], fields, TensorRTPhase.RUNTIME)
        runtime = made.get_capability_interface(PluginCapabilityType.RUNTIME)
        attached = runtime.attach_to_context(IPluginResourceContext()) or made
        self.plugin = attached.get_capability_interface(PluginCapabilityType.RUNTIME)
        if entry["tactic"]:
            self.plugin.set_tactic(entry["tactic"])

    def run(self, inputs: Sequence[Array], stream: int) -> list[Array]:
        """The outputs for some inputs."""
        shapes = [x.shape for x in inputs]
        outputs = [
            np.zeros([evaluate(d, shapes) for d in o["shape"]], array_type(DataType[o["dtype"]]))
            for o in self.entry["outputs"]
        ]
        told = [[_desc(x, e["dtype"]) for x, e in zip(arrays, self.entry[side], strict=True)]
                for arrays, side in ((inputs, "inputs"), (outputs, "outputs"))]  # fmt: skip
        workspace = np.zeros(max(1, self.entry["workspace"]), np.uint8)
        places = [[address_of(x) for x in arrays] for arrays in (inputs, outputs)]
        if self.entry["kind"] == "v3":
            self.plugin.on_shape_change(*told)
        status = self.plugin.enqueue(*told, *places, address_of(workspace), stream)
        if status not in (None, 0):
            raise ExecutionError(f"plugin layer {self.entry['layer']!r} failed with {status}")
        return outputs


class PluginRun:
    """What one run knows of its plugins."""

    def __init__(self, plugins: EnginePlugins, stream: int) -> None:
        self.plugins, self.stream = plugins, stream
        self.read: dict[tuple[int, int], Array] = {}
        self.made: dict[int, list[Array]] = {}

    def tell(self, name: str, data: int, dims: Sequence[int]) -> None:
        """Hear of a tensor: keep what a plugin reads, fill what it makes."""
        for number, place in self.plugins.inputs.get(name, ()):
            entry = self.plugins.plugins[number].entry["inputs"][place]
            memory = _memory(data, dims, entry["dtype"])
            self.read[number, place] = memory.astype(array_type(DataType[entry["dtype"]]))
        if name not in self.plugins.outputs:
            return
        number, place = self.plugins.outputs[name]
        if number not in self.made:
            self.made[number] = self._run(number)
        entry = self.plugins.plugins[number].entry["outputs"][place]
        memory = _memory(data, dims, entry["dtype"])
        np.copyto(memory, self.made[number][place], casting="unsafe")

    def _run(self, number: int) -> list[Array]:
        plugin = self.plugins.plugins[number]
        inputs = [
            self.read[number, place] if "debug" in source else _content(source)
            for place, source in enumerate(plugin.entry["inputs"])
        ]
        return plugin.run(inputs, self.stream)


def _memory(data: int, dims: Sequence[int], dtype: str) -> Array:
    """The memory of a tensor that the engine tells of, without the axis in front."""
    kind = array_type(CARRIERS[DataType[dtype]])
    count = int(np.prod(dims, dtype=np.int64))
    if count == 0:
        return np.zeros(tuple(dims)[1:], kind)
    bytes_ = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(data)
    flat: Array = np.frombuffer(memoryview(bytes_).cast("B"), kind)
    made: Array = flat.reshape(tuple(dims)[1:])
    return made


def _content(source: Mapping[str, Any]) -> Array:
    data = base64.b64decode(source["content"])
    array: Array = np.frombuffer(data, array_type(DataType[source["dtype"]])).copy()
    made: Array = array.reshape(source["shape"])
    return made


def _desc(array: Array, dtype: str) -> PluginTensorDesc:
    made = PluginTensorDesc()
    made.dims, made.type = Dims(array.shape), DataType[dtype]
    return made


def _field(kept: Sequence[Any]) -> PluginField:
    name, kind, dtype, content = kept
    data = np.frombuffer(base64.b64decode(content), np.dtype(dtype)).copy()
    return PluginField(name, data, PluginFieldType[kind])


def marked(data: bytes) -> bytes:
    """An engine that needs its plugins: nothing else than this API reads it."""
    return MARK + data


def unmarked(data: Any) -> Any:
    """The bytes of an engine, whether it needs plugins or not."""
    return data[len(MARK) :] if bytes(data[: len(MARK)]) == MARK else data
