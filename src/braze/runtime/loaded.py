"""The native side of an engine: its handle and what a run needs to know about its tensors.

Contexts hold on to it and the Engine holds on to contexts, so nothing refers in a circle and
memory is freed at once when the last user lets go.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_ubyte, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braze.core.dtypes import DType, from_name
from braze.core.errors import BindingError
from braze.runtime.native import TensorInfo, check, library


@dataclass(frozen=True, slots=True)
class TensorRow:
    """An input, output or debug tensor as the native engine describes it."""

    name: str
    dtype: DType
    rank: int
    is_output: bool
    shape_from_run: bool
    storage: np.dtype[Any]


class LoadedEngine:
    """Owns a native engine handle. keep: memory the engine borrows."""

    def __init__(self, handle: c_void_p, keep: Any = None) -> None:
        self.lib = library()
        self.handle = handle
        self._keep = keep
        self.num_inputs = int(self.lib.braze_engine_num_inputs(handle))
        count = self.num_inputs + self.lib.braze_engine_num_outputs(handle)
        self.bindings = tuple(self._row("braze_engine_binding", i) for i in range(count))
        self.debug_tensors = tuple(
            self._row("braze_engine_debug_tensor", i)
            for i in range(self.lib.braze_engine_num_debug_tensors(handle))
        )
        kind, number = c_int32(), c_int32()
        check(self.lib.braze_engine_device(handle, ctypes.byref(kind), ctypes.byref(number)))
        self.device = (kind.value, number.value)  # as DLPack counts
        self._index = {b.name: i for i, b in enumerate(self.bindings)}

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.lib.braze_engine_destroy(self.handle)
            del self.handle  # no name of a module: they may be gone when the interpreter ends

    def _row(self, function: str, index: int) -> TensorRow:
        info = TensorInfo(ctypes.sizeof(TensorInfo))
        check(getattr(self.lib, function)(self.handle, index, ctypes.byref(info)))
        dtype = from_name(info.dtype.decode())
        name = info.name.decode("utf-8", "replace")
        is_output, late = bool(info.is_output), bool(info.shape_from_run)
        return TensorRow(name, dtype, info.rank, is_output, late, dtype.numpy)

    def binding_index(self, name: str) -> int:
        """The number of input or output `name`; raises BindingError for an unknown name."""
        if not isinstance(name, str) or name not in self._index:
            raise BindingError(f"the engine has no tensor {name!r}; it has {list(self._index)}")
        return self._index[name]

    def image(self) -> npt.NDArray[np.uint8]:
        """The bytes of the engine file where they lie; read-only, keeps the engine alive."""
        data, size = c_void_p(), c_uint64()
        check(self.lib.braze_engine_bytes(self.handle, ctypes.byref(data), ctypes.byref(size)))
        memory = (c_ubyte * size.value).from_address(data.value or 0)
        memory.owner = self  # type: ignore[attr-defined]
        image: npt.NDArray[np.uint8] = np.frombuffer(memoryview(memory), np.uint8)
        image.flags.writeable = False
        return image
