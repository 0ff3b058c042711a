"""Pools with their channels last, as loop nests that go along the channels."""

from __future__ import annotations

import numpy as np

from braze.core.dims import Dim
from braze.core.dtypes import DType
from braze.expr.loops import LoopKernel
from braze.ir.graph import TensorType
from braze.ops.lowering import Nest
from braze.ops.pool.pool import AveragePool, MaxPool, Pool

FIELDS = ((3, 2), (2, 1), (1, 1), (1, 0, 1, 1))


def pool(dtype: DType, n: Dim, channels: int, mean: bool = False) -> LoopKernel:
    """A pool of pictures of 9 x 7."""
    op: Pool = MaxPool(*FIELDS, layout="NHWC")
    if mean:
        op = AveragePool(*FIELDS, layout="NHWC")
    x = TensorType(dtype, (n, 9, 7, channels))
    out = TensorType(dtype, (n, 5, 7, channels))
    low = op.lower([x], [out])
    assert isinstance(low, Nest)
    return low.kernel


def drawn(dtype: DType, n: int, channels: int) -> np.ndarray:
    """Numbers of either sign; among floats a NaN."""
    values = np.random.default_rng(0).standard_normal((n, 9, 7, channels)) * 40
    x = values.astype(dtype.numpy)
    if dtype.is_float:
        x[0, 3, 3, 1] = np.nan
    return x
