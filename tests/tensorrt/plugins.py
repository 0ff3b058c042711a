"""Plugins of both kinds, and their creators."""

from __future__ import annotations

from typing import Any

import numpy as np

import braze.tensorrt as trt


class Halving(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """Every second element of the last axis, `times` as large, in half precision."""

    def __init__(self, times: int = 1) -> None:
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = "Halving", "1", ""
        self.num_outputs, self.times, self.tactic = 1, times, 0
        self.calls: list[str] = []

    def get_capability_interface(self, type: Any) -> Any:
        assert isinstance(type, trt.PluginCapabilityType)
        return self

    def get_output_data_types(self, input_types: Any) -> Any:
        assert input_types == [trt.float32]
        return [trt.float16]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
        shape = trt.DimsExprs(len(inputs[0]))
        for i in range(len(shape)):
            shape[i] = inputs[0][i]
        two = expr_builder.constant(2)
        last = len(shape) - 1
        shape[last] = expr_builder.operation(trt.DimensionOperation.CEIL_DIV, inputs[0][last], two)
        return [shape]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        desc = in_out[pos].desc
        wanted = trt.float32 if pos < num_inputs else trt.float16
        return desc.format is trt.TensorFormat.LINEAR and desc.type is wanted

    def configure_plugin(self, in_: Any, out: Any) -> None:
        self.calls.append("configure")
        assert in_[0].desc.type is trt.float32 and len(in_[0].max) == len(out[0].desc.dims)
        assert all(a <= b <= c for a, b, c in zip(in_[0].min, in_[0].opt, in_[0].max, strict=True))

    def get_valid_tactics(self) -> list[int]:
        return [7]

    def set_tactic(self, tactic: int) -> None:
        self.tactic = tactic

    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return 64

    def get_fields_to_serialize(self) -> Any:
        times = np.array([self.times], np.int32)
        return trt.PluginFieldCollection(
            [trt.PluginField("times", times, trt.PluginFieldType.INT32)]
        )

    def attach_to_context(self, resource_context: Any) -> Any:
        assert isinstance(resource_context, trt.IPluginResourceContext)
        return self.clone()

    def clone(self) -> Any:
        return Halving(self.times)

    def on_shape_change(self, in_: Any, out: Any) -> None:
        self.calls.append("shape")

    def enqueue(
        self,
        input_desc: Any,
        output_desc: Any,
        inputs: Any,
        outputs: Any,
        workspace: Any,
        stream: int,
    ) -> None:
        assert self.tactic == 7 and self.calls == ["shape"] and isinstance(inputs[0], int)
        self.calls = []
        x, y = inputs[0].array, outputs[0].array
        assert x.ctypes.data == inputs[0]
        assert x.shape == tuple(input_desc[0].dims) and y.shape == tuple(output_desc[0].dims)
        assert workspace.array.nbytes == 64 and output_desc[0].type is trt.float16
        y[...] = x[..., ::2] * self.times


class Creator(trt.IPluginCreatorV3One):
    def __init__(self) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version = "Halving", "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("times", np.array([1], np.int32), trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name: str, fields: Any, phase: Any) -> Any:
        assert phase is trt.TensorRTPhase.RUNTIME or phase is trt.TensorRTPhase.BUILD
        assert fields[0].name == "times"
        return Halving(int(fields[0].data[0]))


class Old(trt.IPluginV2DynamicExt):
    """x and a table of weights, multiplied; where the product is above zero."""

    def __init__(self, data: bytes = b"\x02") -> None:
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs, self.plugin_type, self.plugin_version = 2, "Old", "1"
        self.data = data

    def get_output_datatype(self, index: int, input_types: Any) -> Any:
        return input_types[0] if index == 0 else trt.bool

    def get_output_dimensions(self, output_index: int, inputs: Any, expr_builder: Any) -> Any:
        shape = trt.DimsExprs(1)
        shape[0] = expr_builder.operation(trt.DimensionOperation.PROD, inputs[0][0], inputs[0][1])
        return shape

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return in_out[pos].format is trt.TensorFormat.LINEAR

    def initialize(self) -> int:
        self.ready = True
        return 0

    def configure_plugin(self, in_: Any, out: Any) -> None:
        assert (len(in_), len(out)) == (2, 2) and in_[0].desc.scale == 1
        self.configured = True

    def serialize(self) -> bytes:
        return self.data

    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return 0

    def enqueue(
        self,
        input_desc: Any,
        output_desc: Any,
        inputs: Any,
        outputs: Any,
        workspace: int,
        stream: int,
    ) -> int:
        assert self.ready
        x, w = (a.array for a in inputs)
        made = (x * w * self.data[0]).reshape(-1)
        outputs[0].array[...] = made
        outputs[1].array[...] = made > 0
        return 0


class OldCreator(trt.IPluginCreator):
    def __init__(self) -> None:
        trt.IPluginCreator.__init__(self)
        self.name, self.plugin_version = "Old", "1"
        self.field_names = trt.PluginFieldCollection([trt.PluginField("times")])

    def create_plugin(self, name: str, fields: Any) -> Any:
        return Old(bytes(int(f.data[0]) for f in fields))

    def deserialize_plugin(self, name: str, serialized_plugin: Any) -> Any:
        return Old(bytes(serialized_plugin))
