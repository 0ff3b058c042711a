"""Plugins: their interfaces, the registry, and shapes of their outputs; none runs yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from tests.tensorrt.networks import new_network, plan_of


class Halving(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """Halves the last axis, in half precision."""

    def __init__(self) -> None:
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version, self.num_outputs = "Halving", "1", 1

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
        shape[last] = expr_builder.operation(trt.DimensionOperation.FLOOR_DIV, inputs[0][last], two)
        return [shape]


class Creator(trt.IPluginCreatorV3One):
    def __init__(self) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version = "Halving", "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("n", np.array([2], np.int32), trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name: str, fields: Any, phase: Any) -> Any:
        return Halving()


def test_outputs_have_the_types_and_sizes_that_a_plugin_tells() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (-1, 3, 8))
    layer = network.add_plugin_v3([x], [], Halving())
    assert network[0].type is trt.LayerType.PLUGIN_V3 and isinstance(layer.plugin, Halving)
    out = layer.get_output(0)
    assert tuple(out.shape) == (-1, 3, 4) and out.dtype is trt.float16
    behind = network.add_activation(out, trt.ActivationType.RELU).get_output(0)
    assert tuple(behind.shape) == (-1, 3, 4)
    network.mark_output(behind)
    assert plan_of(network, {"x": ((1, 3, 8),) * 3}) is None
    assert "Halving" in log.errors[-1] and "say it in layers" in log.errors[-1]
    assert network.add_plugin(None) is None and network.add_plugin_v2([x], Halving()) is None
    with pytest.raises(TypeError):
        network.add_plugin_v3([None], [], Halving())


class Old(trt.IPluginV2DynamicExt):
    def __init__(self) -> None:
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs, self.plugin_type, self.plugin_version = 1, "Old", "1"

    def get_output_datatype(self, index: int, input_types: Any) -> Any:
        return input_types[0]

    def get_output_dimensions(self, output_index: int, inputs: Any, expr_builder: Any) -> Any:
        shape = trt.DimsExprs(1)
        shape[0] = expr_builder.operation(trt.DimensionOperation.PROD, inputs[0][0], inputs[0][1])
        return shape


def test_plugins_of_old_releases() -> None:
    network, _ = new_network()
    x = network.add_input("x", trt.float32, (3, 4))
    layer = network.add_plugin_v2([x], Old())
    assert tuple(layer.get_output(0).shape) == (12,) and network[0].type.name == "PLUGIN_V2"
    assert layer.plugin.FORMAT_COMBINATION_LIMIT == 100 and layer.plugin.serialize() == b""
    assert layer.plugin.get_serialization_size() == 0 == layer.plugin.get_workspace_size([], [])
    with pytest.raises(NotImplementedError):
        layer.plugin.enqueue([], [], [], [], 0, 0)


def test_arithmetic_on_sizes() -> None:
    builder, op = trt.IExprBuilder(), trt.DimensionOperation
    seven, two = builder.constant(7), builder.constant(2)
    results = {
        op.SUM: 9, op.PROD: 14, op.MAX: 7, op.MIN: 2, op.SUB: 5, op.EQUAL: 0, op.LESS: 0,
        op.FLOOR_DIV: 3, op.CEIL_DIV: 4,
    }  # fmt: skip
    assert set(results) == set(op)
    for kind, wanted in results.items():
        made = builder.operation(kind, seven, two)
        assert made.is_constant() and made.get_constant_value() == wanted
    size = builder.declare_size_tensor(1, two, seven)
    assert size.is_size_tensor() and not size.is_constant()
    assert builder.operation(op.SUM, size, two).get_constant_value() is None


def test_the_registry() -> None:
    registry, creator = trt.get_plugin_registry(), Creator()
    assert registry.register_creator(creator) and not registry.register_creator(Creator())
    try:
        assert registry.get_creator("Halving", "1", "") is creator
        assert registry.get_plugin_creator("Halving", "1") is creator
        assert registry.get_creator("Halving", "2", "") is None
        assert creator in registry.all_creators and creator in registry.plugin_creator_list
        assert creator in registry.all_creators_recursive
        plugin = creator.create_plugin("p", creator.field_names, trt.TensorRTPhase.BUILD)
        assert isinstance(plugin, trt.IPluginV3)
    finally:
        assert registry.deregister_creator(creator)
    assert not registry.deregister_creator(creator)
    assert trt.init_libnvinfer_plugins(None, "") and registry.load_library("none.so") is None
    assert trt.get_builder_plugin_registry(trt.EngineCapability.STANDARD) is registry
    with pytest.raises(TypeError):
        registry.register_creator(object())


class Shared(trt.IPluginResource):
    def __init__(self) -> None:
        super().__init__()
        self.released = False

    def clone(self) -> Any:
        return Shared()

    def release(self) -> None:
        self.released = True


def test_resources_are_shared_and_released() -> None:
    registry = trt.get_plugin_registry()
    held = registry.acquire_plugin_resource("key", Shared())
    assert registry.acquire_plugin_resource("key", Shared()) is held
    assert registry.release_plugin_resource("key") == 0 and not held.released
    assert registry.release_plugin_resource("key") == 0 and held.released
    assert registry.release_plugin_resource("key") == -1


def test_fields_and_descriptions() -> None:
    field = trt.PluginField("n", np.array([1.5, 2], np.float32))
    assert (field.name, field.size, field.type) == ("n", 2, trt.PluginFieldType.FLOAT32)
    fields = trt.PluginFieldCollection([field])
    fields.append(trt.PluginField("m"))
    assert len(fields) == 2 and fields[1].size == 0
    desc = trt.DynamicPluginTensorDesc()
    desc.desc.dims, desc.min = trt.Dims([-1, 3]), trt.Dims([1, 3])
    assert desc.desc.type is trt.float32 and desc.desc.format is trt.TensorFormat.LINEAR
    assert trt.NodeIndices([1, 2]) == [1, 2] and trt.SubGraphCollection() == []
