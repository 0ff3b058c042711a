"""The CUDA driver through ctypes: what tuning needs to run a cubin and time it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from braze.core.dims import evaluate
from braze.core.dtypes import DType
from braze.core.errors import ExecutionError, TargetError
from braze.fusion.kernel import TensorMap

Array = np.ndarray[Any, Any]
MAX_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
FREE_SHARED = 48 << 10  # more must be asked for
OUT_OF_MEMORY, NO_DEVICE = 2, 100
OLDEST_DRIVER = 12000  # the first with all that is called here and in the runtime
EARLY_START = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
MAP_BYTES = 128  # of a CUtensorMap
MAP_ELEMENTS = {1: 0, 2: 1, 4: 2, 8: 4}  # bytes -> CU_TENSOR_MAP_DATA_TYPE_UINT8, 16, 32, 64
L2_PROMOTION = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU: its name, compute capability ("sm_90") and the driver's version ("13.0")."""

    name: str
    capability: str
    driver: str


@dataclass(frozen=True, slots=True)
class Function:
    """A loaded kernel and how a block of it is launched."""

    handle: ctypes.c_void_p
    threads: int
    shared: int


def _version_text(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: its number, and a union of 64 bytes."""

    _fields_ = (
        ("number", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_int * 16),
    )  # fmt: skip


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map with sizes that are known: see `TensorMap`."""

    buffer: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


class Device:
    """Device 0 without a context, so that asking what it is takes none of its memory.

    Raises TargetError where there is none that braze can use.
    """

    def __init__(self) -> None:
        try:
            self._lib = ctypes.CDLL("libcuda.so.1")
        except OSError as e:
            raise TargetError("there is no NVIDIA driver here (libcuda.so.1)") from e
        version = self._driver_version()
        if version < OLDEST_DRIVER:  # first, since functions of later versions may be missing
            raise TargetError(
                f"the NVIDIA driver here is for CUDA {_version_text(version)} and "
                f"{_version_text(OLDEST_DRIVER)} or newer is needed"
            )
        code = self._lib.cuInit(0)
        if code:
            no_device = code == NO_DEVICE
            raise TargetError(
                "the NVIDIA driver here finds no GPU"
                if no_device
                else f"the NVIDIA driver here does not start (error {code})"
            )
        self._device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self._device), 0)

    def _driver_version(self) -> int:
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    def call(self, name: str, *arguments: Any) -> None:
        """Call a driver function; raises MemoryError or ExecutionError."""
        code = getattr(self._lib, name)(*arguments)
        if code == OUT_OF_MEMORY:
            raise MemoryError(name)
        if code:
            raise ExecutionError(
                f"the CUDA driver's {name} failed with error {code}; "
                "check the GPU with nvidia-smi and run again"
            )

    def card(self) -> Card:
        """What the device is."""
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, self._device)
        numbers = [ctypes.c_int() for _ in range(2)]
        self.call("cuDeviceGetAttribute", ctypes.byref(numbers[0]), MAJOR, self._device)
        self.call("cuDeviceGetAttribute", ctypes.byref(numbers[1]), MINOR, self._device)
        major, minor = (n.value for n in numbers)
        driver = _version_text(self._driver_version())
        return Card(name.value.decode(), f"sm_{major}{minor}", driver)


