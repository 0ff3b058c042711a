"""Elements as they stand in memory, and the numbers that they stand for.

Arrays at every Python face have `DType.numpy` (ml_dtypes' types where numpy has none), one element
an item. Code that computes takes `numbers` of such arrays and gives back `stored` ones.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from braze.core.dims import Dim
from braze.core.dtypes import BF16, DType

Array = np.ndarray[Any, Any]
Size = TypeVar("Size", int, Dim)


def number_type(dtype: DType) -> np.dtype[Any]:
    """The numpy type that `numbers` gives.

    float32 for bfloat16 and smaller floats, 8-bit integers for smaller ones, else the type itself.
    """
    if dtype is BF16 or (dtype.is_narrow and dtype.is_float):
        return np.dtype(np.float32)
    if dtype.is_narrow:
        return np.dtype(np.int8 if dtype.is_signed else np.uint8)
    return dtype.numpy


def numbers(array: Array, dtype: DType) -> Array:
    """The elements of a stored array in a type that numpy computes with; always exact."""
    return array.astype(number_type(dtype), copy=False)


def stored(values: Array, dtype: DType) -> Array:
    """Numbers as a stored array of `dtype`, rounded once to nearest even."""
    if dtype is BF16 and values.dtype != dtype.numpy:
        return _bfloat16(values)
    with np.errstate(all="ignore"):
        if dtype.is_narrow and dtype.is_float and values.dtype.type in (np.float64, np.int64):
            values = _to_odd(values.astype(np.float64))  # ml_dtypes goes through float32
        return np.asarray(values.astype(dtype.numpy, copy=False))


def relabelled(array: Array, dtype: DType) -> Array:
    """`array` as one of `dtype` where its bytes are that already and only numpy's name differs.

    uint16 bit patterns are taken for bfloat16, and unnamed bytes ("V2") for the types of ml_dtypes:
    that is what a .npy file of such an array loads as.
    """
    bits = dtype is BF16 and array.dtype == np.uint16
    unnamed = array.dtype.kind == "V" and array.dtype.type is np.void and array.dtype.names is None
    if bits or (unnamed and dtype.numpy.isbuiltin == 2 and array.itemsize == dtype.numpy.itemsize):
        return array.view(dtype.numpy)
    return array


def size_of(elements: Size, dtype: DType) -> Size:
    """Bytes of `elements` elements (an int or a symbolic size), packed where they are below a byte.

    Elements below a byte fill each byte from its low bits up, as in ONNX; the last may be partial.
    """
    if dtype.bits >= 8:
        return elements * (dtype.bits // 8)
    per_byte = 8 // dtype.bits
    return (elements + (per_byte - 1)) // per_byte


def pack(array: Array, dtype: DType) -> Array:
    """The bytes (uint8, flat) of an array: several elements a byte where `dtype` is below one."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if dtype.bits >= 8:
        return flat
    per_byte = 8 // dtype.bits
    codes = np.zeros(-(-flat.size // per_byte) * per_byte, np.uint8)
    codes[: flat.size] = flat & ((1 << dtype.bits) - 1)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(dtype.bits)
    return np.asarray(np.bitwise_or.reduce(codes.reshape(-1, per_byte) << shifts, axis=1), np.uint8)


def unpack(data: Array, dtype: DType, count: int) -> Array:
    """The `count` elements (flat, of `DType.numpy`) of packed bytes; padding is ignored."""
    if dtype.bits >= 8:
        return data.view(dtype.numpy)[:count]
    shifts = np.arange(8 // dtype.bits, dtype=np.uint8) * np.uint8(dtype.bits)
    mask = np.uint8((1 << dtype.bits) - 1)
    codes = ((data.reshape(-1, 1) >> shifts) & mask).reshape(-1)[:count]
    if dtype.is_int:
        if dtype.is_signed:  # the sign bit of a code is its highest
            codes = (codes ^ np.uint8(1 << (dtype.bits - 1))).astype(np.int8) - np.int8(
                1 << (dtype.bits - 1)
            )
        return np.asarray(codes.astype(dtype.numpy))
    return np.asarray(codes.view(dtype.numpy))


def rounded(values: Array, dtype: DType) -> Array:
    """`values` rounded to what `dtype` can hold, as numbers."""
    return numbers(stored(values, dtype), dtype)


def _bfloat16(x: Array) -> Array:
    """Rounded once, also from float64 and integers, and with the bits of NaNs kept.

    ml_dtypes goes through float32, which rounds twice, and gives every NaN the same bits.
    """
    if x.dtype != np.float32:
        x = _to_odd(x.astype(np.float64))
    bits = np.ascontiguousarray(x).view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    kept = np.where(np.isnan(x), bits | np.uint32(0x00400000), nearest.reshape(x.shape))
    return np.asarray((kept >> np.uint32(16)).astype(np.uint16).reshape(x.shape).view(BF16.numpy))


def _to_odd(x: Array) -> Array:
    """float64 to float32, inexact results rounded to the neighbour with an odd last bit.

    Another rounding to fewer bits after it gives what one rounding would have given.
    """
    with np.errstate(all="ignore"):
        single = x.astype(np.float32)
        back = single.astype(np.float64)
    bits = single.view(np.uint32)
    inexact = np.isfinite(x) & np.isfinite(single) & (back != x)
    overshoot = inexact & (np.abs(back) > np.abs(x))
    bits = np.where(overshoot, bits - np.uint32(1), bits)
    bits = np.where(inexact, bits | np.uint32(1), bits).astype(np.uint32)
    return np.asarray(bits.view(np.float32).reshape(x.shape))
