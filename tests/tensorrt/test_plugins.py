"""Plugins: their interfaces and registry, the shapes of their outputs, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import braze
import braze.tensorrt as trt
from tests.tensorrt.networks import floats, new_network, plan_of


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


@pytest.fixture
def creators() -> Any:
    """Registered while a test runs."""
    made = [Creator(), OldCreator()]
    registry = trt.get_plugin_registry()
    for creator in made:
        assert registry.register_creator(creator)
    yield made
    for creator in made:
        assert registry.deregister_creator(creator)


def run_engine(data: Any, feeds: Any, outputs: Any) -> Any:
    """Run by addresses, as scripts do. outputs: arrays to fill by name."""
    log = trt.Logger(trt.Logger.ERROR)
    engine = trt.Runtime(log).deserialize_cuda_engine(data)
    context = engine.create_execution_context()
    for name, array in feeds.items():
        assert context.set_input_shape(name, array.shape)
    for name, array in {**feeds, **outputs}.items():
        assert context.set_tensor_address(name, array.ctypes.data)
    assert context.execute_async_v3(0)
    return outputs


@pytest.mark.parametrize("level", [0, 1, 3])
def test_a_plugin_runs_between_layers(creators: Any, level: int) -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (-1, 3, 8))
    before = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
    plugin = Halving(3)
    layer = network.add_plugin_v3([before], [], plugin)
    assert network[1].type is trt.LayerType.PLUGIN_V3 and layer.plugin is plugin
    out = layer.get_output(0)
    assert tuple(out.shape) == (-1, 3, 4) and out.dtype is trt.float16
    wide = network.add_cast(out, trt.float32).get_output(0)
    both = network.add_plugin_v3([wide], [], Halving(2)).get_output(0)
    after = network.add_cast(both, trt.float32).get_output(0)
    sum_ = network.add_reduce(after, trt.ReduceOperation.SUM, 0b10, False).get_output(0)
    for name, tensor in (("first", out), ("y", sum_)):
        tensor.name = name
        network.mark_output(tensor)
    data = plan_of(network, {"x": ((1, 3, 8), (2, 3, 8), (5, 3, 8))}, level)
    assert data is not None and plugin.calls == ["configure"], log.errors
    for batch in (2, 5):
        a = floats(batch, 3, 8)
        made = {"first": np.zeros((batch, 3, 4), np.float16), "y": np.zeros((batch, 2), np.float32)}
        run_engine(data, {"x": a}, made)
        first = (np.maximum(a, 0)[..., ::2] * 3).astype(np.float16)
        np.testing.assert_array_equal(made["first"], first)
        second = (first.astype(np.float32)[..., ::2] * 2).astype(np.float16)
        np.testing.assert_allclose(made["y"], second.astype(np.float32).sum(1), rtol=1e-5)


def test_engines_with_plugins_need_their_creators() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 8))
    out = network.add_plugin_v3([x], [], Halving()).get_output(0)
    network.mark_output(out)
    data = plan_of(network)
    assert trt.Runtime(log).deserialize_cuda_engine(data) is None
    assert "'Halving'" in log.errors[-1] and "register" in log.errors[-1]
    with pytest.raises(braze.EngineFormatError):  # it would run without the plugin
        braze.Engine.from_bytes(data)


class Failing(Halving):
    def clone(self) -> Any:
        return Failing(self.times)

    def enqueue(self, *arguments: Any) -> None:
        raise ValueError("the plugin is broken")


def test_what_a_plugin_raises_is_reported(creators: Any) -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 8))
    out = network.add_plugin_v3([x], [], Halving()).get_output(0)
    out.name = "y"
    network.mark_output(out)
    engine = trt.Runtime(log).deserialize_cuda_engine(plan_of(network))
    engine.plugins.plugins[0].plugin = Failing()
    context = engine.create_execution_context()
    a, y = floats(2, 8), np.zeros((2, 4), np.float16)
    context.set_tensor_address("x", a.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    assert not context.execute_async_v3(0) and "the plugin is broken" in log.errors[-1]


class Tiling(Halving):
    """The input again and again, as often as an input of sizes says."""

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
        times, shape = shape_inputs[0][0], trt.DimsExprs([inputs[0][0], inputs[0][1]])
        shape[1] = expr_builder.operation(trt.DimensionOperation.PROD, shape[1], times)
        return [shape]

    def clone(self) -> Any:
        return Tiling(self.times)

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *_: Any
    ) -> None:
        assert len(inputs) == 1 == len(outputs)
        x, y = inputs[0].array, outputs[0].array
        y[...] = np.tile(x, (1, y.shape[1] // x.shape[1]))


def test_inputs_that_hold_sizes(creators: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creators[0], "create_plugin", lambda *a: Tiling())
    network, log = new_network()
    x = network.add_input("x", trt.float32, (-1, 4))
    three = network.add_constant((1,), np.array([3], np.int64)).get_output(0)
    out = network.add_plugin_v3([x], [three], Tiling()).get_output(0)
    assert tuple(out.shape) == (-1, 12)
    out.name = "y"
    network.mark_output(out)
    data = plan_of(network, {"x": ((1, 4), (2, 4), (2, 4))})
    assert data is not None, log.errors
    a, made = floats(2, 4), {"y": np.zeros((2, 12), np.float16)}
    run_engine(data, {"x": a}, made)
    np.testing.assert_array_equal(made["y"], np.tile(a, (1, 3)).astype(np.float16))
    network.add_plugin_v3([x], [network.add_input("n", trt.int64, (1,))], Tiling())
    with pytest.raises(ValueError):
        _ = network[2].get_output(0).shape
    assert "hold sizes must be constants" in log.errors[-1]


def test_wrong_use_of_plugins() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 8))
    assert network.add_plugin_v2([x], Halving()) is None
    with pytest.raises(TypeError):
        network.add_plugin_v3([None], [], Halving())

    class Picky(Halving):
        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            return False

    out = network.add_plugin_v3([x], [], Picky()).get_output(0)
    network.mark_output(out)
    assert plan_of(network) is None and "does not take linear FLOAT" in log.errors[-1]
    network.unmark_output(out)
    constant = network.add_constant((2, 8), floats(2, 8)).get_output(0)
    alone = network.add_plugin_v3([constant], [], Halving()).get_output(0)
    network.mark_output(alone)
    assert plan_of(network) is None and "all constant" in log.errors[-1]


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

    def deserialize_plugin(self, name: str, serialized_plugin: Any) -> Any:
        return Old(bytes(serialized_plugin))


def test_plugins_of_old_releases(creators: Any) -> None:
    network, log = new_network()
    x, w = network.add_input("x", trt.float32, (-1, 4)), floats(1, 4, seed=1)
    table = network.add_constant((1, 4), w).get_output(0)
    layer = network.add_plugin_v2([x, table], Old(b"\x03"))
    assert tuple(layer.get_output(0).shape) == (-1,) and network[1].type.name == "PLUGIN_V2"
    assert layer.get_output(1).dtype is trt.bool
    assert layer.plugin.FORMAT_COMBINATION_LIMIT == 100
    assert layer.plugin.get_serialization_size() == 1 == layer.plugin.serialization_size
    one = network.add_cast(layer.get_output(1), trt.int32).get_output(0)
    for name, tensor in (("y", layer.get_output(0)), ("n", one)):
        tensor.name = name
        network.mark_output(tensor)
    data = plan_of(network, {"x": ((1, 4), (3, 4), (6, 4))})
    assert data is not None, log.errors
    a = floats(5, 4)
    made = {"y": np.zeros(20, np.float32), "n": np.zeros(20, np.int32)}
    run_engine(data, {"x": a}, made)
    wanted = (a * w * 3).reshape(-1)
    np.testing.assert_allclose(made["y"], wanted, rtol=1e-6)
    np.testing.assert_array_equal(made["n"], (wanted > 0).astype(np.int32))


def test_nodes_of_unknown_ops_become_plugins(creators: Any) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("Halving", ["a"], ["b"], "half", domain="own", times=3),
        helper.make_node("Cast", ["b"], ["y"], "cast", to=1),
    ]
    infos = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [2, 8]), ("y", [2, 4]))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    network, log = new_network()
    assert trt.OnnxParser(network, log).parse(model), log.errors
    assert network[1].name == "half" and network[1].type is trt.LayerType.PLUGIN_V3
    a, made = floats(2, 8), {"y": np.zeros((2, 4), np.float32)}
    data = plan_of(network)
    assert data is not None, log.errors
    run_engine(data, {"x": a}, made)
    wanted = (np.maximum(a, 0)[:, ::2] * 3).astype(np.float16)
    np.testing.assert_array_equal(made["y"], wanted.astype(np.float32))


def test_classes_of_plugins() -> None:
    network, _ = new_network()
    x = network.add_input("x", trt.float32, (3, 4))
    assert isinstance(network.add_plugin_v3([x], [], Halving()), trt.IPluginV3Layer)
    assert isinstance(network.add_plugin_v2([x], Old()), trt.IPluginV2Layer)
    assert issubclass(trt.IPluginV2DynamicExt, trt.IPluginV2DynamicExtBase)
    assert issubclass(trt.IPluginV3OneBuildV2, trt.IPluginV3OneBuild)
    assert issubclass(trt.IPluginV3OneCore, trt.IPluginCapability)
    assert issubclass(trt.IPluginCreatorV3One, trt.IPluginCreatorInterface)
    build = trt.IPluginV3OneBuildV2()
    assert build.get_aliased_input(0) == -1 and build.DEFAULT_FORMAT_COMBINATION_LIMIT == 100


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