class Driver(Device):
    """The primary context of device 0."""

    def __init__(self) -> None:
        super().__init__()
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._context = context
        self.bind()

    def bind(self) -> None:
        """Make the context that of the calling thread."""
        self.call("cuCtxSetCurrent", self._context)

    def allocate(self, count: int) -> int:
        """Address of `count` bytes of device memory."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(16, count)))
        return address.value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def upload(self, array: Array) -> int:
        """Device memory with the bytes of a contiguous array."""
        address = self.allocate(array.nbytes)
        self.write(address, array)
        return address

    def write(self, address: int, array: Array) -> None:
        if array.nbytes:
            source = ctypes.c_void_p(array.ctypes.data)
            size = ctypes.c_size_t(array.nbytes)
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), source, size)

    def copy(self, to: int, source: int, count: int) -> None:
        """Copy `count` bytes within device memory."""
        size = ctypes.c_size_t(count)
        self.call("cuMemcpyDtoD_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), size)

    def clear(self, address: int, count: int, byte: int = 0) -> None:
        """Set `count` bytes of device memory to `byte`."""
        if count:
            size = ctypes.c_size_t(count)
            self.call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(byte), size)

    def read(self, address: int, array: Array) -> None:
        """Fill `array` from device memory."""
        if array.nbytes:
            target = ctypes.c_void_p(array.ctypes.data)
            size = ctypes.c_size_t(array.nbytes)
            self.call("cuMemcpyDtoH_v2", target, ctypes.c_uint64(address), size)

    def function(self, code: bytes, entry: str, threads: int, shared: int) -> Function:
        """Load a cubin. Its module stays loaded for the life of the context."""
        module, handle = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), code)
        self.call("cuModuleGetFunction", ctypes.byref(handle), module, entry.encode())
        if shared > FREE_SHARED:
            self.call("cuFuncSetAttribute", handle, MAX_SHARED, shared)
        return Function(handle, threads, shared)

    def tensor_map(self, m: Map, address: int) -> Any:
        """The driver's 128 bytes for a tensor at `address`."""
        rank, size = len(m.shape), m.dtype.itemsize
        storage = (ctypes.c_char * (2 * MAP_BYTES))()
        made = (ctypes.c_char * MAP_BYTES).from_buffer(storage, -ctypes.addressof(storage) % 64)
        shape = (ctypes.c_uint64 * rank)(*reversed(m.shape))
        strides = (ctypes.c_uint64 * rank)(*[s * size for s in reversed(m.strides)])
        box = (ctypes.c_uint32 * rank)(*reversed(m.box))
        ones = (ctypes.c_uint32 * rank)(*[1] * rank)
        element = MAP_ELEMENTS[size]
        where = (made, element, rank, ctypes.c_uint64(address), shape, strides, box, ones)
        self.call("cuTensorMapEncodeTiled", *where, 0, m.swizzle, L2_PROMOTION, 0)
        return made

    def launch(
        self,
        function: Function,
        grid: int,
        addresses: Sequence[int],
        sizes: Sequence[int],
        stream: ctypes.c_void_p | None = None,
        early: bool = False,
        maps: Sequence[Map] = (),
    ) -> None:
        """Arguments in Triton's order: tensor maps, each with its shape and strides, pointers,
        sizes, then two scratch pointers (unused).

        early: what stands before it in the stream is a launch, and this kernel waits by itself.
        """
        values: list[Any] = []
        for m in maps:
            values.append(self.tensor_map(m, addresses[m.buffer]))
            values += [ctypes.c_int32(d) for d in m.shape]
            values += [ctypes.c_int64(s) for s in (*m.strides, 1)]
        values += [ctypes.c_uint64(a) for a in addresses]
        values += [ctypes.c_int64(p) for p in sizes]
        values += [ctypes.c_uint64(0), ctypes.c_uint64(0)]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        attribute = _Attribute(EARLY_START)
        attribute.value[0] = 1
        block = (ctypes.c_uint * 3)(function.threads, 1, 1)
        blocks = (ctypes.c_uint * 3)(grid, 1, 1)
        config = _Config(
            blocks, block, function.shared, stream, ctypes.pointer(attribute), int(early)
        )
        self.call("cuLaunchKernelEx", ctypes.byref(config), function.handle, pointers, None)

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")


def placed(m: TensorMap, sizes: Mapping[str, int]) -> Map:
    """A tensor map at these sizes."""
    shape = tuple(evaluate(d, sizes) for d in m.shape)
    strides = tuple(evaluate(d, sizes) for d in m.strides)
    return Map(m.buffer, m.dtype, shape, strides, m.box, m.swizzle)


@lru_cache(maxsize=1)
def seek_card() -> Card | str:
    """The GPU here, or why there is none to use."""
    try:
        return Device().card()
    except (TargetError, ExecutionError, MemoryError) as e:
        return str(e)


def find_card() -> Card | None:
    """The GPU here, or None where there is none to use."""
    found = seek_card()
    return found if isinstance(found, Card) else None
