"""Flags of a build, each by what it changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
import braze.tensorrt as trt
from tests.tensorrt.engines import Log
from tests.tensorrt.networks import floats, new_network, plan_of

FLAG = trt.BuilderFlag
W = floats(8, 8, seed=1)


def product_network(size: int = 64) -> tuple[Any, Log]:
    """x @ w of x [size, size]."""
    network, log = new_network()
    x = network.add_input("x", trt.float32, (size, size))
    w = network.add_constant((size, size), floats(size, size, seed=1)).get_output(0)
    none = trt.MatrixOperation.NONE
    y = network.add_matrix_multiply(x, none, w, none).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return network, log


def built(network: Any, config: Any) -> Any:
    return network.builder.build_serialized_network(network, config)


def tactics(data: Any) -> list[str]:
    return [s.tactic for s in braze.Engine.from_bytes(data).plan.every_step]


def test_a_timing_cache_is_left_alone() -> None:
    network, log = product_network()
    config = network.builder.create_builder_config()
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, False)
    config.set_flag(FLAG.DISABLE_TIMING_CACHE)
    assert built(network, config) is not None, log.errors
    assert cache.queryKeys() == []


def test_an_edited_timing_cache_decides() -> None:
    network, _ = product_network()
    config = network.builder.create_builder_config()
    config.set_flag(FLAG.EDITABLE_TIMING_CACHE)
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, False)
    (first,) = tactics(built(network, config))
    for key in cache.queryKeys():
        value = cache.query(key)
        # what was the fastest is the slowest now
        assert cache.update(key, trt.TimingCacheValue(value.tacticHash, 1 / value.timingMSec))
    (second,) = tactics(built(network, config))
    assert first != second


def test_weights_that_may_be_streamed() -> None:
    network, _ = product_network(8)
    config, log = network.builder.create_builder_config(), Log()
    config.builder_optimization_level = 1
    config.set_flag(FLAG.WEIGHT_STREAMING)
    engine = trt.Runtime(log).deserialize_cuda_engine(built(network, config))
    size = engine.streamable_weights_size
    assert size >= 8 * 8 * 4 and engine.weight_streaming_budget_v2 == size
    engine.weight_streaming_budget_v2 = 64
    assert engine.weight_streaming_budget_v2 == 64
    with pytest.warns(DeprecationWarning):
        assert engine.weight_streaming_budget == 64
    context = engine.create_execution_context()
    engine.weight_streaming_budget_v2 = size  # too late
    assert "while contexts exist" in log.errors[-1]
    x, y = floats(8, 8), np.zeros((8, 8), np.float32)
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    # float32 sums of 8 products of numbers around 1
    np.testing.assert_allclose(y, x @ floats(8, 8, seed=1), rtol=1e-5, atol=1e-5)


def test_profiles_that_contexts_do_not_share() -> None:
    network, log = product_network(8)
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, False)
    engine = trt.Runtime(log).deserialize_cuda_engine(built(network, config))
    first = engine.create_execution_context()
    assert first is not None and engine.create_execution_context() is None
    assert "Profile 0 has been chosen by another IExecutionContext" in log.errors[-1]


def test_layers_of_an_engine_as_lines() -> None:
    network, _ = product_network(8)
    network[0].name, network[1].name = "weights", "product"
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    engine = trt.Runtime(Log()).deserialize_cuda_engine(built(network, config))
    inspector, line = engine.create_engine_inspector(), trt.LayerInformationFormat.ONELINE
    inspector.execution_context = context = engine.create_execution_context()
    assert inspector.execution_context is context
    (layer,) = inspector.get_layer_information(0, line).splitlines()
    assert layer.startswith("Name: ") and "Dimensions: [8x8]" in layer and "LayerType: " in layer
    assert inspector.get_engine_information(line).splitlines() == [
        "Layers:", layer, "", "Bindings:", "x", "y"
    ]  # fmt: skip


def test_kinds_of_errors_of_a_build() -> None:
    network, log = new_network()
    assert plan_of(network) is None
    assert f"Error Code {int(trt.ErrorCodeTRT.INVALID_CONFIG)}: " in log.errors[-1]
    assert "the network has no outputs" in log.errors[-1]


@pytest.mark.parametrize("count", [1, 2])
def test_contents_that_profiles_hold_to_one_value(count: int) -> None:
    """A size that a layer must know: the profiles say it, and runs must give it."""
    network, log = new_network()
    x = network.add_input("x", trt.float32, (1, 1, 2, 2))
    sizes = network.add_input("sizes", trt.int64, (4,))
    layer = network.add_resize(x)
    layer.resize_mode = trt.InterpolationMode.NEAREST
    layer.set_input(1, sizes)
    y = layer.get_output(0)
    y.name = "y"
    network.mark_output(y)
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    wanted = (1, 1, 4, 6)
    for _ in range(count):
        profile = network.builder.create_optimization_profile()
        profile.set_shape_input("sizes", wanted, wanted, wanted)
        config.add_optimization_profile(profile)
    data = built(network, config)
    assert data is not None, log.errors
    engine = trt.Runtime(log).deserialize_cuda_engine(data)
    assert tuple(engine.get_tensor_shape("y")) == wanted
    context = engine.create_execution_context()
    a, held, out = floats(1, 1, 2, 2), np.int64(wanted), np.zeros(wanted, np.float32)
    assert context.execute_v2([a.ctypes.data, held.ctypes.data, out.ctypes.data])
    np.testing.assert_array_equal(out, a.repeat(2, 2).repeat(3, 3))
    other = np.int64((1, 1, 2, 6))
    assert not context.execute_v2([a.ctypes.data, other.ctypes.data, out.ctypes.data])
    assert "sizes" in log.errors[-1]
