"""Engines and contexts under TensorRT's names: what they tell, and what runs."""

from __future__ import annotations

import ctypes
import io
from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from braze.shim.device import host_device
from tests.tensorrt.engines import (
    Log,
    debug_engine,
    dynamic_engine,
    load,
    non_zero_engine,
    scale_reference,
    static_engine,
)
from tests.tensorrt.networks import new_network, plan_of

# float32 sums of 4 products and a constant, of numbers below 10
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


def test_what_an_engine_tells() -> None:
    engine = load(dynamic_engine())
    assert engine.num_io_tensors == 2
    assert [engine.get_tensor_name(i) for i in range(2)] == ["x", "y"]
    assert engine.get_tensor_mode("x") is trt.TensorIOMode.INPUT
    assert engine.get_tensor_mode("y") is trt.TensorIOMode.OUTPUT
    assert tuple(engine.get_tensor_shape("x")) == (-1, 4)
    assert tuple(engine.get_tensor_shape("y")) == (-1, 3)
    assert engine.get_tensor_dtype("x") is trt.DataType.FLOAT
    assert engine.get_tensor_location("x") is trt.TensorLocation.DEVICE
    assert engine.get_tensor_format("x") is trt.TensorFormat.LINEAR
    assert engine.get_tensor_format_desc("x") == "Row major linear FP32 format"
    assert engine.get_tensor_bytes_per_component("x") == 4
    assert engine.get_tensor_components_per_element("x", 1) == 1
    assert engine.get_tensor_vectorized_dim("x") == -1
    assert not engine.is_shape_inference_io("x")
    assert engine.num_optimization_profiles == 2
    assert [tuple(d) for d in engine.get_tensor_profile_shape("x", 1)] == [(4, 4), (8, 4), (16, 4)]
    sizes = [engine.get_device_memory_size_for_profile_v2(k) for k in range(2)]
    assert engine.device_memory_size_v2 == max(sizes)
    assert engine.num_layers >= 1
    assert not engine.refittable
    assert engine.streamable_weights_size == 0
    assert engine.engine_capability is trt.EngineCapability.STANDARD


def test_an_engine_is_its_bytes() -> None:
    plan = load(static_engine()).serialize()
    assert isinstance(plan, trt.IHostMemory)
    assert plan.nbytes == len(static_engine())
    assert bytes(plan) == static_engine()
    assert load(memoryview(plan)).serialize() == plan
    config = load(static_engine()).create_serialization_config()
    assert config.set_flag(trt.SerializationFlag.EXCLUDE_LEAN_RUNTIME)
    assert config.get_flag(trt.SerializationFlag.EXCLUDE_LEAN_RUNTIME)
    assert load(static_engine()).serialize_with_config(config) == plan


class Reader(trt.IStreamReader):
    def __init__(self, data: bytes) -> None:
        trt.IStreamReader.__init__(self)
        self.file = io.BytesIO(data)

    def read(self, size: int) -> bytes:
        return self.file.read(size)


class ReaderV2(trt.IStreamReaderV2):
    def __init__(self, data: bytes) -> None:
        trt.IStreamReaderV2.__init__(self)
        self.file = io.BytesIO(data)
        self.file.seek(7)

    def read(self, num_bytes: int, stream: int) -> bytes:
        return self.file.read(min(num_bytes, 1000))

    def seek(self, offset: int, where: trt.SeekPosition) -> bool:
        self.file.seek(offset, int(where))
        return True


@pytest.mark.parametrize("reader", [Reader, ReaderV2])
def test_an_engine_from_a_stream(reader: Any) -> None:
    engine = trt.Runtime(Log()).deserialize_cuda_engine(reader(static_engine()))
    assert engine is not None
    assert engine.serialize() == static_engine()
    name = "stream_reader" if reader is Reader else "stream_reader_v2"
    again = trt.Runtime(Log()).deserialize_cuda_engine(**{name: reader(static_engine())})
    assert again.num_io_tensors == 2


def test_a_run_by_names_on_a_stream() -> None:
    device = host_device()
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    y = np.zeros((3, 3), np.float32)
    context = load(dynamic_engine()).create_execution_context()
    assert tuple(context.get_tensor_shape("y")) == (-1, 3)
    assert context.infer_shapes() == ["x"]
    assert context.get_max_output_size("y") == -1
    assert context.set_input_shape("x", (3, 4))
    assert context.infer_shapes() == []
    assert tuple(context.get_tensor_shape("y")) == (3, 3)
    assert tuple(context.get_tensor_strides("y")) == (3, 1)
    assert context.get_max_output_size("y") == 36
    stream = device.new_stream()
    d_x, d_y = device.memory.allocate(x.nbytes), device.memory.allocate(y.nbytes)
    handle = int(stream.handle.value or 0)
    device.copy(d_x, address(x), x.nbytes, handle)
    assert context.set_tensor_address("x", d_x)
    assert context.set_tensor_address("y", d_y)
    assert context.get_tensor_address("y") == d_y
    assert context.execute_async_v3(handle)
    device.copy(address(y), d_y, y.nbytes, handle)
    stream.synchronize()
    np.testing.assert_allclose(y, scale_reference(x), **CLOSE)
    device.free(d_x)
    device.free(d_y)


