"""Enums and structures of CUDA Python that programs name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from braze.shim.errors import Code


class cudaError_t(IntEnum):
    """What a call of the runtime came to."""

    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInitializationError = 3
    cudaErrorNoDevice = 100
    cudaErrorInvalidDevice = 101
    cudaErrorInvalidResourceHandle = 400
    cudaErrorNotReady = 600
    cudaErrorIllegalAddress = 700
    cudaErrorLaunchFailure = 719
    cudaErrorNotSupported = 801
    cudaErrorUnknown = 999


class CUresult(IntEnum):
    """What a call of the driver came to."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_LAUNCH_FAILED = 719
    CUDA_ERROR_NOT_SUPPORTED = 801
    CUDA_ERROR_UNKNOWN = 999


class nvrtcResult(IntEnum):
    """What a call of the run-time compiler came to; there is none here."""

    NVRTC_SUCCESS = 0
    NVRTC_ERROR_COMPILATION = 6


class cudaMemcpyKind(IntEnum):
    """Directions of copies."""

    cudaMemcpyHostToHost = 0
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3
    cudaMemcpyDefault = 4


class cudaDeviceAttr(IntEnum):
    """Attributes that programs ask for."""

    cudaDevAttrMaxThreadsPerBlock = 1
    cudaDevAttrWarpSize = 10
    cudaDevAttrClockRate = 13
    cudaDevAttrMultiProcessorCount = 16
    cudaDevAttrComputeCapabilityMajor = 75
    cudaDevAttrComputeCapabilityMinor = 76


@dataclass(frozen=True, slots=True)
class cudaDeviceProp:
    """What the host is as a device."""

    name: bytes
    totalGlobalMem: int
    multiProcessorCount: int
    major: int = 0
    minor: int = 0
    clockRate: int = 0
    memoryClockRate: int = 0
    memoryBusWidth: int = 0
    sharedMemPerBlock: int = 0
    sharedMemPerMultiprocessor: int = 0
    maxThreadsPerBlock: int = 1
    warpSize: int = 1
    textureAlignment: int = 512
    integrated: int = 1
    unifiedAddressing: int = 1
    pciBusID: int = 0
    pciDeviceID: int = 0


def runtime_error(code: Code) -> cudaError_t:
    """The runtime's name of a number."""
    return cudaError_t(int(code))


def driver_error(code: Code) -> CUresult:
    """The driver's name of a number."""
    return CUresult(int(code))
