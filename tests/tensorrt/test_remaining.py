"""Names that no other test needs: what objects are, and numbers that engines tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
import braze.tensorrt as trt
from tests.tensorrt.networks import Log, floats, new_network, plan_of


def relu_network() -> tuple[Any, Log]:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 4))
    y = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return network, log


def engine_of(network: Any) -> Any:
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    return network.builder.build_engine_with_config(network, config)


def test_objects_are_of_their_classes() -> None:
    network, _ = relu_network()
    builder, config = network.builder, network.builder.create_builder_config()
    assert isinstance(config, trt.IBuilderConfig) and isinstance(builder, trt.Builder)
    assert isinstance(builder.create_optimization_profile(), trt.IOptimizationProfile)
    assert isinstance(config.create_timing_cache(b""), trt.ITimingCache)
    assert isinstance(network.get_input(0), trt.ITensor)
    assert isinstance(builder.get_plugin_registry(), trt.IPluginRegistry)
    assert isinstance(trt.IExprBuilder().constant(1), trt.IDimensionExpr)
    fields = trt.PluginFieldCollection_([trt.PluginField("a")])
    fields.insert(0, trt.PluginField("b"))
    fields.extend([trt.PluginField("c")])
    assert [f.name for f in fields] == ["b", "a", "c"]
    for kind in (trt.NodeIndices, trt.SubGraphCollection):
        held = kind()
        held.append(1)
        assert held.count(1) == 1 and held.pop() == 1 and not held
        held.extend([1, 2])
        held.insert(0, 3)
        held.remove(1)
        assert held == [3, 2]
        held.clear()
        assert len(held) == 0
    assert trt.FallbackString("n") == "n" and isinstance(trt.PluginTensorDesc().dims, trt.Dims)


def test_interfaces_say_what_they_are() -> None:
    class Creator(trt.IPluginCreatorV3One):
        pass

    creator = Creator()
    assert isinstance(creator, trt.IVersionedInterface)
    assert creator.api_language is trt.APILanguage.PYTHON
    info = creator.interface_info
    assert isinstance(info, trt.InterfaceInfo) and (info.major, info.minor) == (1, 0)
    assert info.kind == "Creator"
    context = trt.IPluginResourceContext(error_recorder="r", gpu_allocator="a")
    assert (context.error_recorder, context.gpu_allocator) == ("r", "a")
    registry = trt.get_plugin_registry()
    assert registry.parent_search_enabled is True and registry.error_recorder is None


def test_platforms_and_devices() -> None:
    network, log = relu_network()
    config = network.builder.create_builder_config()
    assert config.default_device_type is trt.DeviceType.GPU
    assert config.runtime_platform is trt.RuntimePlatform.SAME_AS_BUILD
    config.runtime_platform = trt.RuntimePlatform.WINDOWS_AMD64
    assert network.builder.build_serialized_network(network, config) is None
    assert "platform" in log.errors[-1]
    with pytest.warns(DeprecationWarning):
        assert network.builder.platform_has_fast_int8


def test_memory_of_a_build_is_told() -> None:
    network, log = relu_network()
    config = network.builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.MONITOR_MEMORY)
    assert network.builder.build_serialized_network(network, config) is not None
    assert any("MiB" in m for s, m in log.messages if s is trt.Logger.INFO)


def test_nothing_hides_a_number_that_is_none() -> None:
    network, _ = new_network()
    x = network.add_input("x", trt.float32, (4,))
    zero = network.add_constant((1,), np.zeros(1, np.float32)).get_output(0)
    E = trt.ElementWiseOperation
    made = {
        "product": network.add_elementwise(x, zero, E.PROD),
        "difference": network.add_elementwise(x, x, E.SUB),
        "ratio": network.add_elementwise(x, x, E.DIV),
    }
    for name, layer in made.items():
        layer.get_output(0).name = name
        network.mark_output(layer.get_output(0))
    config = network.builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.STRICT_NANS)
    data = network.builder.build_serialized_network(network, config)
    a = np.array([1, 0, np.inf, np.nan], np.float32)
    outputs = braze.Engine.from_bytes(data)({"x": a})
    with np.errstate(all="ignore"):
        wanted = {"product": a * np.float32(0), "difference": a - a, "ratio": a / a}
    for name, array in wanted.items():
        np.testing.assert_array_equal(outputs[name], array)


def test_names_of_engines_and_contexts() -> None:
    network, _ = relu_network()
    network.name = "rectified"
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    config.profiling_verbosity = trt.ProfilingVerbosity.NONE
    data, log = network.builder.build_serialized_network(network, config), Log()
    assert data.dtype is trt.int8 and data.nbytes == len(bytes(data))
    runtime = trt.Runtime(log)
    assert runtime.logger is log and runtime.num_DLA_cores == 0
    assert runtime.get_plugin_registry() is trt.get_plugin_registry()
    engine = runtime.deserialize_cuda_engine(data)
    assert engine.name == "rectified" and engine.num_layers == 1
    assert engine.profiling_verbosity is trt.ProfilingVerbosity.NONE
    inspector = engine.create_engine_inspector()
    form = trt.LayerInformationFormat.ONELINE
    assert inspector.get_layer_information(0, form) == "0\n"  # its number is all that is told
    context = engine.create_execution_context()
    context.name = "first"
    assert context.name == "first" and context.engine is engine
    writing, flag = engine.create_serialization_config(), trt.SerializationFlag.EXCLUDE_LEAN_RUNTIME
    assert writing.set_flag(flag) and writing.flags == 1 << int(flag)
    assert writing.clear_flag(flag) and writing.flags == 0 and not writing.get_flag(flag)


def test_models_with_weights_elsewhere_are_parsed_as_others() -> None:
    network, log = new_network()
    parser = trt.OnnxParser(network, log)
    with pytest.warns(DeprecationWarning):
        assert not parser.parse_with_weight_descriptors(b"none")
    assert isinstance(parser.get_error(0), trt.ParserError)


def test_an_engine_of_a_builder_runs() -> None:
    network, log = relu_network()
    engine = engine_of(network)
    assert isinstance(engine, trt.ICudaEngine), log.errors
    x = floats(2, 4)
    plan = braze.Engine.from_bytes(bytes(engine.serialize()))
    np.testing.assert_array_equal(plan({"x": x})["y"], np.maximum(x, 0))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_allocators_of_old_releases_free() -> None:
    class Old(trt.IGpuAllocator):
        def free(self, memory: int) -> None:
            freed.append(memory)

    class New(trt.IGpuAllocator):
        def deallocate(self, memory: int) -> bool:
            freed.append(memory)
            return True

    freed: list[int] = []
    assert Old().deallocate(1) and Old().deallocate_async(2, 0)
    New().free(3)
    assert freed == [1, 2, 3]
    with pytest.raises(NotImplementedError):
        trt.IGpuAllocator().free(4)


def test_communicators_are_refused() -> None:
    network, log = relu_network()
    context = engine_of(network).create_execution_context()
    assert context.set_communicator(object()) is False
    assert context.reporter.logger is log and "one device" in log.errors[-1]


def test_numbers_that_an_engine_tells() -> None:
    network, _ = relu_network()
    engine = engine_of(network)
    assert engine.tactic_sources == 0b11000 and engine.num_aux_streams == 0
    assert engine.hardware_compatibility_level is trt.HardwareCompatibilityLevel.NONE
    assert engine.device_memory_size_v2 >= 0
    assert engine.get_device_memory_size_for_profile_v2(0) >= 0
    assert engine.device_memory_size == engine.device_memory_size_v2
    assert engine.get_device_memory_size_for_profile(0) >= 0
    assert engine.streamable_weights_size == 0 == engine.weight_streaming_budget_v2
    assert engine.get_weight_streaming_automatic_budget() == 0
    assert engine.weight_streaming_scratch_memory_size == 0
    assert engine.minimum_weight_streaming_budget >= 0 and engine.weight_streaming_budget <= 0
    assert isinstance(engine.create_serialization_config(), trt.ISerializationConfig)
    config = engine.create_runtime_config()
    strategy = trt.ExecutionContextAllocationStrategy
    assert isinstance(config, trt.IRuntimeConfig)
    assert config.get_execution_context_allocation_strategy() is strategy.STATIC
    config.set_execution_context_allocation_strategy(strategy.ON_PROFILE_CHANGE)
    assert config.get_execution_context_allocation_strategy() is strategy.ON_PROFILE_CHANGE
    context = engine.create_execution_context(config)
    assert isinstance(context, trt.IExecutionContext)
    kept = context.get_runtime_config().get_execution_context_allocation_strategy()
    assert kept is strategy.ON_PROFILE_CHANGE
    assert context.get_debug_listener() is None and not context.unfused_tensors_debug_state
    assert context.update_device_memory_size_for_shapes() >= 0
    assert context.all_shape_inputs_specified
    inspector = engine.create_engine_inspector()
    assert isinstance(inspector, trt.EngineInspector)
    inspector.execution_context = context
    assert inspector.execution_context is context
    told = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    assert '"Layers"' in told


def test_a_profiler_prints_times(capfd: pytest.CaptureFixture[str]) -> None:
    profiler = trt.Profiler()
    assert isinstance(profiler, trt.IProfiler)
    profiler.report_layer_time("layer", 1.5)
    assert "layer" in capfd.readouterr().out


def test_contents_of_inputs_that_decide_sizes() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 6))
    sizes = network.add_input("sizes", trt.int64, (2,))
    shuffle = network.add_shuffle(x)
    shuffle.set_input(1, sizes)
    y = shuffle.get_output(0)
    y.name = "y"
    network.mark_output(y)
    assert sizes.is_shape_tensor and not x.is_shape_tensor and tuple(y.shape) == (-1, -1)
    config = network.builder.create_builder_config()
    profile = network.builder.create_optimization_profile()
    profile.set_shape_input("sizes", (1, 1), (3, 4), (12, 12))
    config.add_optimization_profile(profile)
    config.builder_optimization_level = 1
    data = network.builder.build_serialized_network(network, config)
    assert data is not None, log.errors
    engine = trt.Runtime(log).deserialize_cuda_engine(data)
    assert engine.is_shape_inference_io("sizes") and not engine.is_shape_inference_io("x")
    values = engine.get_tensor_profile_values(0, "sizes")
    assert [list(v) for v in values] == [[1, 1], [3, 4], [12, 12]]
    feeds = {"x": floats(2, 6), "sizes": np.array([3, 4])}
    got = braze.Engine.from_bytes(data)(feeds)["y"]
    np.testing.assert_array_equal(got, feeds["x"].reshape(3, 4))


def test_dynamic_quantization_says_its_types() -> None:
    network, _ = new_network()
    x = network.add_input("x", trt.float32, (2, 32))
    layer = network.add_dynamic_quantize(x, 1, 16, trt.fp8, trt.float32)
    assert layer.scale_type is trt.float32 and layer.to_type is trt.fp8
    assert tuple(layer.get_output(1).shape) == (2, 2)
    assert plan_of(network) is None  # nothing is marked
