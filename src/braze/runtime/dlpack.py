"""DLPack, the protocol by which array libraries pass tensors without a copy: reading and making.

https://dmlc.github.io/dlpack. Capsules are those of version 0, which every library still takes.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, Final

from braze.core.dtypes import (
    BF16,
    BOOL,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
)

CPU: Final = 1
CUDA: Final = 2
CUDA_HOST: Final = 3  # pinned memory
# element type -> (type code, bits) of a DLDataType
CODES: Final[dict[DType, tuple[int, int]]] = {
    I8: (0, 8), I16: (0, 16), I32: (0, 32), I64: (0, 64),
    U8: (1, 8), U16: (1, 16), U32: (1, 32), U64: (1, 64),
    F16: (2, 16), F32: (2, 32), F64: (2, 64), BF16: (4, 16), BOOL: (6, 8),
    F8E4M3FN: (10, 8), F8E5M2: (12, 8),
}  # fmt: skip
_NAME: Final = b"dltensor"


class _Tensor(ctypes.Structure):
    """DLTensor, the first field of a DLManagedTensor."""

    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("rank", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (
        ("tensor", _Tensor),
        ("owner", c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, c_void_p)),
    )


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of another library. dtype: None for a type that braze does not have; strides count
    elements; keep: what owns the memory."""

    address: int
    device: tuple[int, int]
    dtype: DType | None
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    keep: Any


_python: Final = ctypes.PyDLL(None)  # functions of its own: argument types are set below
_python.PyCapsule_GetPointer.restype = c_void_p
_python.PyCapsule_GetPointer.argtypes = (c_void_p, c_char_p)
_python.PyCapsule_IsValid.restype = c_int
_python.PyCapsule_IsValid.argtypes = (c_void_p, c_char_p)
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = (c_void_p, c_char_p, c_void_p)


def _delete(capsule: int) -> None:
    """Destructor of a capsule: deletes the tensor that nobody took out of it."""
    if _python.PyCapsule_IsValid(capsule, _NAME):
        managed = _Managed.from_address(_python.PyCapsule_GetPointer(capsule, _NAME))
        managed.deleter(ctypes.addressof(managed))


_forget: Final = ctypes.PYFUNCTYPE(None, c_void_p)(_delete)


def capsule_of(managed: int) -> Any:
    """A capsule with the DLManagedTensor at this address."""
    return _python.PyCapsule_New(managed, _NAME, ctypes.cast(_forget, c_void_p))


def tensor_of(capsule: Any) -> Tensor:
    """What a capsule holds; the capsule stays its owner and is kept. Raises ValueError."""
    found = _python.PyCapsule_GetPointer(id(capsule), _NAME)  # raises for another name
    t = _Managed.from_address(found).tensor
    rank = t.rank
    dtypes = {code: dtype for dtype, code in CODES.items()}
    return Tensor(
        (t.data or 0) + t.byte_offset,
        (t.device_type, t.device_id),
        dtypes.get((t.code, t.bits)) if t.lanes == 1 else None,
        tuple(t.shape[:rank]),
        tuple(t.strides[:rank]) if t.strides else None,
        capsule,
    )
