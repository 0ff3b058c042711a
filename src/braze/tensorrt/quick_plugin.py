"""A plugin that is made of functions, and what makes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from braze.tensorrt.enums_plugin import PluginFieldType
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.plugin_fields import (
    DimsExprs,
    IDimensionExpr,
    PluginField,
    PluginFieldCollection,
    PluginFieldCollection_,
)
from braze.tensorrt.plugins import (
    IPluginCreatorV3Quick,
    IPluginV3,
    IPluginV3QuickBuild,
    IPluginV3QuickCore,
    IPluginV3QuickRuntime,
)
from braze.tensorrt.quick_schema import Schema, element_type, is_array
from braze.tensorrt.quick_tensors import ShapeExpr, ShapeExprs, Tensor, TensorDesc
from braze.tensorrt.tensor import ITensor

Function = Callable[..., Any]
Attributes = Mapping[str, Any]
_NAMES: Final = {
    DataType.FLOAT: "FP32",
    DataType.HALF: "FP16",
    DataType.BF16: "BF16",
    DataType.INT8: "INT8",
    DataType.INT32: "INT32",
    DataType.INT64: "INT64",
    DataType.BOOL: "BOOL",
    DataType.UINT8: "UINT8",
}


class QuickCreator(IPluginCreatorV3Quick):
    """The functions of a plugin, registered under its name.

    describe: tells the outputs, and schema, what it declares; implementation, combinations, kernel:
    of `impl`, `autotune` and `aot_impl`, or None.
    """

    def __init__(self, name: str, namespace: str, describe: Function, schema: Schema) -> None:
        super().__init__()
        self.name, self.plugin_namespace, self.plugin_version = name, namespace, "1"
        self.describe, self.schema = describe, schema
        self.field_names = PluginFieldCollection_(PluginField(n) for n in schema.attributes)
        self.implementation: Function | None = None
        self.combinations: Function | None = None
        self.kernel: Function | None = None

    def make(self, attributes: Attributes) -> QuickPlugin:
        """A plugin with attributes."""
        return QuickPlugin(self, attributes)

    def create_plugin(self, name: str, *arguments: Any) -> QuickPlugin:
        """A plugin of fields; arguments: fields and phase, or a namespace before these."""
        fields = arguments[1] if isinstance(arguments[0], str) else arguments[0]
        return self.make({f.name: _value(self.schema.attributes.get(f.name), f) for f in fields})


def _value(annotation: Any, field: Any) -> Any:
    """An attribute of a field: text, bytes, an array where the function wants one, or a number."""
    if field.type is PluginFieldType.CHAR:
        return bytes(np.asarray(field.data, np.int8)).decode()
    if annotation is bytes:
        return bytes(np.asarray(field.data, np.uint8))
    if field.size != 1 or is_array(annotation):
        kind = element_type(annotation)  # arrays of bool are kept as numbers
        return np.asarray(field.data) if kind is None else np.asarray(field.data).astype(kind)
    value = field.data[0].item()
    return bool(value) if annotation is bool else value


class QuickPlugin(IPluginV3, IPluginV3QuickCore, IPluginV3QuickBuild, IPluginV3QuickRuntime):
    """A plugin whose parts are the functions of its creator."""

    def __init__(self, creator: QuickCreator, attributes: Attributes) -> None:
        super().__init__()
        self.creator, self.attributes = creator, dict(attributes)
        self.plugin_name = creator.name
        self.plugin_namespace, self.plugin_version = creator.plugin_namespace, "1"
        self._tactic = 0

    def get_capability_interface(self, type: Any) -> QuickPlugin:
        """It is all of its parts."""
        return self

    def clone(self) -> QuickPlugin:
        """Another one."""
        return QuickPlugin(self.creator, self.attributes)

    def attach_to_context(self, resource_context: Any) -> QuickPlugin:
        """Another one for a context."""
        return self.clone()

    # ---- while a network is built ---------------------------------------------------------

    def outputs_of(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """What the outputs are, as the function tells."""
        told = self._call(self.creator.describe, inputs)
        return list(told) if isinstance(told, (tuple, list)) else [told]

    def count(self, inputs: Sequence[ITensor]) -> int:
        """How many outputs there are, for tensors of a network."""
        descs = [TensorDesc(list(t.shape), t.dtype) for t in inputs]
        for desc in descs:  # sizes that the run knows may not be used as numbers
            desc.shape_expr = ShapeExprs(
                ShapeExpr(IDimensionExpr(None, ["axis", 0, 0])) if s.constant_value() < 0 else s
                for s in desc.shape_expr
            )
        return len(self.outputs_of(descs))

    def get_output_data_types(self, input_types: Any) -> list[DataType]:
        """The types of the outputs."""
        return [d.dtype for d in self._told]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> list[DimsExprs]:
        """The sizes of the outputs."""
        return [DimsExprs([s.expr for s in d.shape_expr]) for d in self._told]

    def tell(self, types: Sequence[DataType], sizes: Sequence[DimsExprs]) -> None:
        """Hear of the inputs, before types and sizes are asked for."""
        descs = [
            TensorDesc([ShapeExpr(s[k]) for k in range(len(s))], t)
            for t, s in zip(types, sizes, strict=True)
        ]
        self._told = self.outputs_of(descs)
        self._inputs = descs

    def check(self) -> str | None:
        """Why it cannot run here, or None."""
        if self.creator.implementation is None:
            return "it has no function of `tensorrt.plugin.impl`, and kernels are not launched"
        if self.creator.combinations is None:
            return None
        offered = self._call(self.creator.combinations, self._inputs, outputs=tuple(self._told))
        types = [_NAMES.get(d.dtype, d.dtype.name) for d in (*self._inputs, *self._told)]
        fitting = [c for c in offered if c.takes(types)]
        if not fitting:
            return f"its implementation takes no linear tensors of types {', '.join(types)}"
        self._tactic = fitting[0].first_tactic
        return None

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        """True: `check` looks at all tensors together."""
        return True

    def configure_plugin(self, in_: Any, out: Any) -> None:
        """Nothing is left to be done."""

    def get_valid_tactics(self) -> list[int]:
        """The tactic that runs, if there is a choice."""
        return [self._tactic] if self._tactic else []

    def get_workspace_size(self, in_: Any, out: Any) -> int:
        """0: functions bring their own memory."""
        return 0

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        """The attributes."""
        return PluginFieldCollection(_field(k, v) for k, v in self.attributes.items())

    # ---- in a run -------------------------------------------------------------------------

    def set_tactic(self, tactic: int) -> None:
        """Run in this way from now on."""
        self._tactic = tactic

    def on_shape_change(self, in_: Any, out: Any) -> None:
        """Nothing depends on sizes."""

    def enqueue(
        self,
        input_desc: Any,
        output_desc: Any,
        inputs: Any,
        outputs: Any,
        workspace: Any,
        stream: int,
    ) -> None:
        """Call the function."""
        assert self.creator.implementation is not None
        ins, outs = (
            [Tensor(a.array, d.type) for a, d in zip(places, descs, strict=True)]
            for places, descs in ((inputs, input_desc), (outputs, output_desc))
        )
        more = {"outputs": tuple(outs), "stream": stream, "tactic": self._tactic}
        self._call(self.creator.implementation, ins, **more)

    def _call(self, function: Function, tensors: Sequence[Any], **more: Any) -> Any:
        """A function with its tensors, its attributes, and of the rest what it asks for."""
        names = list(inspect.signature(self.creator.describe).parameters)
        left = iter(tensors)
        known = {n: self.attributes[n] if n in self.attributes else next(left) for n in names}
        known |= more
        wanted = inspect.signature(function).parameters
        return function(**{n: known[n] for n in wanted})


def _field(name: str, value: Any) -> PluginField:
    if isinstance(value, str):
        return PluginField(name, np.frombuffer(value.encode(), np.int8), PluginFieldType.CHAR)
    if isinstance(value, bytes):
        return PluginField(name, np.frombuffer(value, np.uint8))
    array = np.atleast_1d(np.asarray(value))
    if array.dtype == np.bool_:
        array = array.astype(np.int32)
    return PluginField(name, array)
