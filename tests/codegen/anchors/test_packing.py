"""Weights as the register tile reads them."""

from __future__ import annotations

import numpy as np
import pytest

from braze.codegen.cpu.packing import pack_anchor, panels
from braze.core.dtypes import BF16, F16, F32, DType
from braze.core.errors import CompileError
from braze.fusion.kernel import Packing


def test_panels_hold_columns_and_end_in_zeros() -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    packed = panels(matrix, 2)
    assert packed.shape == (1, 2, 2, 2)
    np.testing.assert_array_equal(packed[0, 0], [[0, 1], [3, 4]])
    np.testing.assert_array_equal(packed[0, 1], [[2, 0], [5, 0]])


def test_matmul_strides_are_followed() -> None:
    stored = np.arange(15, dtype=np.float32).reshape(3, 5)  # [n, k]
    values = {"columns": 4, "offset": 0, "k": 5, "n": 3, "k_stride": 1, "n_stride": 5}
    packing = Packing("matmul_panels", F32, (*values.items(), ("batch_axes", 0)))
    packed = pack_anchor(stored, packing).reshape(5, 4)
    np.testing.assert_array_equal(packed[:, :3], stored.T)
    assert not packed[:, 3].any()


def test_strides_outside_of_the_constant_are_refused() -> None:
    values = {"columns": 4, "offset": 1, "k": 5, "n": 3, "k_stride": 1, "n_stride": 5}
    packing = Packing("matmul_panels", F32, (*values.items(), ("batch_axes", 0)))
    with pytest.raises(CompileError, match="outside"):
        pack_anchor(np.zeros((3, 5), np.float32), packing)


def test_conv_order_is_tap_then_channel() -> None:
    weight = np.arange(2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
    packing = Packing("conv_panels", F32, (("columns", 2), ("groups", 1)))
    packed = pack_anchor(weight, packing).reshape(2, 2, 3, 2)
    np.testing.assert_array_equal(packed, weight.transpose(2, 3, 1, 0))


def test_unknown_packing_is_an_error() -> None:
    with pytest.raises(CompileError, match="not known"):
        pack_anchor(np.zeros(3, np.float32), Packing("blocked", F32))


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_half_weights_are_packed_as_float32(dtype: DType) -> None:
    stored = np.array([[1.5, -2.0, 0.25]]).astype(dtype.numpy)
    values = {"columns": 4, "offset": 0, "k": 1, "n": 3, "k_stride": 3, "n_stride": 1}
    packing = Packing("matmul_panels", F32, (*values.items(), ("batch_axes", 0)))
    packed = pack_anchor(stored, packing)
    assert packed.dtype == np.float32
    np.testing.assert_array_equal(packed, [1.5, -2.0, 0.25, 0.0])
