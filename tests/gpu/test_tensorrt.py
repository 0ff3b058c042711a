"""TensorRT's names on a real GPU: addresses and streams are those of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
import braze.tensorrt as trt
from braze.core.errors import ExecutionError
from tests.gpu.test_engines import DYNAMIC, conv_feed
from tests.meta import small_models
from tests.tensorrt.engines import Log

torch: Any = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def engine() -> Any:
    """An engine whose weights can be streamed."""
    return built(trt.BuilderFlag.WEIGHT_STREAMING)


def built(flag: Any) -> Any:
    """conv_net, parsed and built as a script does; no target is named, so it is the GPU's."""
    patch = pytest.MonkeyPatch()
    patch.delenv("BRAZE_TARGET", raising=False)
    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, log)
    assert parser.parse(small_models.conv_net().SerializeToString())
    config = builder.create_builder_config()
    config.builder_optimization_level = 2
    config.set_flag(flag)
    config.clear_flag(trt.BuilderFlag.TF32)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", *DYNAMIC["x"])
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    patch.undo()
    assert plan is not None, log.errors
    loaded = trt.Runtime(log).deserialize_cuda_engine(plan)
    assert loaded.core.on_gpu
    return loaded


def expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What braze's own face computes."""
    own = braze.build(small_models.conv_net(), target="cuda", shapes=DYNAMIC, optimization_level=2)
    y: np.ndarray[Any, Any] = own({"x": x})["y"]
    return y


def test_a_run_on_a_stream_of_torch(engine: Any) -> None:
    x = conv_feed(3)["x"]
    want = expected(x)
    context = engine.create_execution_context()
    assert context.set_input_shape("x", x.shape)
    given = torch.from_numpy(x).cuda()
    y = torch.zeros(tuple(context.get_tensor_shape("y")), device="cuda")
    assert context.set_tensor_address("x", given.data_ptr())
    assert context.set_tensor_address("y", y.data_ptr())
    side, consumed = torch.cuda.Stream(), torch.cuda.Event()
    consumed.record(side)  # torch makes its event with the first record
    assert context.set_input_consumed_event(consumed.cuda_event)
    torch.cuda.synchronize()
    for _ in range(3):
        assert context.execute_async_v3(side.cuda_stream)
    consumed.synchronize()
    side.synchronize()
    np.testing.assert_array_equal(y.cpu().numpy(), want)
    y.zero_()
    assert context.execute_v2([given.data_ptr(), y.data_ptr()])
    np.testing.assert_array_equal(y.cpu().numpy(), want)


class Allocator(trt.IOutputAllocator):
    def __init__(self) -> None:
        trt.IOutputAllocator.__init__(self)
        self.memory: Any = None
        self.shape: tuple[int, ...] = ()

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        self.memory = torch.empty(size, dtype=torch.uint8, device="cuda")
        return int(self.memory.data_ptr())

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        self.shape = tuple(shape)


class Times(trt.IProfiler):
    def __init__(self) -> None:
        trt.IProfiler.__init__(self)
        self.layers: dict[str, float] = {}

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        self.layers[layer_name] = ms


def test_an_output_allocator_and_a_profiler(engine: Any) -> None:
    x = conv_feed(2)["x"]
    given = torch.from_numpy(x).cuda()
    context, allocator = engine.create_execution_context(), Allocator()
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", given.data_ptr())
    assert context.set_output_allocator("y", allocator)
    context.profiler = times = Times()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    assert context.execute_async_v3(side.cuda_stream)
    side.synchronize()
    y = allocator.memory.cpu().numpy().view(np.float32).reshape(allocator.shape)
    np.testing.assert_array_equal(y, expected(x))
    assert len(times.layers) == engine.num_layers and sum(times.layers.values()) > 0


def test_a_budget_too_small_to_stream_is_refused(engine: Any) -> None:
    log = Log()
    loaded = trt.Runtime(log).deserialize_cuda_engine(engine.serialize())
    full = loaded.streamable_weights_size
    assert full > 0 and loaded.weight_streaming_budget_v2 == full
    # what is streamed goes through two places that hold the largest weight each, and here that is
    # more than all weights; engines that are worth it are in test_runtime.py
    loaded.weight_streaming_budget_v2 = full // 2
    assert "too small: this engine needs" in log.errors[-1]
    assert loaded.weight_streaming_budget_v2 == full


def test_wrong_use_is_told(engine: Any) -> None:
    log = Log()
    loaded = trt.Runtime(log).deserialize_cuda_engine(engine.serialize())
    context = loaded.create_execution_context()
    assert not context.execute_async_v3(0)
    assert context.set_input_shape("x", conv_feed(2)["x"].shape)
    assert not context.execute_async_v3(0)
    assert not context.set_input_shape("x", (10**6, 3, 24, 24))
    assert len(log.errors) == 3


def test_a_stripped_engine_is_refitted() -> None:
    bare, x = built(trt.BuilderFlag.STRIP_PLAN), conv_feed(3)["x"]
    assert bare.core.plan.stripped
    with pytest.raises(ExecutionError, match="left out"):
        bare.core({"x": x})
    log = Log()
    model = small_models.conv_net().SerializeToString()
    assert trt.OnnxParserRefitter(trt.Refitter(bare, log), log).refit_from_bytes(model), log.errors
    assert bare.core.on_gpu
    np.testing.assert_array_equal(bare.core({"x": x})["y"], expected(x))
