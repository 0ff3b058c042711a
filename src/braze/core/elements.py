"""Elements as they stand in memory, and the numbers that they stand for.

Arrays at every Python face have `DType.numpy` (ml_dtypes' types where numpy has none), one element
an item. Code that computes takes `numbers` of such arrays and gives back `stored` ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from braze.core.dtypes import BF16, DType

Array = np.ndarray[Any, Any]


def number_type(dtype: DType) -> np.dtype[Any]:
    """The numpy type that `numbers` gives: float32 for bfloat16, else the type itself."""
    return np.dtype(np.float32) if dtype is BF16 else dtype.numpy


def numbers(array: Array, dtype: DType) -> Array:
    """The elements of a stored array in a type that numpy computes with; always exact."""
    return array.astype(number_type(dtype), copy=False)


def stored(values: Array, dtype: DType) -> Array:
    """Numbers as a stored array of `dtype`, rounded once to nearest even (never to less)."""
    if dtype is BF16 and values.dtype != dtype.numpy:
        return _bfloat16(values)
    with np.errstate(all="ignore"):
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
