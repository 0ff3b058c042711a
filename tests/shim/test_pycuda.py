"""`pycuda.driver` on the host device."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from braze.shim.device import host_device
from braze.shim.memory import GRANULARITY
from braze.shim.pycuda import autoinit, compiler, gpuarray, tools
from braze.shim.pycuda import driver as cuda


def test_copies_on_a_stream_keep_their_order() -> None:
    stream = cuda.Stream()
    source = cuda.pagelocked_empty((1000,), np.float32)
    source[:] = np.arange(1000)
    target = np.zeros(1000, np.float32)
    first, second = cuda.mem_alloc(source.nbytes), cuda.mem_alloc(source.nbytes)
    cuda.memcpy_htod_async(first, source, stream)
    cuda.memcpy_dtod_async(second, first, source.nbytes, stream)
    cuda.memcpy_dtoh_async(target, second, stream)
    stream.synchronize()
    assert stream.is_done()
    np.testing.assert_array_equal(source, target)


def test_copies_of_any_layout_and_buffer() -> None:
    matrix = np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3))
    memory = cuda.to_device(matrix)
    got = cuda.from_device(memory, (2, 3), np.int32)
    np.testing.assert_array_equal(got, matrix)
    cuda.memcpy_htod(memory, bytes(range(24)))
    out = bytearray(24)
    cuda.memcpy_dtoh(out, int(memory))
    assert bytes(out) == bytes(range(24))
    cuda.memset_d32(memory, 7, 6)
    np.testing.assert_array_equal(cuda.from_device_like(memory, matrix), np.full((2, 3), 7))
    with pytest.raises(cuda.LogicError, match="contiguous"):
        cuda.memcpy_htod(memory, matrix[:, ::2])


def test_a_block_may_be_read_to_its_end_and_no_further() -> None:
    memory = cuda.mem_alloc(4)
    cuda.memcpy_dtoh(np.empty(GRANULARITY, np.uint8), memory)
    with pytest.raises(cuda.LogicError):
        cuda.memcpy_dtoh(np.empty(GRANULARITY + 1, np.uint8), memory)


def test_freed_memory_is_refused() -> None:
    memory = cuda.mem_alloc(64)
    place = int(memory)
    memory.free()
    with pytest.raises(cuda.LogicError):
        memory.free()
    with pytest.raises(cuda.LogicError, match="freed"):
        cuda.memcpy_htod(place, np.zeros(16, np.float32))


def test_memory_goes_with_its_last_reference() -> None:
    gc.collect()
    before = host_device().memory.in_use()
    memory: Any = cuda.mem_alloc(10 * GRANULARITY)
    assert host_device().memory.in_use() == before + 10 * GRANULARITY
    del memory
    assert host_device().memory.in_use() == before


def test_too_much_memory_is_refused() -> None:
    with pytest.raises(cuda.MemoryError):
        cuda.mem_alloc(1 << 60)


def test_events_tell_time_and_order() -> None:
    one, two = cuda.Stream(), cuda.Stream()
    start, end = cuda.Event(), cuda.Event()
    memory = cuda.mem_alloc(1 << 20)
    start.record(one)
    cuda.memset_d8_async(memory, 1, 1 << 20, one)
    end.record(one)
    two.wait_for_event(end)
    got = np.zeros(1 << 20, np.uint8)
    cuda.memcpy_dtoh_async(got, memory, two)
    two.synchronize()
    assert end.query()
    assert got.all()
    assert end.time_since(start) >= 0
    assert start.time_till(end) == end.time_since(start)
    cuda.Event().record().synchronize()


def test_the_device() -> None:
    cuda.init()
    assert cuda.Device.count() == 1
    assert cuda.Device(0).total_memory() > 0
    free, total = cuda.mem_get_info()
    assert 0 < free <= total
    context = cuda.Device(0).make_context()
    context.push()
    context.synchronize()
    context.pop()
    context.detach()
    assert autoinit.context is not None
    with pytest.raises(cuda.LogicError):
        cuda.Device(1)


def test_arrays_in_device_memory() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    a = gpuarray.to_gpu(x)
    assert (a.shape, a.size, a.nbytes, a.ndim, len(a)) == ((3, 4), 12, 48, 2, 3)
    np.testing.assert_array_equal(a.get(), x)
    np.testing.assert_array_equal(a.reshape(-1, 2).get(), x.reshape(6, 2))
    assert not gpuarray.zeros_like(a).get().any()
    assert (gpuarray.empty((2, 2)).fill(3).get() == 3).all()
    stream = cuda.Stream()
    b = gpuarray.to_gpu_async(x + 1, stream=stream)
    got = b.get_async(stream)
    stream.synchronize()
    np.testing.assert_array_equal(got, x + 1)
    np.testing.assert_array_equal(cuda.from_device(b.ptr, (3, 4), np.float32), x + 1)
    with pytest.raises(cuda.LogicError):
        a.set(x.astype(np.float64))


def test_pools_contexts_and_kernels() -> None:
    context = tools.make_default_context()
    context.pop()
    tools.clear_context_caches()
    memory = tools.DeviceMemoryPool().allocate(64)
    array = tools.PageLockedMemoryPool().allocate((16,), np.float32)
    cuda.memcpy_htod(memory, array)
    a = gpuarray.to_gpu(array, tools.DeviceMemoryPool().allocate)
    assert a.size == 16
    with pytest.raises(cuda.RuntimeError, match="where there is a GPU"):
        compiler.SourceModule("__global__ void f() {}")
