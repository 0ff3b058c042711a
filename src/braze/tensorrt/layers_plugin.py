"""Plugins as layers.

A plugin runs in Python, in the midst of a run: the engine tells of its inputs, and of tensors in
place of its outputs that other kernels have made as large, which the plugin then fills (see
`plugin_runs.py`). What is told of is made by running sums along an axis of one element: they keep
every number, and no other kernel takes them in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from braze.core.dims import Dim
from braze.tensorrt.adding import Adding
from braze.tensorrt.enums_layers import LayerType
from braze.tensorrt.enums_plugin import PluginCapabilityType
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.plugin_fields import DimsExprs, IDimensionExpr, IExprBuilder
from braze.tensorrt.plugins import IPluginV3
from braze.tensorrt.quick_plugin import QuickPlugin
from braze.tensorrt.recorder import RAISED
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter

# the type that tensors have on their way to and from a plugin
CARRIERS: Final = {
    DataType.FLOAT: DataType.FLOAT,
    DataType.HALF: DataType.HALF,
    DataType.BF16: DataType.FLOAT,
    DataType.INT32: DataType.INT32,
    DataType.INT64: DataType.INT64,
    DataType.INT8: DataType.INT32,
    DataType.UINT8: DataType.INT32,
    DataType.BOOL: DataType.INT32,
}


class PluginLayer(ILayer):
    """A plugin of any kind."""

    _plugin: Any
    _count: int
    _shapes: int = 0  # inputs at the end that are sizes

    @property
    def plugin(self) -> Any:
        """The plugin."""
        return self._plugin

    def lower(self, emit: Emitter) -> None:
        """What the plugin reads, and what it fills, as tensors that a run tells of."""
        data = self.num_inputs - self._shapes
        names = [emit.input(i) for i in range(data)]
        types = [emit.dtype(n) for n in names]
        sizes = [
            DimsExprs([_size(d, i, k) for k, d in enumerate(emit.type(n).shape)])
            for i, n in enumerate(names)
        ]
        contents = [_content(emit, emit.input(i)) for i in range(data, self.num_inputs)]
        try:
            told = self._told(types, sizes, contents)
        except RAISED as e:  # which no program must hear of as a bug of braze
            raise emit.wrong(f"its plugin raised {type(e).__name__}: {e}") from e
        sources, parts = [], []
        for name, kind in zip(names, types, strict=True):
            constant = emit.array(name)
            if constant is not None:
                sources.append({"content": constant, "dtype": kind.name})
                continue
            seen = self._passed(emit, emit.cast(name, _carrier(emit, kind)))
            sources.append({"debug": seen, "dtype": kind.name})
            axes = emit.ints(range(emit.rank(seen)))
            most = emit.node("ReduceMax", seen, axes, keepdims=0)
            parts.append(emit.cast(most, DataType.FLOAT))
        if not parts:
            raise emit.wrong("its inputs are all constant; compute its outputs before")
        order = parts[0]  # outputs are made of it, so that they come behind all inputs
        for part in parts[1:]:
            order = emit.node("Add", order, part)
        targets = [
            self._target(emit, i, kind, dims, order, names) for i, (kind, dims) in enumerate(told)
        ]
        emit.said.plugin = {"layer": self, "inputs": sources, "outputs": targets}

    def _target(
        self, emit: Emitter, index: int, kind: Any, dims: DimsExprs, order: str, names: list[str]
    ) -> dict[str, Any]:
        """An output: as large as it will be, its content of no meaning before the plugin ran."""
        sizes = [dims[k] for k in range(len(dims))]
        if any(s.how is None for s in sizes):
            raise emit.wrong("sizes that a plugin finds in a run are not supported; give a bound")
        vectors = [emit.ints([1]), *(_as_node(emit, s.how or [], names) for s in sizes)]
        shape = emit.node("Concat", *vectors, axis=0)
        # no two outputs are made alike, or they would be one
        number = emit.constant(np.float32(1 + index + 16 * self._number))
        own = emit.cast(emit.node("Add", order, number), _carrier(emit, kind))
        made = self._passed(emit, emit.node("Expand", own, shape), first=False)
        emit.give(index, emit.cast(emit.node("Squeeze", made, emit.ints([0])), kind))
        return {"debug": made, "dtype": kind.name, "shape": [s.how for s in sizes]}

    def _passed(self, emit: Emitter, x: str, first: bool = True) -> str:
        """A tensor with an axis of one element in front, as a kernel of its own makes it."""
        wide = emit.node("Unsqueeze", x, emit.ints([0])) if first else x
        return emit.node("CumSum", wide, emit.constant(np.int64(0)))

    def _told(self, types: Any, sizes: Any, contents: Any) -> list[tuple[Any, DimsExprs]]:
        raise NotImplementedError


def _carrier(emit: Emitter, kind: Any) -> DataType:
    if kind not in CARRIERS:
        raise emit.wrong(f"a plugin cannot have tensors of {kind}; cast them to HALF or FLOAT")
    return CARRIERS[kind]


def _size(d: Dim, index: int, axis: int) -> IDimensionExpr:
    return IDimensionExpr(d) if isinstance(d, int) else IDimensionExpr(None, ["axis", index, axis])


def _content(emit: Emitter, name: str) -> DimsExprs:
    """The numbers in an input that holds sizes; a plugin does not read it in a run."""
    known = emit.content(name)
    if known is None or not all(isinstance(v, (int, np.integer)) for v in known.flat):
        raise emit.wrong("inputs that hold sizes must be constants; take them from add_constant")
    return DimsExprs([IDimensionExpr(int(v)) for v in known.reshape(-1)])


def _as_node(emit: Emitter, how: Sequence[Any], names: list[str]) -> str:
    """A size as a vector of one element."""
    if how[0] == "const":
        return emit.ints([how[1]])
    if how[0] == "axis":
        return emit.node("Gather", emit.shape_of(names[how[1]]), emit.ints([how[2]]), axis=0)
    a, b = (_as_node(emit, part, names) for part in how[1:])
    ops = {"SUM": "Add", "PROD": "Mul", "MAX": "Max", "MIN": "Min", "SUB": "Sub"}
    if how[0] in ("FLOOR_DIV", "CEIL_DIV"):
        if how[0] == "CEIL_DIV":
            a = emit.node("Sub", emit.node("Add", a, b), emit.ints([1]))
        return emit.node("Div", a, b)
    if how[0] in ops:
        return emit.node(ops[how[0]], a, b)
    return emit.cast(emit.node("Equal" if how[0] == "EQUAL" else "Less", a, b), DataType.INT64)


class IPluginV2Layer(PluginLayer):
    """A plugin of releases before 10."""

    layer_type, word = LayerType.PLUGIN_V2, "PluginV2"

    def _told(self, types: Any, sizes: Any, contents: Any) -> list[tuple[Any, DimsExprs]]:
        made, plugin = [], self._plugin
        for index in range(self._count):
            kind = plugin.get_output_datatype(index, types)
            made.append((kind, plugin.get_output_dimensions(index, sizes, IExprBuilder())))
        return made


class IPluginV3Layer(PluginLayer):
    """A plugin."""

    layer_type, word = LayerType.PLUGIN_V3, "PluginV3"

    def _told(self, types: Any, sizes: Any, contents: Any) -> list[tuple[Any, DimsExprs]]:
        build = self._plugin.get_capability_interface(PluginCapabilityType.BUILD)
        if isinstance(build, QuickPlugin):
            build.tell(types, sizes)
        kinds = build.get_output_data_types(types)
        shapes = build.get_output_shapes(sizes, contents, IExprBuilder())
        return list(zip(kinds, shapes, strict=True))


_P = TypeVar("_P", bound=PluginLayer)


class AddPlugin(Adding):
    """The part of INetworkDefinition that adds plugins."""

    def add_plugin_v3(
        self, inputs: Sequence[ITensor], shape_inputs: Sequence[ITensor], plugin: IPluginV3
    ) -> IPluginV3Layer | None:
        """A plugin; its outputs have the types and sizes that it tells."""
        try:
            build = plugin.get_capability_interface(PluginCapabilityType.BUILD)
            count = 0 if build is None else int(build.num_outputs)
        except RAISED as e:  # of the plugin
            self._refuse(f"add_plugin_v3: the plugin raised {type(e).__name__}: {e}")
            return None
        layer = self._plugin(IPluginV3Layer, [*inputs, *shape_inputs], plugin, count)
        if layer is not None:
            layer._shapes = len(shape_inputs)
        return layer

    def add_plugin_v2(self, inputs: Sequence[ITensor], plugin: Any) -> IPluginV2Layer | None:
        """A plugin of releases before 10, if it tells sizes as IPluginV2DynamicExt does."""
        if not hasattr(plugin, "get_output_dimensions"):
            self._refuse("add_plugin_v2: only plugins of kind IPluginV2DynamicExt can be added")
            return None
        try:
            count = int(plugin.num_outputs)
        except RAISED as e:  # of the plugin
            self._refuse(f"add_plugin_v2: the plugin raised {type(e).__name__}: {e}")
            return None
        return self._plugin(IPluginV2Layer, inputs, plugin, count)

    def add_plugin(
        self, call: tuple[Sequence[ITensor], Any], aot: bool = False
    ) -> IPluginV3Layer | None:
        """What a function of `tensorrt.plugin.op` gives: tensors, and the plugin that takes them.

        aot: asks for a kernel of a GPU, which no engine here launches.
        """
        if not isinstance(call, tuple) or len(call) != 2 or not isinstance(call[1], QuickPlugin):
            raise TypeError(f"add_plugin: a call of tensorrt.plugin.op is expected, not {call!r}")
        if aot:
            self._refuse("add_plugin: kernels of plugins are not launched; use `impl`")
            return None
        inputs, plugin = call
        if not self._owns(inputs, IPluginV3Layer.__name__):
            return None
        try:
            count = plugin.count(inputs)
        except RAISED as e:  # of the function that was registered
            self._refuse(f"add_plugin: the plugin raised {type(e).__name__}: {e}")
            return None
        return self._plugin(IPluginV3Layer, inputs, plugin, count)

    def _plugin(
        self, kind: type[_P], inputs: Sequence[ITensor], plugin: Any, count: int
    ) -> _P | None:
        if not self._owns(inputs, kind.__name__):
            return None
        if count < 1:
            self._refuse(f"{kind.word}: the plugin has no outputs")
            return None
        layer = kind(self._network, inputs)
        layer._plugin, layer._count = plugin, count
        name = f"(Unnamed Layer* {len(self._layers)}) [{layer.word}]"
        outputs = [f"{name}_output_{i}" for i in range(count)]
        return self._append(layer, name, outputs)
