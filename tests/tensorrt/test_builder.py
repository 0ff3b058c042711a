"""Builder, configuration, profiles and the timing cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import braze
import braze.tensorrt as trt
from braze.tensorrt.building import precision_of
from braze.tensorrt.record import KEY
from tests.tensorrt.networks import Log, floats, new_network, plan_of

RELU = trt.ActivationType.RELU


def relu_network(shape: Any = (-1, 4)) -> tuple[Any, Log]:
    network, log = new_network()
    x = network.add_input("x", trt.float32, shape)
    y = network.add_activation(x, RELU).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return network, log


def test_profiles_become_ranges_of_the_engine() -> None:
    network, log = relu_network()
    builder, config = network.builder, network.builder.create_builder_config()
    for high in (4, 16):
        profile = builder.create_optimization_profile()
        profile.set_shape("x", (1, 4), [2, 4], trt.Dims2(high, 4))
        assert [tuple(d) for d in profile.get_shape("x")] == [(1, 4), (2, 4), (high, 4)]
        assert bool(profile) and config.add_optimization_profile(profile) == high // 16
    assert config.num_optimization_profiles == 2
    data = builder.build_serialized_network(network, config)
    assert isinstance(data, trt.IHostMemory), log.errors
    engine = braze.Engine.from_bytes(data)
    record = engine.plan.record[KEY]
    assert record["profiles"][1]["x"] == [[1, 4], [2, 4], [16, 4]] and record["flags"] == 64
    x = floats(9, 4)
    np.testing.assert_array_equal(engine({"x": x})["y"], np.maximum(x, 0))
    with pytest.raises(braze.ProfileError):
        engine({"x": floats(17, 4)})


def test_what_a_profile_refuses() -> None:
    profile = trt.Builder(Log()).create_optimization_profile()
    for kind in (ValueError, RuntimeError):  # what is documented, and what TensorRT raises
        with pytest.raises(kind):
            profile.set_shape("x", (2, 4), (1, 4), (4, 4))
    with pytest.raises(ValueError):
        profile.set_shape("x", (1,), (1, 4), (4, 4))
    with pytest.raises(TypeError):
        profile.set_shape("x", "1", (1, 4), (4, 4))
    assert profile.get_shape("x") == [] and profile.get_shape_input("s") == []
    profile.set_shape_input("s", [1, 2], [3, 4], [5, 6])
    assert profile.get_shape_input("s") == [[1, 2], [3, 4], [5, 6]]
    profile.extra_memory_target = 0.5
    with pytest.raises(ValueError):
        profile.extra_memory_target = 2


def test_builds_that_fail_say_why_and_return_none() -> None:
    network, log = relu_network()
    assert plan_of(network) is None and "optimization profile" in log.errors[-1]
    assert plan_of(network, {"x": ((1, 5), (1, 5), (1, 5))}) is None and "'x'" in log.errors[-1]
    empty, log = new_network()
    assert plan_of(empty) is None and "no outputs" in log.errors[-1]
    network, log = relu_network((2, 4))
    config = network.builder.create_builder_config()
    config.engine_capability = trt.EngineCapability.DLA_STANDALONE
    assert network.builder.build_serialized_network(network, config) is None
    assert not network.builder.is_network_supported(network, config)
    assert "DLA_STANDALONE" in log.errors[-1]
    config.engine_capability = trt.EngineCapability.STANDARD
    assert network.builder.is_network_supported(network, config)
    for wrong in (None, 3):
        with pytest.raises(TypeError):
            network.builder.build_serialized_network(network, wrong)
    with pytest.raises(TypeError):
        trt.Builder(None)


class Recorder:
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def report_error(self, code: Any, description: str) -> bool:
        self.found.append((code, description))
        return True


def test_errors_reach_the_recorders() -> None:
    network, log = relu_network()
    network.error_recorder, network.builder.error_recorder = Recorder(), Recorder()
    assert plan_of(network) is None
    for recorder in (network.error_recorder, network.builder.error_recorder):
        assert recorder.found == [(trt.ErrorCodeTRT.INVALID_ARGUMENT, log.errors[-1])]


def test_options_have_their_defaults_and_take_what_they_are() -> None:
    config = trt.Builder(Log()).create_builder_config()
    assert config.flags == 1 << int(trt.BuilderFlag.TF32)
    assert (config.builder_optimization_level, config.avg_timing_iterations) == (3, 1)
    assert (config.max_aux_streams, config.max_num_tactics, config.l2_limit_for_tiling) == (-1,) * 3
    assert config.get_tactic_sources() == 0b11000 and config.set_tactic_sources(1)
    assert not config.set_tactic_sources(1 << 20) and config.get_tactic_sources() == 1
    config.set_flag(trt.BuilderFlag.FP16)
    assert config.get_flag(trt.BuilderFlag.FP16) and config.flags == 65
    config.clear_flag(trt.BuilderFlag.TF32)
    assert not config.get_flag(trt.BuilderFlag.TF32)
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 30)
    assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 1 << 30
    assert config.get_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806)
    config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, False)
    assert not config.get_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.plugins_to_serialize = ["a.so"]
    for name, wrong in (("flags", 1.5), ("profiling_verbosity", 2), ("DLA_core", "0")):
        with pytest.raises(TypeError):
            setattr(config, name, wrong)
    with pytest.raises(TypeError):
        config.set_flag(3)
    config.reset()
    assert config.flags == 64 and config.plugins_to_serialize == []
    assert config.profiling_verbosity is trt.ProfilingVerbosity.LAYER_NAMES_ONLY


def test_half_types_are_allowed_where_they_are_faster() -> None:
    flag = trt.BuilderFlag
    strong = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    for flags, target, wanted in (
        ((), "cpu", "tf32"),
        ((flag.FP16,), "cpu", "tf32"),
        ((flag.FP16,), "cuda", "tf32,fp16"),
        ((flag.FP16, flag.BF16), "cuda:sm_90", "tf32,fp16,bf16"),
    ):
        network, _ = new_network()
        config = network.builder.create_builder_config()
        for one in flags:
            config.set_flag(one)
        assert precision_of(network, config, target) == wanted
        assert precision_of(new_network(strong)[0], config, target) == "tf32"
    config.clear_flag(flag.TF32)
    assert precision_of(network, config, "cpu") == "fp32"


def test_devices_of_layers() -> None:
    network, log = relu_network((2, 4))
    config, layer = network.builder.create_builder_config(), network[0]
    assert config.get_device_type(layer) is trt.DeviceType.GPU and not config.can_run_on_DLA(layer)
    config.set_device_type(layer, trt.DeviceType.DLA)
    assert config.is_device_type_set(network.get_layer(0))
    assert config.get_device_type(network.get_layer(0)) is trt.DeviceType.DLA
    assert network.builder.build_serialized_network(network, config) is None
    assert "DLA" in log.errors[-1]
    config.set_flag(trt.BuilderFlag.GPU_FALLBACK)
    assert network.builder.build_serialized_network(network, config) is not None
    config.reset_device_type(layer)
    assert not config.is_device_type_set(layer)


def test_timing_cache_is_filled_used_and_edited() -> None:
    network, log = relu_network((64, 64))
    config = network.builder.create_builder_config()
    cache = config.create_timing_cache(b"")
    assert config.get_timing_cache() is None and config.set_timing_cache(cache, False)
    first = network.builder.build_serialized_network(network, config)
    keys = config.get_timing_cache().queryKeys()
    assert keys and first is not None
    data = cache.serialize()
    again = config.create_timing_cache(data)
    config.set_timing_cache(again, ignore_mismatch=True)
    config.set_flag(trt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    assert network.builder.build_serialized_network(network, config) is not None
    key = trt.TimingCacheKey.parse(str(keys[0]))
    value = again.query(key)
    assert value.timingMSec > 0
    assert again.update(key, trt.TimingCacheValue(value.tacticHash, 5.0))
    assert again.query(key).timingMSec == pytest.approx(5.0)
    assert not again.update(key, trt.TimingCacheValue(value.tacticHash + 1, 5.0))
    assert again.update(key, trt.TimingCacheValue(0, math.nan)) and key not in again.queryKeys()
    assert math.isnan(again.query(key).timingMSec)
    assert again.combine(cache, False) and len(again.queryKeys()) == len(keys)
    assert again.reset() and again.queryKeys() == []
    assert network.builder.build_serialized_network(network, config) is None  # nothing is known
    assert "timing cache" in log.errors[-1]
    assert config.create_timing_cache(b"no cache") is None
    assert "no timing cache of braze" in log.errors[-1]


class Monitor(trt.IProgressMonitor):
    """An IProgressMonitor that notes what it hears."""

    def __init__(self, stop: bool) -> None:
        trt.IProgressMonitor.__init__(self)
        self.open: list[str] = []
        self.phases: list[str] = []
        self.stop = stop

    def phase_start(self, name: str, parent: str | None, steps: int) -> None:
        assert steps > 0
        self.open.append(name)
        self.phases.append(name)

    def step_complete(self, name: str, step: int) -> bool:
        assert name in self.open and step >= 0
        return not self.stop

    def phase_finish(self, name: str) -> None:
        self.open.remove(name)


def test_a_progress_monitor_hears_of_phases_and_may_end_the_build() -> None:
    for stop in (False, True):
        network, log = relu_network((64, 64))
        config = network.builder.create_builder_config()
        config.progress_monitor = monitor = Monitor(stop)
        data = network.builder.build_serialized_network(network, config)
        assert (data is None) == stop and monitor.phases and not monitor.open
        assert bool(log.errors) == stop


class Writer(trt.IStreamWriter):
    """An IStreamWriter with room for some bytes."""

    def __init__(self, most: int) -> None:
        trt.IStreamWriter.__init__(self)
        self.data, self.most = b"", most

    def write(self, data: bytes) -> int:
        self.data += data[: self.most]
        return min(len(data), self.most)


def test_an_engine_is_written_to_a_stream() -> None:
    network, log = relu_network((2, 4))
    config, writer = network.builder.create_builder_config(), Writer(1 << 20)
    assert network.builder.build_serialized_network_to_stream(network, config, writer)
    x = floats(2, 4)
    result = braze.Engine.from_bytes(writer.data)({"x": x})["y"]
    np.testing.assert_array_equal(result, np.maximum(x, 0))
    for room in (0, 1, 1000):
        short = Writer(room)
        assert not network.builder.build_serialized_network_to_stream(network, config, short)
        assert f"took {room} bytes of an engine of {len(writer.data)}" in log.errors[-1]


def test_options_of_old_releases() -> None:
    network, _ = relu_network((2, 4))
    builder = network.builder
    with pytest.warns(DeprecationWarning):
        builder.max_workspace_size = 1 << 28
        builder.fp16_mode = True
        builder.max_batch_size = 8
    assert builder.fp16_mode and builder.max_workspace_size == 1 << 28
    assert builder.max_batch_size == 8 and not builder.int8_mode
    builder.reset()
    assert builder.max_batch_size == 1 and not builder.fp16_mode
    with pytest.warns(DeprecationWarning):
        builder.fp16_mode, builder.max_workspace_size = True, 1 << 28
        builder.max_batch_size = 8
    config = builder.create_builder_config()
    with pytest.warns(DeprecationWarning):
        config.max_workspace_size = 1 << 20
        config.min_timing_iterations = 4
    assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 1 << 20
    assert config.avg_timing_iterations == 4
    with pytest.warns(DeprecationWarning):
        assert builder.platform_has_fast_fp16 and builder.platform_has_tf32
    assert (builder.num_DLA_cores, builder.max_DLA_batch_size) == (0, 4096)
