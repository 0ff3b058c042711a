"""Zeros of both signs, made from constants."""

from __future__ import annotations

import numpy as np

from braze.core.dtypes import DType
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import axis, binary, const, load, select

SIZE = 8


def signed_zeros(dtype: DType) -> LoopKernel:
    """-0 for numbers below 0, and 0 for others."""
    x, spec = load(0, (axis(0),), dtype), TensorSpec(dtype, (SIZE,))
    zero = const(0.0, dtype)
    chosen = select(binary("lt", x, zero), const(-0.0, dtype), zero)
    nest = LoopNest((SIZE,), (), (), (Store(0, (axis(0),), chosen),))
    return LoopKernel((spec,), (spec,), (nest,))


def check_zeros(got: np.ndarray) -> None:
    """Of the numbers -4 to 3."""
    assert not got.astype(np.float64).any()
    assert np.signbit(got.astype(np.float64)).tolist() == [True] * 4 + [False] * 4


def numbers(dtype: DType) -> np.ndarray:
    """-4 to 3."""
    return np.arange(-4, 4).astype(dtype.numpy)
