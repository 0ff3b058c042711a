"""Element types: one table with every name a type has in the worlds braze touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import ml_dtypes
import numpy as np

from braze.core.errors import DTypeError


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    name: braze's name; bits: storage bits; kind: "f" float, "i" signed, "u" unsigned, "b" bool;
    onnx: TensorProto.DataType number; llvm: LLVM type of one element as kernels move it; triton:
    Triton name; tensorrt: DataType name in TensorRT ("" where either has none).
    """

    name: str
    bits: int
    kind: str
    onnx: int
    llvm: str
    triton: str
    tensorrt: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element; types below a byte have none (see braze.core.elements.size_of)."""
        if self.bits < 8:
            raise DTypeError(f"{self} has {self.bits} bits an element, which is no count of bytes")
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in "iu"

    @property
    def is_signed(self) -> bool:
        return self.kind in "fi"

    @property
    def is_narrow(self) -> bool:
        """True for types that are stored and converted but that no op computes in."""
        return self.bits < 8 or (self.is_float and self.bits == 8)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype of arrays of this type (ml_dtypes' where numpy has none)."""
        return _NUMPY[self.name]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


F64: Final = DType("float64", 64, "f", 11, "double", "fp64", "")
F32: Final = DType("float32", 32, "f", 1, "float", "fp32", "FLOAT")
F16: Final = DType("float16", 16, "f", 10, "half", "fp16", "HALF")
BF16: Final = DType("bfloat16", 16, "f", 16, "bfloat", "bf16", "BF16")
I64: Final = DType("int64", 64, "i", 7, "i64", "i64", "INT64")
I32: Final = DType("int32", 32, "i", 6, "i32", "i32", "INT32")
I16: Final = DType("int16", 16, "i", 5, "i16", "i16", "")
I8: Final = DType("int8", 8, "i", 3, "i8", "i8", "INT8")
U64: Final = DType("uint64", 64, "u", 13, "i64", "u64", "")
U32: Final = DType("uint32", 32, "u", 12, "i32", "u32", "")
U16: Final = DType("uint16", 16, "u", 4, "i16", "u16", "")
U8: Final = DType("uint8", 8, "u", 2, "i8", "u8", "UINT8")
BOOL: Final = DType("bool", 8, "b", 9, "i8", "i1", "BOOL")

F8E4M3FN: Final = DType("float8_e4m3fn", 8, "f", 17, "i8", "fp8e4nv", "FP8")
F8E4M3FNUZ: Final = DType("float8_e4m3fnuz", 8, "f", 18, "i8", "fp8e4b8", "")
F8E5M2: Final = DType("float8_e5m2", 8, "f", 19, "i8", "fp8e5", "")
F8E5M2FNUZ: Final = DType("float8_e5m2fnuz", 8, "f", 20, "i8", "fp8e5b16", "")
F8E8M0: Final = DType("float8_e8m0fnu", 8, "f", 24, "i8", "", "E8M0")
F4E2M1: Final = DType("float4_e2m1fn", 4, "f", 23, "i8", "", "FP4")
I4: Final = DType("int4", 4, "i", 22, "i8", "", "INT4")
U4: Final = DType("uint4", 4, "u", 21, "i8", "", "")
I2: Final = DType("int2", 2, "i", 26, "i8", "", "")
U2: Final = DType("uint2", 2, "u", 25, "i8", "", "")

NUMBERS: Final = (F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL)
NARROW: Final = (F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, F4E2M1, I4, U4, I2, U2)
ALL_DTYPES: Final = NUMBERS + NARROW
_NUMPY: Final = {t.name: np.dtype(getattr(ml_dtypes, t.name, t.name)) for t in ALL_DTYPES}
BY_NAME: Final = {t.name: t for t in ALL_DTYPES}
BY_ONNX: Final = {t.onnx: t for t in ALL_DTYPES}


def from_name(name: str) -> DType:
    """The type called `name`; raises DTypeError for a name braze does not have."""
    if not isinstance(name, str) or name not in BY_NAME:
        raise DTypeError(f"element type {name!r} is not one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def from_onnx(number: int, where: str) -> DType:
    """The type of an ONNX TensorProto.DataType number; `where` names the tensor in the error."""
    if number not in BY_ONNX:
        raise DTypeError(
            f"{where}: ONNX element type number {number} is not supported; "
            f"cast it to one of {', '.join(BY_NAME)} in the model"
        )
    return BY_ONNX[number]


def from_numpy(dtype: np.dtype[np.generic]) -> DType:
    """The braze type of a native-order numpy dtype."""
    if not dtype.isnative or dtype.name not in BY_NAME:
        raise DTypeError(
            f"numpy dtype {dtype.str} is not supported; convert the array to one of "
            f"{', '.join(BY_NAME)} in native byte order"
        )
    return BY_NAME[dtype.name]
