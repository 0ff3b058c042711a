"""Plugins as layers: their outputs have types and sizes; what they compute, no engine can call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from braze.core.dims import Dim
from braze.core.errors import UnsupportedOpError
from braze.ir.graph import TensorType
from braze.tensorrt.adding import Adding
from braze.tensorrt.dtypes import core_type
from braze.tensorrt.enums_layers import LayerType
from braze.tensorrt.enums_plugin import PluginCapabilityType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.plugin_fields import DimsExprs, IDimensionExpr, IExprBuilder
from braze.tensorrt.plugins import IPluginV3
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter


class _PluginLayer(ILayer):
    _plugin: Any
    _count: int

    @property
    def plugin(self) -> Any:
        """The plugin."""
        return self._plugin

    def lower(self, emit: Emitter) -> None:
        """Stand-ins: the types and sizes that the plugin tells."""
        types = [emit.dtype(emit.input(i)) for i in range(self.num_inputs)]
        sizes = []
        for i in range(self.num_inputs):
            shape = emit.type(emit.input(i)).shape
            sizes.append(DimsExprs([_size(d) for d in shape]))
        for index, (kind, dims) in enumerate(self._told(types, sizes)):
            given = [dims[i].get_constant_value() for i in range(len(dims))]
            shape = tuple(
                d if d is not None else emit.lowering.builder.run_symbol("plugin", 0, 2**31 - 1)
                for d in given
            )
            emit.stand_in(index, TensorType(core_type(kind), shape))

    def _told(self, types: Any, sizes: Any) -> list[tuple[Any, DimsExprs]]:
        raise NotImplementedError


def _size(d: Dim) -> IDimensionExpr:
    return IDimensionExpr(d if isinstance(d, int) else None)


class IPluginV2Layer(_PluginLayer):
    """A plugin of releases before 10."""

    layer_type, word = LayerType.PLUGIN_V2, "PluginV2"

    def _told(self, types: Any, sizes: Any) -> list[tuple[Any, DimsExprs]]:
        made, plugin = [], self._plugin
        for index in range(self._count):
            kind = plugin.get_output_datatype(index, types)
            made.append((kind, plugin.get_output_dimensions(index, sizes, IExprBuilder())))
        return made


class IPluginV3Layer(_PluginLayer):
    """A plugin."""

    layer_type, word = LayerType.PLUGIN_V3, "PluginV3"
    _shapes: int  # inputs at the end that are sizes

    def _told(self, types: Any, sizes: Any) -> list[tuple[Any, DimsExprs]]:
        build = self._plugin.get_capability_interface(PluginCapabilityType.BUILD)
        count = len(sizes) - self._shapes
        kinds = build.get_output_data_types(types[:count])
        shapes = build.get_output_shapes(sizes[:count], sizes[count:], IExprBuilder())
        return list(zip(kinds, shapes, strict=True))


_P = TypeVar("_P", bound=_PluginLayer)


def refuse_plugins(layers: Sequence[ILayer]) -> None:
    """Raise UnsupportedOpError where a network has plugins: engines cannot call Python."""
    for layer in layers:
        if isinstance(layer, _PluginLayer):
            name = type(layer.plugin).__name__
            raise UnsupportedOpError(
                f"layer {layer.name!r}: plugin {name} runs in Python, which engines do not call "
                "yet; say it in layers"
            )


class AddPlugin(Adding):
    """The part of INetworkDefinition that adds plugins."""

    def add_plugin_v3(
        self, inputs: Sequence[ITensor], shape_inputs: Sequence[ITensor], plugin: IPluginV3
    ) -> IPluginV3Layer | None:
        """A plugin; its outputs have the types and sizes that it tells."""
        build = plugin.get_capability_interface(PluginCapabilityType.BUILD)
        count = 0 if build is None else int(build.num_outputs)
        layer = self._plugin(IPluginV3Layer, [*inputs, *shape_inputs], plugin, count)
        if layer is not None:
            layer._shapes = len(shape_inputs)
        return layer

    def add_plugin_v2(self, inputs: Sequence[ITensor], plugin: Any) -> IPluginV2Layer | None:
        """A plugin of releases before 10, if it tells sizes as IPluginV2DynamicExt does."""
        if not hasattr(plugin, "get_output_dimensions"):
            self._refuse("add_plugin_v2: only plugins of kind IPluginV2DynamicExt can be added")
            return None
        return self._plugin(IPluginV2Layer, inputs, plugin, int(plugin.num_outputs))

    def add_plugin(self, *arguments: Any, **named: Any) -> None:
        """None: plugins of `tensorrt.plugin` are not supported."""
        self._refuse("add_plugin is not supported; say what the plugin does in layers")

    def _plugin(
        self, kind: type[_P], inputs: Sequence[ITensor], plugin: Any, count: int
    ) -> _P | None:
        for tensor in inputs:
            if not isinstance(tensor, ITensor):
                raise TypeError(f"{kind.__name__}: an ITensor is expected, not {tensor!r}")
        if count < 1:
            self._refuse(f"{kind.word}: the plugin has no outputs")
            return None
        layer = kind(self._network, inputs)
        layer._plugin, layer._count = plugin, count
        name = f"(Unnamed Layer* {len(self._layers)}) [{layer.word}]"
        outputs = [f"{name}_output_{i}" for i in range(count)]
        return self._append(layer, name, outputs)
