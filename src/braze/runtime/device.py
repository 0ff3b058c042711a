"""Memory of an engine's device, and tensors there that other libraries made."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import c_int64, c_ubyte, c_void_p
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.core.dtypes import BF16, DType
from braze.core.errors import BindingError, DTypeError, ExecutionError, ShapeError
from braze.runtime import dlpack
from braze.runtime.arguments import INT64_MAX, shape_of
from braze.runtime.arrays import Array
from braze.runtime.loaded import LoadedEngine, TensorRow
from braze.runtime.native import check

DEFAULT_STREAM: Final = 1  # of CUDA, as DLPack and __cuda_array_interface__ write it
_SPACES: Final = {"device": 0, "pinned": 1}


class Buffer:
    """Zeroed memory of an engine's device, or pinned memory of the host ("pinned").

    Raises ExecutionError where there is none left.
    """

    def __init__(self, engine: LoadedEngine, size: int, space: str = "device") -> None:
        self._lib = engine.lib
        self.handle = c_void_p()
        if size > INT64_MAX:
            raise ExecutionError(f"no memory has {size} bytes; make a smaller array")
        out = ctypes.byref(self.handle)
        check(self._lib.braze_buffer_create(engine.handle, _SPACES[space], size, out))
        self.address = int(self._lib.braze_buffer_data(self.handle) or 0)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._lib.braze_buffer_destroy(self.handle)
            del self.handle


class DeviceArray:
    """A row-major array in memory of an engine's device, zero at first.

    Other libraries take it without a copy, by `__dlpack__` or `__cuda_array_interface__`.
    """

    def __init__(self, engine: LoadedEngine, dtype: DType, shape: Sequence[int]) -> None:
        self._engine = engine
        self.dtype = dtype
        self.shape = shape_of("an array of the device", shape)
        self.nbytes = math.prod(self.shape) * dtype.numpy.itemsize
        self._buffer = Buffer(engine, self.nbytes)
        self.address = self._buffer.address

    def numpy(self) -> Array:
        """A copy on the host."""
        out = np.empty(self.shape, self.dtype.numpy)
        self._copy(out.ctypes.data, self.address)
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """What numpy.asarray gives: a copy on the host."""
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def copy_from(self, array: Array) -> None:
        """Fill it from an array of the host; raises BindingError for another type or shape."""
        source = np.ascontiguousarray(array)
        if source.dtype != self.dtype.numpy or source.shape != self.shape:
            raise BindingError(
                f"an array of {source.dtype} {source.shape} does not fit one of {self.dtype} "
                f"{self.shape} on the device; convert it"
            )
        self._copy(self.address, source.ctypes.data)

    def _copy(self, to: int, source: int) -> None:
        check(self._engine.lib.braze_engine_copy(self._engine.handle, to, source, self.nbytes))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html, version 3."""
        if self._engine.device[0] != dlpack.CUDA or self.dtype.numpy.isbuiltin != 1:
            raise AttributeError("__cuda_array_interface__ has no word for this array")
        return {
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
            "stream": None,  # what fills it has been waited for
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._engine.device

    def __dlpack__(self, **options: Any) -> Any:
        """A capsule that shares the memory; its content is complete, whatever the stream."""
        if self.dtype not in dlpack.CODES:
            raise BufferError(f"DLPack has no word for {self.dtype}")
        code, bits = dlpack.CODES[self.dtype]
        dims, managed = (c_int64 * max(1, len(self.shape)))(*self.shape), c_void_p()
        check(
            self._engine.lib.braze_buffer_dlpack(
                self._buffer.handle, code, bits, dims, len(self.shape), ctypes.byref(managed)
            )
        )
        return dlpack.capsule_of(managed.value or 0)


def pinned_empty(engine: LoadedEngine, dtype: DType, shape: Sequence[int]) -> Array:
    """An array of the host, zero at first, that the device copies fastest."""
    shape = shape_of("a pinned array", shape)
    size = math.prod(shape) * dtype.numpy.itemsize
    buffer = Buffer(engine, size, "pinned")
    memory = (c_ubyte * size).from_address(buffer.address)
    memory.owner = buffer  # type: ignore[attr-defined]
    array: Array = np.frombuffer(memoryview(memory), np.uint8).view(dtype.numpy).reshape(shape)
    return array


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """A tensor on the engine's device that a caller passed; `keep` owns it.

    stream: the CUDA stream whose work fills it, or None.
    """

    address: int
    shape: tuple[int, ...]
    nbytes: int
    keep: Any
    stream: int | None = None


def device_tensor(
    engine: LoadedEngine, row: TensorRow, value: Any, ordered: bool
) -> DeviceTensor | None:
    """`value` as the tensor of a GPU that it is, or None for anything else.

    ordered: its content must be waited for. Raises BindingError for another device and memory that
    is not contiguous, DTypeError, and ShapeError for another number of axes.
    """
    if isinstance(value, DeviceArray):
        t = dlpack.Tensor(
            value.address, value._engine.device, value.dtype, value.shape, None, value
        )
        return _checked(engine, row, t, value.dtype)
    if hasattr(value, "__dlpack_device__"):
        kind, number = value.__dlpack_device__()
        if int(kind) != dlpack.CUDA:
            return None
        _check_device(engine, row, (dlpack.CUDA, int(number)))
        try:
            t = dlpack.tensor_of(value.__dlpack__(stream=DEFAULT_STREAM if ordered else -1))
        except (BufferError, ValueError) as e:
            raise BindingError(f"tensor {row.name!r} cannot be shared ({e}); copy it") from e
        return _checked(engine, row, t, t.dtype, 0 if ordered else None)
    interface = getattr(value, "__cuda_array_interface__", None)
    return None if interface is None else _from_interface(engine, row, value, interface)


def _from_interface(
    engine: LoadedEngine, row: TensorRow, value: Any, interface: dict[str, Any]
) -> DeviceTensor:
    storage = np.dtype(interface["typestr"])
    bits = row.dtype is BF16 and storage == np.uint16
    unnamed = storage.kind == "V" and storage.itemsize == row.storage.itemsize
    same = storage == row.storage or bits or (unnamed and row.storage.isbuiltin == 2)
    address, read_only = interface["data"]
    if row.is_output and read_only:
        raise BindingError(f"output {row.name!r} is bound to read-only memory; give it a copy")
    strides = interface.get("strides")
    if strides is not None:
        strides = tuple(s // storage.itemsize for s in strides)
    # the interface does not say which GPU: the runtime looks at the address
    t = dlpack.Tensor(
        address or 0, engine.device, row.dtype, tuple(interface["shape"]), strides, value
    )
    if engine.device[0] != dlpack.CUDA:
        t = dlpack.Tensor(t.address, (dlpack.CUDA, 0), t.dtype, t.shape, t.strides, value)
    stream = interface.get("stream")
    return _checked(engine, row, t, row.dtype if same else storage, stream)


def _checked(
    engine: LoadedEngine, row: TensorRow, t: dlpack.Tensor, dtype: object, stream: int | None = None
) -> DeviceTensor:
    _check_device(engine, row, t.device)
    if dtype is not row.dtype:
        raise DTypeError(
            f"tensor {row.name!r} has element type {dtype} but the engine takes {row.dtype}; "
            "convert it"
        )
    if len(t.shape) != row.rank:
        raise ShapeError(
            f"tensor {row.name!r} has shape {t.shape} but the engine takes {row.rank} axes; "
            "reshape it"
        )
    if not _is_row_major(t.shape, t.strides):
        raise BindingError(
            f"tensor {row.name!r} of shape {t.shape} has strides {t.strides}, which are not "
            "row-major; make it contiguous"
        )
    nbytes = math.prod(t.shape) * row.storage.itemsize
    return DeviceTensor(t.address, t.shape, nbytes, t.keep, stream)


def _check_device(engine: LoadedEngine, row: TensorRow, device: tuple[int, int]) -> None:
    if device == engine.device:
        return
    names = ["the host" if d[0] != dlpack.CUDA else f"GPU {d[1]}" for d in (device, engine.device)]
    raise BindingError(
        f"tensor {row.name!r} lies on {names[0]} and the engine runs on {names[1]}; copy it there"
    )


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    if strides is None or 0 in shape:
        return True
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def stream_handle(stream: Any) -> int:
    """The CUstream behind a stream of another library, or an integer that is one.

    Knows `__cuda_stream__`, and the streams of PyTorch, CuPy and PyCUDA; raises BindingError.
    """
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr", "handle"):
        found = getattr(stream, name, None)
        if isinstance(found, int):
            return found
    raise BindingError(
        f"{type(stream).__name__} is no stream; give a braze.Stream, a stream of a CUDA library, "
        "or the integer of a CUstream"
    )
