"""Wrong use as scripts of releases 7 to 9 can make it: bindings, batch sizes, `active_…`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from braze.shim.cuda import driver, runtime
from braze.shim.device import host_device
from braze.shim.pycuda import driver as cuda
from tests.tensorrt.engines import Watched, dynamic_engine, gather_engine, static_engine

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ARGUMENT = trt.ErrorCodeTRT.INVALID_ARGUMENT
X, Y = np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)
BOTH = [X.ctypes.data, Y.ctypes.data]
# how a run is called -> the name that its errors have
CALLS = {
    "execute_v2": "executeV2",
    "execute_async_v2": "enqueueV2",
    "execute": "IExecutionContext::execute:",
    "execute_async": "IExecutionContext::enqueue:",
}


def called(context: Any, call: str, bindings: list[Any]) -> bool:
    """One run, waited for where it is asynchronous and began."""
    if call == "execute_v2":
        return bool(context.execute_v2(bindings))
    if call == "execute":
        return bool(context.execute(1, bindings))
    stream = cuda.Stream()
    if call == "execute_async_v2":
        began = context.execute_async_v2(bindings, stream.handle)
    else:
        began = context.execute_async(1, bindings, stream.handle)
    if began:
        stream.synchronize()
    return bool(began)


@pytest.fixture
def dynamic() -> Iterator[Watched]:
    yield Watched(dynamic_engine())


@pytest.mark.parametrize("call", CALLS)
def test_addresses_that_are_not_set(call: str) -> None:
    watched = Watched(static_engine())
    for bindings, what in (([0, BOTH[1]], "input tensor x"), ([BOTH[0], None], "output tensor y")):
        assert called(watched.context, call, bindings) is False
        watched.told(ARGUMENT, CALLS[call], f"Address is not set for {what}")
    assert called(watched.context, call, BOTH)


@pytest.mark.parametrize("call", CALLS)
def test_memory_that_was_freed(call: str) -> None:
    watched, memory = Watched(static_engine()), cuda.mem_alloc(X.nbytes)
    cuda.memcpy_htod(memory, X)
    place = int(memory)
    assert called(watched.context, call, [place, BOTH[1]])
    memory.free()
    assert called(watched.context, call, [place, BOTH[1]]) is False
    watched.told(ARGUMENT, CALLS[call], "Tensor x takes 32 bytes", "it may have been freed")
    assert called(watched.context, call, BOTH)  # and everything still works


def test_shapes_that_do_not_fit(dynamic: Watched) -> None:
    assert dynamic.context.set_binding_shape(0, (5, 4)) is False
    dynamic.told(ARGUMENT, "does not satisfy any optimization profiles", "[1, 4]..[4, 4]")
    assert dynamic.context.set_binding_shape(1, (2, 3)) is False
    dynamic.told(ARGUMENT, "y is not an input")
    assert called(dynamic.context, "execute_v2", BOTH) is False
    dynamic.told(ARGUMENT, "Input shapes are not set: x")
    with pytest.raises(IndexError):
        dynamic.context.set_binding_shape(9, (2, 4))


def test_a_second_context_on_a_profile_that_is_not_shared(dynamic: Watched) -> None:
    dynamic.engine.table.record["profile_sharing"] = False
    second = dynamic.engine.create_execution_context()
    with pytest.raises(RuntimeError):
        second.active_optimization_profile = 0
    dynamic.told(trt.ErrorCodeTRT.INVALID_STATE, "Profile 0 has been chosen by another")
    assert second.active_optimization_profile == 1
    assert dynamic.engine.create_execution_context() is None
    dynamic.told(trt.ErrorCodeTRT.INVALID_STATE, "has been chosen by another IExecutionContext")


def test_batch_sizes_that_the_engine_has_not(dynamic: Watched) -> None:
    dynamic.engine.table.record.update(implicit_batch=True, max_batch_size=4)
    for batch in (0, 5):
        assert dynamic.context.execute(batch, BOTH) is False
        dynamic.told(ARGUMENT, f"Batch size {batch} is not from 1 to the max batch size")
    assert dynamic.context.execute_async(2, [BOTH[0]], 0) is False
    dynamic.told(ARGUMENT, "1 bindings are given")


def test_streams_that_are_none() -> None:
    watched, stream = Watched(static_engine()), host_device().create_stream()
    host_device().destroy_stream(stream)
    assert watched.context.execute_async_v2(BOTH, stream) is False
    watched.told(trt.ErrorCodeTRT.FAILED_EXECUTION, "enqueueV2", "is no stream")


@pytest.mark.parametrize("wrong", ["123", b"1", 1.0, None, -1, X])
def test_addresses_that_are_none(wrong: Any) -> None:
    context = Watched(static_engine()).context
    with pytest.raises(TypeError):
        context.set_tensor_address("x", wrong)
    assert context.get_tensor_address("x") == 0
    if wrong is not None:  # a binding that is not set
        with pytest.raises(TypeError):
            context.execute_v2([wrong, BOTH[1]])
    with pytest.raises(TypeError):
        context.execute_async_v3(wrong)


def test_addresses_that_other_packages_have() -> None:
    context, memory = Watched(static_engine()).context, cuda.mem_alloc(X.nbytes)
    assert context.set_tensor_address("x", memory)
    assert context.get_tensor_address("x") == int(memory)
    assert context.set_tensor_address("x", np.int64(64)) and context.set_tensor_address("x", 0)


def test_an_index_out_of_range_in_the_run() -> None:
    watched = Watched(gather_engine())
    x, y, i = np.ones(3, np.float32), np.zeros(2, np.float32), np.int64([0, 3])
    addresses = [a.ctypes.data for a in (x, i, y)]
    stream = cuda.Stream()
    assert watched.context.execute_async_v2(addresses, stream.handle)
    with pytest.raises(cuda.LaunchError):
        stream.synchronize()
    watched.told(trt.ErrorCodeTRT.FAILED_EXECUTION, "IExecutionContext::enqueueV2")


def test_statuses_in_words() -> None:
    good, bad = runtime.cudaError_t.cudaSuccess, driver.CUresult.CUDA_ERROR_INVALID_VALUE
    assert runtime.cudaGetErrorName(1) == (good, b"cudaErrorInvalidValue")
    texts = {0: b"no error", 1: b"invalid argument", 12345: b"unrecognized error code"}
    for code, text in texts.items():
        assert runtime.cudaGetErrorString(code) == (good, text)
    assert driver.cuGetErrorString(2)[1] == b"out of memory"
    assert driver.cuGetErrorString(12345) == driver.cuGetErrorName(12345) == (bad, None)
