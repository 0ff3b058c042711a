"""What an engine keeps of its plugins, and what plugins hear while it is built."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from braze.core.errors import ConfigError
from braze.tensorrt.dims import Dims
from braze.tensorrt.enums_plugin import PluginCapabilityType
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layers_plugin import IPluginV3Layer, PluginLayer
from braze.tensorrt.plugin_fields import DynamicPluginTensorDesc, PluginTensorDesc
from braze.tensorrt.quick_plugin import QuickPlugin
from braze.tensorrt.recorder import RAISED

C = PluginCapabilityType


def kept_plugin(part: Mapping[str, Any], named: Callable[[str], str]) -> dict[str, Any]:
    """A plugin as JSON holds it. named: a tensor's name in the lowering -> in a run.

    Raises ConfigError where the plugin takes no linear tensors of the types that there are.
    """
    layer: PluginLayer = part["layer"]
    inputs = [_described(t) for t in layer._inputs[: len(part["inputs"])]]
    outputs = [_described(t) for t in layer._outputs]
    is_v3 = isinstance(layer, IPluginV3Layer)
    try:
        made = _kept_v3(layer, inputs, outputs) if is_v3 else _kept_v2(layer, inputs, outputs)
    except ConfigError:
        raise
    except RAISED as e:
        why = f"its plugin raised {type(e).__name__}: {e}"
        raise ConfigError(f"layer {layer.name!r}: {why}") from e
    return {
        **made,
        "layer": layer.name,
        "inputs": [_source(s, named) for s in part["inputs"]],
        "outputs": [{**o, "debug": named(o["debug"])} for o in part["outputs"]],
    }


def _source(source: Mapping[str, Any], named: Callable[[str], str]) -> dict[str, Any]:
    if "debug" in source:
        return {**source, "debug": named(source["debug"])}
    array = np.ascontiguousarray(source["content"])
    data = base64.b64encode(array.tobytes()).decode("ascii")
    return {"content": data, "shape": list(array.shape), "dtype": source["dtype"]}


def _described(tensor: Any) -> DynamicPluginTensorDesc:
    made = DynamicPluginTensorDesc()
    made.desc.dims, made.desc.type = tensor.shape, tensor.dtype
    sizes = [d if d >= 0 else 1 for d in tensor.shape]
    made.min, made.opt, made.max = Dims(sizes), Dims(sizes), Dims(sizes)
    return made


def _kept_v3(layer: PluginLayer, inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
    plugin = layer.plugin
    core, build, runtime = (
        plugin.get_capability_interface(k) for k in (C.CORE, C.BUILD, C.RUNTIME)
    )
    refusal = build.check() if isinstance(build, QuickPlugin) else None
    if refusal is not None:
        raise ConfigError(f"layer {layer.name!r}: plugin {core.plugin_name!r}: {refusal}")
    _check_formats(layer, build, [*inputs, *outputs], len(inputs))
    build.configure_plugin(inputs, outputs)
    tactics = list(build.get_valid_tactics() or ())
    fields = runtime.get_fields_to_serialize() or ()
    return {
        "kind": "v3",
        "creator": [core.plugin_name, core.plugin_version, core.plugin_namespace],
        "fields": [_kept_field(f) for f in fields],
        "tactic": int(tactics[0]) if tactics else 0,
        "workspace": int(build.get_workspace_size(inputs, outputs) or 0),
    }


def _kept_field(field: Any) -> list[Any]:
    data = field.data
    array = np.frombuffer(data.encode(), np.int8) if isinstance(data, str) else np.asarray(data)
    content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return [str(field.name), field.type.name, array.dtype.str, content]


def _kept_v2(layer: PluginLayer, inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
    plugin = layer.plugin
    plain = [d.desc for d in (*inputs, *outputs)]
    _check_formats(layer, plugin, plain, len(inputs))
    plugin.configure_plugin(inputs, outputs)
    data = bytes(plugin.serialize() or b"")
    return {
        "kind": "v2",
        "creator": [plugin.plugin_type, plugin.plugin_version, plugin.plugin_namespace],
        "bytes": base64.b64encode(data).decode("ascii"),
        "workspace": int(plugin.get_workspace_size(plain[: len(inputs)], plain[len(inputs) :])),
    }


def _check_formats(layer: PluginLayer, build: Any, descs: list[Any], count: int) -> None:
    for place, desc in enumerate(descs):
        plain = desc if isinstance(desc, PluginTensorDesc) else desc.desc
        if not build.supports_format_combination(place, descs, count):
            kind: DataType = plain.type
            raise ConfigError(
                f"layer {layer.name!r}: the plugin does not take linear {kind.name} at place "
                f"{place}; cast what it reads to a type that it takes"
            )
