"""CUDA Python's runtime and driver, and libcudart through ctypes, on the host device."""

from __future__ import annotations

import ctypes

import numpy as np

from braze.shim.cuda import driver, nvrtc
from braze.shim.cuda import runtime as cudart
from braze.shim.cuda.library import CudartLibrary

SUCCESS = cudart.cudaError_t.cudaSuccess


def test_the_usual_way() -> None:
    x = np.arange(8, dtype=np.float32)
    y = np.zeros_like(x)
    err, stream = cudart.cudaStreamCreate()
    assert err == SUCCESS
    err, memory = cudart.cudaMalloc(x.nbytes)
    assert err == SUCCESS
    to_device = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
    to_host = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
    assert cudart.cudaMemcpyAsync(memory, x.ctypes.data, x.nbytes, to_device, stream) == (SUCCESS,)
    assert cudart.cudaMemcpyAsync(y.ctypes.data, memory, x.nbytes, to_host, stream) == (SUCCESS,)
    assert cudart.cudaStreamSynchronize(stream) == (SUCCESS,)
    np.testing.assert_array_equal(x, y)
    assert cudart.cudaMemset(memory, 0, x.nbytes) == (SUCCESS,)
    assert cudart.cudaMemcpy(y.ctypes.data, memory, x.nbytes, to_host) == (SUCCESS,)
    assert not y.any()
    assert cudart.cudaFree(memory) == (SUCCESS,)
    assert cudart.cudaStreamDestroy(stream) == (SUCCESS,)


def test_host_memory_is_an_array() -> None:
    err, place = cudart.cudaMallocHost(64)
    assert err == SUCCESS
    floats = ctypes.cast(place, ctypes.POINTER(ctypes.c_float))
    array = np.ctypeslib.as_array(floats, (16,))
    array[:] = 3
    assert cudart.cudaFreeHost(place) == (SUCCESS,)


def test_errors_are_statuses() -> None:
    invalid = cudart.cudaError_t.cudaErrorInvalidValue
    assert cudart.cudaFree(12345) == (invalid,)
    assert cudart.cudaPeekAtLastError() == (invalid,)
    assert cudart.cudaGetLastError() == (invalid,)
    assert cudart.cudaGetLastError() == (SUCCESS,)
    assert cudart.cudaMemcpy(0, 0, 8, 1) == (invalid,)
    assert cudart.cudaMalloc(-1) == (invalid, 0)
    assert cudart.cudaStreamSynchronize(77)[0].name == "cudaErrorInvalidResourceHandle"
    assert cudart.cudaSetDevice(1)[0].name == "cudaErrorInvalidDevice"
    assert cudart.cudaStreamBeginCapture(0, 0)[0].name == "cudaErrorNotSupported"
    assert cudart.cudaGetErrorName(invalid) == (SUCCESS, b"cudaErrorInvalidValue")
    assert cudart.cudaFree(0) == (SUCCESS,)


def test_events_and_the_device() -> None:
    _, start = cudart.cudaEventCreate()
    _, end = cudart.cudaEventCreateWithFlags(cudart.cudaEventDisableTiming)
    _, stream = cudart.cudaStreamCreateWithFlags(cudart.cudaStreamNonBlocking)
    assert cudart.cudaEventRecord(start, stream) == (SUCCESS,)
    assert cudart.cudaEventRecord(end, stream) == (SUCCESS,)
    assert cudart.cudaStreamWaitEvent(stream, end, 0) == (SUCCESS,)
    assert cudart.cudaEventSynchronize(end) == (SUCCESS,)
    assert cudart.cudaEventQuery(end) == (SUCCESS,)
    assert cudart.cudaEventElapsedTime(start, end)[1] >= 0
    assert cudart.cudaDeviceSynchronize() == (SUCCESS,)
    assert cudart.cudaGetDeviceCount() == (SUCCESS, 1)
    assert cudart.cudaGetDeviceProperties(0)[1].totalGlobalMem > 0
    assert cudart.cudaMemGetInfo()[2] > 0
    assert cudart.cudaEventDestroy(start) == (SUCCESS,)


def test_pools_and_names_of_types() -> None:
    properties = cudart.cudaMemPoolProps()
    properties.allocType = cudart.cudaMemAllocationType.cudaMemAllocationTypePinned
    properties.location.type = cudart.cudaMemLocationType.cudaMemLocationTypeDevice
    _, pool = cudart.cudaMemPoolCreate(properties)
    threshold = cudart.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold
    assert cudart.cudaMemPoolSetAttribute(pool, threshold, 0) == (SUCCESS,)
    _, stream = cudart.cudaStreamCreate()
    assert isinstance(stream, cudart.cudaStream_t)
    err, memory = cudart.cudaMallocFromPoolAsync(64, pool, stream)
    assert err == SUCCESS
    assert cudart.cudaFreeAsync(memory, stream) == (SUCCESS,)
    assert cudart.cudaMemPoolDestroy(pool) == (SUCCESS,)
    assert nvrtc.nvrtcGetErrorString(0)[1] == b"NVRTC_SUCCESS"
    assert isinstance(cudart.cudaEventCreate()[1], cudart.cudaEvent_t)


def test_the_driver() -> None:
    assert driver.cuInit(0) == (driver.CUresult.CUDA_SUCCESS,)
    _, device = driver.cuDeviceGet(0)
    _, context = driver.cuCtxCreate(0, device)
    _, memory = driver.cuMemAlloc(16)
    x, y = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    assert driver.cuMemcpyHtoD(memory, x.ctypes.data, 16) == (driver.CUresult.CUDA_SUCCESS,)
    assert driver.cuMemcpyDtoH(y.ctypes.data, memory, 16) == (driver.CUresult.CUDA_SUCCESS,)
    np.testing.assert_array_equal(x, y)
    assert driver.cuMemFree(memory) == (driver.CUresult.CUDA_SUCCESS,)
    assert driver.cuMemFree(memory)[0] is driver.CUresult.CUDA_ERROR_INVALID_VALUE
    assert driver.cuGetErrorName(1)[1] == b"CUDA_ERROR_INVALID_VALUE"
    assert driver.cuCtxDestroy(context) == (driver.CUresult.CUDA_SUCCESS,)
    assert nvrtc.nvrtcResult.NVRTC_SUCCESS == 0


def test_the_library_through_ctypes() -> None:
    lib = CudartLibrary("libcudart.so")
    stream, memory = ctypes.c_void_p(), ctypes.c_void_p()
    assert lib.cudaStreamCreate(ctypes.byref(stream)) == 0
    assert lib.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(16)) == 0
    x, y = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    size = ctypes.c_size_t(16)
    source, target = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
    assert lib.cudaMemcpyAsync(memory, source, size, ctypes.c_int(1), stream) == 0
    assert lib.cudaMemcpyAsync(target, memory, size, ctypes.c_int(2), stream) == 0
    assert lib.cudaStreamSynchronize(stream) == 0
    np.testing.assert_array_equal(x, y)
    assert lib.cudaFree(memory) == 0
    assert lib.cudaFree(memory) == 1
    assert lib.cudaFree(ctypes.c_void_p(None)) == 0
    assert lib.cudaStreamDestroy(stream) == 0
