"""Element types of TensorRT, as numpy and the core name them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from braze.core.dtypes import ALL_DTYPES, DType
from braze.tensorrt.enums_runtime import DataType

_CORE: Final = {DataType[t.tensorrt]: t for t in ALL_DTYPES if t.tensorrt}
_NAMES: Final = {t: name for name, t in _CORE.items()}
# those that numpy has no type for by itself
_EXTENDED: Final = (DataType.BF16, DataType.FP8, DataType.INT4, DataType.FP4, DataType.E8M0)


def core_type(dtype: DataType) -> DType:
    """The core's name of an element type."""
    return _CORE[dtype]


def from_core(dtype: DType, where: str) -> DataType:
    """TensorRT's name of an element type; TypeError where it has none."""
    if dtype not in _NAMES:
        raise TypeError(f"{where}: TensorRT has no element type {dtype}; cast it in the model")
    return _NAMES[dtype]


def closest(dtype: DType) -> DataType:
    """The element type that stands for one that TensorRT may lack: the nearest that it has."""
    if dtype in _NAMES:
        return _NAMES[dtype]
    if dtype.is_float or dtype.kind == "b":
        return DataType.FLOAT
    return DataType.INT64 if dtype.bits > 16 else DataType.INT32


def array_type(dtype: DataType) -> np.dtype[Any]:
    """The dtype of arrays of these elements in the core; those of 4 bits take a byte each."""
    return _CORE[dtype].numpy


def from_numpy(dtype: np.dtype[Any]) -> DataType:
    """The element type of a numpy dtype; TypeError where TensorRT has none."""
    for name, known in _CORE.items():
        if known.numpy == dtype:
            return name
    raise TypeError(f"no DataType is numpy's {dtype}; convert the array first")


def nptype(trt_type: DataType) -> type[Any]:
    """The numpy type of an element type; TypeError where numpy has none."""
    found = numpy_type(trt_type)
    if found is None:
        raise TypeError(f"numpy has no type for {trt_type}")
    return found.type


def numpy_type(dtype: DataType) -> np.dtype[Any] | None:
    """The numpy dtype of an element type, or None where numpy has none of its own."""
    return None if dtype in _EXTENDED else array_type(dtype)


def packed_bytes(dtype: DataType, count: int) -> int:
    """Bytes that elements fill, two of 4 bits in one."""
    return (count * core_type(dtype).bits + 7) // 8


def volume(iterable: Any) -> int:
    """The product of sizes: 1 of none, as a scalar is one element."""
    product = 1
    for size in iterable:
        product *= int(size)
    return product
