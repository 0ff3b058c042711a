"""The table of element types, and elements in memory: names, sizes, packing, rounding."""

from __future__ import annotations

import llvmlite.ir
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from braze.core.dims import sym
from braze.core.dtypes import (
    ALL_DTYPES,
    BF16,
    BY_NAME,
    BY_ONNX,
    F4E2M1,
    F8E4M3FN,
    F32,
    I2,
    I4,
    NARROW,
    NUMBERS,
    U2,
    U4,
    U16,
    DType,
    from_name,
    from_numpy,
    from_onnx,
)
from braze.core.elements import numbers, pack, relabelled, rounded, size_of, stored, unpack
from braze.core.errors import DTypeError

BELOW_A_BYTE = [t for t in ALL_DTYPES if t.bits < 8]


def codes(dtype: DType, count: int, seed: int = 0) -> np.ndarray:
    """`count` random elements of any bits."""
    raw = np.random.default_rng(seed).integers(0, 256, size_of(count, dtype), np.uint8)
    return unpack(raw, dtype, count)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_the_table_agrees_with_numpy_and_onnx(dtype: DType) -> None:
    assert BY_NAME[dtype.name] is BY_ONNX[dtype.onnx] is dtype
    assert dtype.numpy == onnx.helper.tensor_dtype_to_np_dtype(dtype.onnx)
    assert from_numpy(dtype.numpy) is from_onnx(dtype.onnx, "x") is from_name(dtype.name) is dtype
    if dtype.kind == "b":
        return
    info = (ml_dtypes.finfo if dtype.is_float else ml_dtypes.iinfo)(dtype.numpy)
    assert info.bits == dtype.bits
    assert dtype.is_signed == (info.min < 0) or dtype.name == "float8_e8m0fnu"


def test_names_are_unique_where_they_are_given() -> None:
    for column in ("name", "onnx", "triton", "tensorrt"):
        names = [getattr(t, column) for t in ALL_DTYPES if getattr(t, column) != ""]
        assert len(set(names)) == len(names), column


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_llvm_types_have_the_width_of_their_elements(dtype: DType) -> None:
    widths = {"double": 64, "float": 32, "half": 16, "bfloat": 16}
    assert (widths.get(dtype.llvm) or llvmlite.ir.IntType(int(dtype.llvm[1:])).width) == dtype.bits


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_an_element_below_a_byte_has_no_size_in_bytes(dtype: DType) -> None:
    if dtype.bits >= 8:
        assert dtype.itemsize == dtype.bits // 8 == dtype.numpy.itemsize
    else:
        with pytest.raises(DTypeError, match=f"{dtype} has {dtype.bits} bits"):
            _ = dtype.itemsize


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 63])
def test_packed_bytes_are_those_of_onnx(dtype: DType, count: int) -> None:
    array = codes(dtype, count) if dtype.kind != "b" else np.arange(count) % 2 == 1
    data = pack(array, dtype)
    assert data.dtype == np.uint8 and data.size == size_of(count, dtype)
    assert data.tobytes() == numpy_helper.from_array(array).raw_data
    again = unpack(data, dtype, count)
    assert again.dtype == dtype.numpy and again.tobytes() == array.tobytes()


def test_packing_fills_bytes_from_their_low_bits() -> None:
    assert pack(np.array([1, -2, 7], I4.numpy), I4).tolist() == [0xE1, 0x07]
    assert pack(np.array([1, 2, 3, 0, 3], U2.numpy), U2).tolist() == [0b00111001, 0b11]
    assert unpack(np.uint8([0b11_10_01_00]), I2, 4).tolist() == [0, 1, -2, -1]
    assert unpack(np.uint8([0x7F]), F4E2M1, 2).astype(np.float32).tolist() == [-6.0, 6.0]
    # what stands in the padding does not matter
    assert unpack(np.uint8([0xF5]), U4, 1).tolist() == [5]


def test_sizes_may_be_symbolic() -> None:
    n = sym("n")
    assert size_of(n * 3, F32) == n * 12
    assert size_of(n, I4) == (n + 1) // 2
    assert size_of(n * 4, U2) == n


@pytest.mark.parametrize("dtype", [BF16, *NARROW], ids=str)
def test_numbers_and_storage_are_inverse(dtype: DType) -> None:
    every = codes(dtype, 4096)
    wide = numbers(every, dtype)
    assert wide.dtype in (np.float32, np.int8, np.uint8)
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    back = stored(wide, dtype)
    assert back.dtype == dtype.numpy
    np.testing.assert_array_equal(numbers(back, dtype), wide)


@pytest.mark.parametrize("dtype", [BF16, F8E4M3FN], ids=str)
def test_float64_is_rounded_once(dtype: DType) -> None:
    bits = 8 if dtype is BF16 else 4
    tie = 1 + 2.0**-bits
    x = np.array([tie + 2.0**-40, tie, tie - 2.0**-40])
    assert rounded(x, dtype).tolist() == [1 + 2.0 ** (1 - bits), 1.0, 1.0]


def test_bfloat16_keeps_the_bits_of_nans() -> None:
    bits = np.uint16([0x7F81, 0xFFC3, 0x7FC0])
    wide = numbers(bits.view(BF16.numpy), BF16)
    # a signalling NaN becomes a quiet one and keeps its other bits
    assert stored(wide, BF16).view(np.uint16).tolist() == [0x7FC1, 0xFFC3, 0x7FC0]


def test_only_labels_are_changed() -> None:
    brain = np.array([1.5, 2], BF16.numpy)
    for same in (brain.view(np.uint16), brain.view("V2"), brain):
        assert relabelled(same, BF16).dtype == BF16.numpy
        assert np.shares_memory(relabelled(same, BF16), brain)
    small = np.array([1.5, 2], F8E4M3FN.numpy)
    assert relabelled(small.view("V1"), F8E4M3FN).dtype == F8E4M3FN.numpy
    for other, dtype in [
        (brain.view(np.int16), BF16),
        (brain.view(np.float16), BF16),
        (brain.view("V4"), BF16),
        (brain, U16),
        (brain.view("V2"), U16),
        (small.view(np.uint8), F8E4M3FN),
    ]:
        assert relabelled(other, dtype) is other