def test_a_run_keeps_the_shapes_it_was_enqueued_with() -> None:
    context = load(dynamic_engine()).create_execution_context()
    stream = host_device().new_stream()
    handle = int(stream.handle.value or 0)
    x = np.ones((4, 4), np.float32)
    outputs = [np.zeros((n, 3), np.float32) for n in (4, 2, 1)]
    for y in outputs:
        context.set_input_shape("x", (len(y), 4))
        context.set_tensor_address("x", address(x))
        context.set_tensor_address("y", address(y))
        assert context.execute_async_v3(handle)
    assert tuple(context.get_tensor_shape("y")) == (1, 3)
    stream.synchronize()
    for y in outputs:
        np.testing.assert_allclose(y, scale_reference(x[: len(y)]), **CLOSE)


def test_execute_v2_and_the_second_profile() -> None:
    context = load(dynamic_engine()).create_execution_context()
    assert context.active_optimization_profile == 0
    assert context.set_optimization_profile_async(1, 0)
    assert context.active_optimization_profile == 1
    x, y = np.ones((9, 4), np.float32), np.zeros((9, 3), np.float32)
    assert context.set_input_shape("x", x.shape)
    assert context.execute_v2([address(x), address(y)])
    np.testing.assert_allclose(y, scale_reference(x), **CLOSE)


class Allocator(trt.IOutputAllocator):
    def __init__(self) -> None:
        trt.IOutputAllocator.__init__(self)
        self.memory: Any = None
        self.asked: list[tuple[str, int]] = []
        self.shapes: dict[str, tuple[int, ...]] = {}

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        self.asked.append((tensor_name, size))
        self.memory = np.zeros(size, np.uint8)
        return address(self.memory)

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        self.shapes[tensor_name] = tuple(shape)


def test_an_output_allocator_hears_the_size_that_the_data_decides() -> None:
    context = load(non_zero_engine()).create_execution_context()
    x = np.float32([[0, 1, 0, 2, 0], [3, 0, 0, 0, 0]])
    allocator = Allocator()
    assert context.set_tensor_address("x", address(x))
    assert context.set_output_allocator("y", allocator)
    assert context.get_output_allocator("y") is allocator
    assert context.execute_async_v3(0)
    assert allocator.shapes == {"y": (2, 3)}
    assert allocator.asked == [("y", 48)]
    np.testing.assert_array_equal(allocator.memory.view(np.int64).reshape(2, 3), np.nonzero(x))
    assert tuple(context.get_tensor_shape("y")) == (2, 3)


def test_an_output_whose_size_the_data_decides_fits_its_largest_size() -> None:
    context = load(non_zero_engine()).create_execution_context()
    size = context.get_max_output_size("y")
    assert size == 2 * 10 * 8
    x, y = np.ones((2, 5), np.float32), np.zeros(size // 8, np.int64)
    assert context.set_tensor_address("x", address(x))
    assert context.set_tensor_address("y", address(y))
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(y.reshape(2, 10), np.nonzero(x))


def test_an_output_allocator_of_a_known_shape() -> None:
    context = load(static_engine()).create_execution_context()
    x, allocator = np.ones((2, 4), np.float32), Allocator()
    context.set_tensor_address("x", address(x))
    context.set_output_allocator("y", allocator)
    assert context.execute_async_v3(0)
    assert allocator.shapes == {"y": (2, 3)}
    got = allocator.memory.view(np.float32).reshape(2, 3)
    np.testing.assert_allclose(got, scale_reference(x), **CLOSE)


class Times(trt.IProfiler):
    def __init__(self) -> None:
        trt.IProfiler.__init__(self)
        self.layers: list[str] = []

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        assert ms >= 0
        self.layers.append(layer_name)


def test_a_profiler_hears_of_every_layer() -> None:
    engine = load(static_engine())
    context = engine.create_execution_context()
    context.profiler = times = Times()
    x, y = np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)
    assert context.execute_v2([address(x), address(y)])
    assert len(times.layers) == engine.num_layers
    context.enqueue_emits_profile = False
    times.layers.clear()
    assert context.execute_v2([address(x), address(y)])
    assert times.layers == []
    assert context.report_to_profiler()
    assert len(times.layers) == engine.num_layers
    assert not context.report_to_profiler()


