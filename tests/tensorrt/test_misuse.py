"""Wrong use: an error through the logger, the error recorder and the return value, no crash."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from braze.engine import schema
from braze.engine.checksum import checksum
from braze.shim.device import host_device, wait
from braze.shim.errors import Code, DeviceError
from tests.tensorrt.engines import (
    Log,
    Recorder,
    Watched,
    dynamic_engine,
    gather_engine,
    load,
    non_zero_engine,
    static_engine,
    static_engine_of_two,
)


@pytest.fixture
def dynamic() -> Iterator[Watched]:
    yield Watched(dynamic_engine())


ARGUMENT = trt.ErrorCodeTRT.INVALID_ARGUMENT
X, Y = np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)


def test_addresses_that_are_not_set(dynamic: Watched) -> None:
    dynamic.context.set_input_shape("x", (2, 4))
    assert dynamic.context.execute_async_v3(0) is False
    dynamic.told(ARGUMENT, "IExecutionContext::enqueueV3", "Address is not set for input tensor x")
    dynamic.context.set_tensor_address("x", X.ctypes.data)
    assert dynamic.context.execute_async_v3(0) is False
    dynamic.told(ARGUMENT, "Address is not set for output tensor y")
    dynamic.context.set_tensor_address("y", Y.ctypes.data)
    dynamic.context.set_tensor_address("y", 0)
    assert dynamic.context.execute_async_v3(0) is False
    dynamic.told(ARGUMENT, "Address is not set for output tensor y")


def test_shapes_that_are_not_set(dynamic: Watched) -> None:
    assert dynamic.context.execute_v2([X.ctypes.data, Y.ctypes.data]) is False
    dynamic.told(ARGUMENT, "Input shapes are not set: x")
    assert not dynamic.context.all_binding_shapes_specified


def test_shapes_that_do_not_fit(dynamic: Watched) -> None:
    assert dynamic.context.set_input_shape("x", (5, 4)) is False
    dynamic.told(
        ARGUMENT,
        "IExecutionContext::setInputShape",
        "Set dimension [5, 4] for tensor x does not satisfy any optimization profiles",
        "Valid range for profile 0: [1, 4]..[4, 4]",
    )
    assert dynamic.context.set_input_shape("x", (2, 5)) is False
    dynamic.told(ARGUMENT, "Static dimension mismatch while setting input shape for x")
    assert dynamic.context.set_input_shape("x", (2, 4, 1)) is False
    dynamic.told(ARGUMENT, "x have 3 axes")
    assert dynamic.context.set_input_shape("y", (2, 3)) is False
    dynamic.told(ARGUMENT, "y is not an input")
    assert dynamic.context.set_input_shape("z", (2, 3)) is False
    dynamic.told(ARGUMENT, "invalid tensor name: z")
    with pytest.raises(TypeError):
        dynamic.context.set_input_shape("x", 3)
    with pytest.raises(TypeError):
        dynamic.context.set_input_shape(1, (2, 4))


def test_names_and_numbers_an_engine_has_not(dynamic: Watched) -> None:
    engine = dynamic.engine
    assert len(engine.get_tensor_shape("z")) == 0
    dynamic.told(ARGUMENT, "ICudaEngine::getTensorShape", "invalid tensor name: z")
    assert engine.get_tensor_mode("z") is trt.TensorIOMode.NONE
    dynamic.told(ARGUMENT, "invalid tensor name: z")
    assert engine.get_tensor_name(2) is None
    dynamic.told(ARGUMENT, "Index 2 is not below")
    engine.get_tensor_profile_shape("x", 2)
    dynamic.told(ARGUMENT, "Profile index 2")
    with pytest.raises(RuntimeError):
        dynamic.context.set_optimization_profile_async(2, 0)
    dynamic.told(ARGUMENT, "Profile index 2")
    assert dynamic.context.set_tensor_address("z", 1) is False
    dynamic.told(ARGUMENT, "invalid tensor name: z")
    with pytest.raises(RuntimeError, match="input shape tensor"):
        engine.get_tensor_profile_values(0, "x")
    inspector = engine.create_engine_inspector()
    assert inspector.get_layer_information(99, trt.LayerInformationFormat.JSON) == ""
    dynamic.told(ARGUMENT, "Layer index 99")


def test_memory_that_was_freed() -> None:
    watched, device = Watched(static_engine()), host_device()
    d_x, d_y = device.memory.allocate(X.nbytes), device.memory.allocate(Y.nbytes)
    watched.context.set_tensor_address("x", d_x)
    watched.context.set_tensor_address("y", d_y)
    assert watched.context.execute_async_v3(0)
    device.free(d_x)
    assert watched.context.execute_async_v3(0) is False
    watched.told(ARGUMENT, "Tensor x takes 32 bytes", "it may have been freed")
    with pytest.raises(DeviceError):
        device.free(d_x)
    device.free(d_y)
    assert watched.context.execute_v2([8, 16]) is False
    watched.told(ARGUMENT, "Tensor x takes 32 bytes at 0x8")


def test_outputs_in_memory_that_is_read_only(tmp_path: Path) -> None:
    watched = Watched(static_engine())
    (tmp_path / "y").write_bytes(b"\0" * 4096)
    y = np.memmap(tmp_path / "y", np.float32, "r")
    assert watched.context.execute_v2([X.ctypes.data, y.ctypes.data]) is False
    watched.told(ARGUMENT, "Tensor y takes 24 bytes")
    assert watched.context.execute_v2([y.ctypes.data, Y.ctypes.data])


class Raising(trt.ILogger):
    def __init__(self) -> None:
        trt.ILogger.__init__(self)

    def log(self, severity: Any, msg: str) -> None:
        raise ValueError("logger")


def test_loggers_that_raise(capsys: pytest.CaptureFixture[str]) -> None:
    assert trt.Runtime(Raising()).deserialize_cuda_engine(b"no engine") is None
    assert capsys.readouterr().err == "[ERROR] Exception caught in log(): logger\n"


def test_streams_that_are_none() -> None:
    watched = Watched(static_engine())
    stream = host_device().create_stream()
    host_device().destroy_stream(stream)
    watched.context.set_tensor_address("x", X.ctypes.data)
    watched.context.set_tensor_address("y", Y.ctypes.data)
    assert watched.context.execute_async_v3(stream) is False
    watched.told(trt.ErrorCodeTRT.FAILED_EXECUTION, "is no stream")


@pytest.mark.parametrize("cut", [0, 7, 100, -1])
def test_engines_that_are_cut_short(cut: int) -> None:
    log, recorder = Log(), Recorder()
    runtime = trt.Runtime(log)
    runtime.error_recorder = recorder
    assert runtime.deserialize_cuda_engine(static_engine()[:cut]) is None
    assert recorder.get_error_code(0) is trt.ErrorCodeTRT.UNSPECIFIED_ERROR
    assert "IRuntime::deserializeCudaEngine: Error Code 1: Serialization" in log.errors[0]


def test_engines_that_are_damaged() -> None:
    log = Log()
    data = bytearray(static_engine())
    for place in range(8, len(data), max(1, len(data) // 60)):
        broken = bytearray(data)
        broken[place] ^= 0x55
        engine: Any = trt.Runtime(log).deserialize_cuda_engine(bytes(broken))
        if engine is None:
            continue
        # damage of a weight shows when weights are first needed
        context = engine.create_execution_context()
        if context is not None:
            context.execute_v2([X.ctypes.data, Y.ctypes.data])
    assert log.errors
    with pytest.raises(TypeError):
        trt.Runtime(log).deserialize_cuda_engine("engine")


def of_version(data: bytes, version: int) -> bytes:
    """An engine as another version of braze writes it."""
    fields, made = list(schema.HEADER.unpack_from(data)), bytearray(data)
    fields[1] = fields[2] = version  # its own, and the oldest that reads it
    schema.HEADER.pack_into(made, 0, *fields)
    fields[-1] = checksum(bytes(made[: schema.HEADER_CHECKED_BYTES]))
    schema.HEADER.pack_into(made, 0, *fields)
    return bytes(made)


@pytest.mark.parametrize("version", [schema.OLDEST_VERSION - 1, schema.VERSION + 1])
@pytest.mark.parametrize("with_block", [False, True])
def test_an_engine_of_another_version(version: int, with_block: bool) -> None:
    """As scripts of today load it, and as those of release 7 did."""
    log, recorder = Log(), Recorder()
    runtime = trt.Runtime(log)
    runtime.error_recorder = recorder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with runtime if with_block else nullcontext():
            engine = runtime.deserialize_cuda_engine(of_version(static_engine(), version))
    assert engine is None and recorder.num_errors() == 1
    assert recorder.get_error_code(0) is trt.ErrorCodeTRT.FAILED_INITIALIZATION
    assert "IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error" in log.errors[0]
    assert f"version {version}" in log.errors[0]


def test_a_second_context_on_a_profile_that_is_not_shared() -> None:
    watched = Watched(dynamic_engine())
    watched.engine.table.record["profile_sharing"] = False
    second = watched.engine.create_execution_context()
    assert second.active_optimization_profile == 1
    assert watched.engine.create_execution_context() is None
    watched.told(trt.ErrorCodeTRT.INVALID_STATE, "has been chosen by another IExecutionContext")
    with pytest.raises(RuntimeError):
        second.set_optimization_profile_async(0, 0)
    watched.told(trt.ErrorCodeTRT.INVALID_STATE, "Profile 0 has been chosen by another")
    watched.context = None
    assert second.set_optimization_profile_async(0, 0)


def test_an_index_out_of_range_in_the_run() -> None:
    watched, device = Watched(gather_engine()), host_device()
    x, y = np.ones(3, np.float32), np.zeros(2, np.float32)
    i = np.int64([0, 3])
    addresses = [a.ctypes.data for a in (x, i, y)]
    assert watched.context.execute_v2(addresses) is False
    watched.told(trt.ErrorCodeTRT.FAILED_EXECUTION, "IExecutionContext::executeV2")
    stream = device.new_stream()
    for name, place in zip("xiy", addresses, strict=True):
        watched.context.set_tensor_address(name, place)
    assert watched.context.execute_async_v3(int(stream.handle.value or 0))
    with pytest.raises(DeviceError) as raised:
        wait(stream)
    assert raised.value.code is Code.LAUNCH_FAILED
    watched.told(trt.ErrorCodeTRT.FAILED_EXECUTION, "IExecutionContext::enqueueV3")
    i[:] = 1
    assert watched.context.execute_v2(addresses)  # and everything still works


class Bad(trt.IOutputAllocator):
    """Gives what it was made with, or raises it."""

    def __init__(self, answer: Any) -> None:
        trt.IOutputAllocator.__init__(self)
        self.answer = answer

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        pass


@pytest.mark.parametrize("answer", [None, 0, 64, ValueError("mine")])
@pytest.mark.parametrize("late", [False, True])
def test_output_allocators_without_memory(answer: Any, late: bool) -> None:
    watched = Watched(non_zero_engine() if late else static_engine())
    x = np.ones((2, 5), np.float32)
    watched.context.set_tensor_address("x", x.ctypes.data)
    watched.context.set_output_allocator("y", Bad(answer))
    assert watched.context.execute_async_v3(0) is False
    assert watched.recorder.num_errors() == 1
    assert ("mine" if isinstance(answer, ValueError) else "output allocator") in (
        watched.log.errors[0]
    )
    assert watched.context.set_output_allocator("x", Bad(None)) is False


def test_output_allocators_that_run_out_of_memory() -> None:
    watched = Watched(static_engine())
    watched.context.set_tensor_address("x", X.ctypes.data)
    watched.context.set_output_allocator("y", Bad(MemoryError("no more")))
    assert watched.context.execute_async_v3(0) is False
    watched.told(trt.ErrorCodeTRT.FAILED_ALLOCATION, "OutOfMemory (MemoryError: no more)")


class Full(Recorder):
    """Keeps one error."""

    def report_error(self, arg0: Any, arg1: str) -> bool:
        self.dropped = bool(self.errors)
        return super().report_error(arg0, arg1) if not self.errors else False

    def has_overflowed(self) -> bool:
        return self.dropped


def test_recorders_have_little_room() -> None:
    watched = Watched(static_engine())
    watched.context.error_recorder = recorder = Full()
    for overflowed in (False, True):
        assert not watched.context.execute_v2([0, 0])
        assert recorder.has_overflowed() is overflowed and recorder.num_errors() == 1
    assert recorder.MAX_DESC_LENGTH == 127
    inspector = watched.engine.create_engine_inspector()
    inspector.error_recorder = recorder = Full()
    assert inspector.get_layer_information(99, trt.LayerInformationFormat.JSON) == ""
    assert recorder.get_error_code(0) is ARGUMENT and inspector.error_recorder is recorder


class Raises(trt.IProfiler):
    def __init__(self) -> None:
        trt.IProfiler.__init__(self)

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        raise ValueError("profiler")


def test_listeners_and_recorders_that_raise() -> None:
    watched = Watched(static_engine())
    watched.context.profiler = Raises()
    assert watched.context.execute_v2([X.ctypes.data, Y.ctypes.data]) is False
    assert "profiler" in watched.log.errors[0]
    watched.context.profiler = None
    watched.context.error_recorder = trt.IErrorRecorder()  # overrides nothing
    assert watched.context.execute_v2([0, 0]) is False


def test_a_wrong_number_of_bindings() -> None:
    watched = Watched(static_engine())
    assert watched.context.execute_v2([X.ctypes.data]) is False
    watched.told(ARGUMENT, "1 bindings are given, and the engine has 2")


def test_debug_states_of_tensors_that_are_not_marked() -> None:
    watched = Watched(static_engine())
    assert watched.context.set_tensor_debug_state("m", True) is False
    watched.told(ARGUMENT, "m is no debug tensor")
    assert load(static_engine()).create_execution_context().set_all_tensors_debug_state(True)


def test_too_little_memory_of_the_program() -> None:
    """Two layers, so that there are activations between them."""
    watched = Watched(static_engine_of_two())
    strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    context = watched.engine.create_execution_context(strategy)
    needed = context.update_device_memory_size_for_shapes()
    assert 0 < needed <= watched.engine.device_memory_size_v2
    context.set_device_memory(1 << 20, needed - 1)
    assert context.execute_v2([X.ctypes.data, Y.ctypes.data]) is False
    watched.told(trt.ErrorCodeTRT.INVALID_STATE, f"needs {needed} bytes", f"{needed - 1} bytes")
    context.set_device_memory(1 << 20, needed)
    assert context.execute_v2([X.ctypes.data, Y.ctypes.data])
