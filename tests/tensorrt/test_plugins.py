"""Plugins: their interfaces and registry, the shapes of their outputs, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import braze
import braze.tensorrt as trt
from tests.tensorrt.networks import floats, new_network, plan_of
from tests.tensorrt.plugins import Creator, Halving, Old


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


def test_plugins_of_old_releases(creators: Any) -> None:
    network, log = new_network()
    x, w = network.add_input("x", trt.float32, (-1, 4)), floats(1, 4, seed=1)
    table = network.add_constant((1, 4), w).get_output(0)
    plugin = Old(b"\x03")
    assert plugin.plugin_namespace == ""
    layer = network.add_plugin_v2([x, table], plugin)
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
    assert plugin.configured
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


def test_nodes_become_plugins_of_old_releases(creators: Any) -> None:
    x, w = floats(2, 4), floats(1, 4, seed=1)
    nodes = [helper.make_node("Old", ["x", "w"], ["y", "above"], "old", domain="own", times=3)]
    infos = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [2, 4]), ("y", [8]))]
    weights = [numpy_helper.from_array(w, "w")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    network, log = new_network()
    assert trt.OnnxParser(network, log).parse(model), log.errors
    assert [f.name for f in creators[1].field_names] == ["times"]
    assert creators[1].plugin_namespace == ""
    flags = next(t for x in network for t in [x.get_output(1)] if t is not None)
    network.mark_output(network.add_cast(flags, trt.int32).get_output(0))
    data = plan_of(network)
    assert data is not None, log.errors
    names = [network.get_output(i).name for i in range(2)]
    made = {names[0]: np.zeros(8, np.float32), names[1]: np.zeros(8, np.int32)}
    run_engine(data, {"x": x}, made)
    np.testing.assert_allclose(made[names[0]], (x * w * 3).reshape(-1), rtol=1e-6)


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
        assert creator.plugin_namespace == ""
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


FIELDS = {
    "FLOAT16": np.float16, "FLOAT32": np.float32, "FLOAT64": np.float64, "INT8": np.int8,
    "INT16": np.int16, "INT32": np.int32, "CHAR": np.int8, "DIMS": np.int32, "UNKNOWN": np.uint8,
    "BF16": np.uint16, "INT64": np.int64, "FP8": np.uint8, "INT4": np.uint8, "FP4": np.uint8,
}  # fmt: skip


def test_fields_of_every_type_reach_the_engine(
    creators: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a plugin gives to be kept is what its creator gets when the engine is loaded."""
    assert {t.name for t in trt.PluginFieldType} == set(FIELDS)
    given = [
        trt.PluginField(name, np.array([1, 2, 3], FIELDS[name]), trt.PluginFieldType[name])
        for name in FIELDS
    ]
    monkeypatch.setattr(
        Halving, "get_fields_to_serialize", lambda self: trt.PluginFieldCollection(given)
    )
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 8))
    network.mark_output(network.add_plugin_v3([x], [], Halving()).get_output(0))
    seen: list[Any] = []
    monkeypatch.setattr(
        Creator, "create_plugin", lambda self, name, fields, phase: seen.extend(fields) or Halving()
    )
    assert trt.Runtime(log).deserialize_cuda_engine(plan_of(network)) is not None, log.errors
    for field, got in zip(given, seen, strict=True):
        assert (got.name, got.type, got.size) == (field.name, field.type, field.size)
        np.testing.assert_array_equal(got.data, field.data)


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
    assert fields.pop().name == "m" and len(fields) == 1
    fields.clear()
    assert len(fields) == 0
    desc = trt.DynamicPluginTensorDesc()
    desc.desc.dims, desc.min = trt.Dims([-1, 3]), trt.Dims([1, 3])
    assert desc.desc.type is trt.float32 and desc.desc.format is trt.TensorFormat.LINEAR
    assert trt.NodeIndices([1, 2]) == [1, 2] and trt.SubGraphCollection() == []