class Listener(trt.IDebugListener):
    def __init__(self) -> None:
        trt.IDebugListener.__init__(self)
        self.seen: dict[str, np.ndarray[Any, Any]] = {}

    def process_debug_tensor(
        self, addr: int, location: Any, type: Any, shape: Any, name: str, stream: int
    ) -> bool:
        assert type is trt.float32
        count = trt.volume(shape)
        content = (ctypes.c_float * count).from_address(addr)
        self.seen[name] = np.array(content, np.float32).reshape(tuple(shape))
        return True


def test_a_debug_listener_gets_what_is_switched_on() -> None:
    engine = load(debug_engine())
    assert engine.is_debug_tensor("m")
    assert not engine.is_debug_tensor("x")
    context, listener = engine.create_execution_context(), Listener()
    assert context.set_debug_listener(listener)
    x, y = np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)
    assert context.execute_v2([address(x), address(y)])
    assert listener.seen == {}
    assert context.set_tensor_debug_state("m", True)
    assert context.get_debug_state("m")
    assert context.execute_v2([address(x), address(y)])
    np.testing.assert_allclose(np.maximum(listener.seen["m"] + 1, 0), y, **CLOSE)


def test_contexts_by_strategy() -> None:
    engine = load(static_engine())
    config = engine.create_runtime_config()
    strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    config.set_execution_context_allocation_strategy(strategy)
    for context in (
        engine.create_execution_context(strategy),
        engine.create_execution_context(config),
        engine.create_execution_context_without_device_memory(),
    ):
        x, y = np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)
        assert not context.execute_v2([address(x), address(y)])
        memory = np.zeros(engine.device_memory_size_v2 + 1, np.uint8)
        context.set_device_memory(address(memory), memory.nbytes)
        assert context.execute_v2([address(x), address(y)])


def test_the_consumed_event_is_recorded() -> None:
    device = host_device()
    event = device.create_event()
    context = load(static_engine()).create_execution_context()
    assert context.set_input_consumed_event(event)
    assert context.get_input_consumed_event() == event
    x, y = np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)
    context.set_tensor_address("x", address(x))
    context.set_tensor_address("y", address(y))
    assert context.execute_async_v3(device.create_stream())
    device.event(event).synchronize()
    np.testing.assert_allclose(y, scale_reference(x), **CLOSE)


def test_a_marked_tensor_is_kept_from_fusion() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (1, 3, 8, 8))
    w = np.ones((4, 3, 3, 3), np.float32)
    c = network.add_convolution_nd(x, 4, (3, 3), w).get_output(0)
    y = network.add_activation(c, trt.ActivationType.RELU).get_output(0)
    c.name, y.name = "c", "y"
    network.mark_output(y)
    assert network.mark_debug(c) and network.mark_debug(y)
    engine = load(plan_of(network, level=3))
    assert engine is not None, log.errors
    assert engine.is_debug_tensor("c") and engine.is_debug_tensor("y")
    context, listener = engine.create_execution_context(), Listener()
    assert context.set_debug_listener(listener) and context.set_all_tensors_debug_state(True)
    given = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    out = np.zeros((1, 4, 6, 6), np.float32)
    assert context.execute_v2([address(given), address(out)])
    windows = np.lib.stride_tricks.sliding_window_view(given, (3, 3), (2, 3))
    sums = windows.sum((1, 4, 5), np.float64)[:, None].repeat(4, 1)  # of 27 normal numbers
    np.testing.assert_allclose(listener.seen["c"], sums, **CLOSE)
    np.testing.assert_array_equal(listener.seen["y"], out)
    np.testing.assert_array_equal(np.maximum(listener.seen["c"], 0), out)


def test_marked_copies_are_tensors_of_their_own() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    first = network.add_identity(x).get_output(0)
    e = network.add_unary(first, trt.UnaryOperation.EXP).get_output(0)
    second = network.add_cast(e, trt.float32).get_output(0)
    y = network.add_unary(second, trt.UnaryOperation.NEG).get_output(0)
    for tensor, name in ((first, "first"), (second, "second"), (y, "y")):
        tensor.name = name
    network.mark_output(y)
    assert network.mark_debug(first) and network.mark_debug(second)
    data = plan_of(network, level=3)
    assert data is not None, log.errors
    context, listener = load(data).create_execution_context(), Listener()
    assert context.set_debug_listener(listener) and context.set_all_tensors_debug_state(True)
    given, out = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 3), np.float32)
    assert context.execute_v2([address(given), address(out)])
    np.testing.assert_array_equal(listener.seen["first"], given)
    np.testing.assert_array_equal(listener.seen["second"], -out)
