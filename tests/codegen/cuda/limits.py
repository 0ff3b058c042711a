"""Limits of one number twice: NaN passes the first and becomes the second."""

from __future__ import annotations

import numpy as np

from braze.core.dtypes import DType
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import axis, binary, const, load, select

SIZE = 8
DATA = (np.nan, -0.0, 0.0, 1.0, -1.0, np.inf, -np.inf, 0.5)
KINDS = [(kind, number) for kind in ("max", "min") for number in (0.5, 0.0)]


def twice(kind: str, number: float, dtype: DType) -> LoopKernel:
    """select(c < y, y, c), or y < c for "min", of the y that has the limit but passes NaN."""
    x, spec, c = load(0, (axis(0),), dtype), TensorSpec(dtype, (SIZE,)), const(number, dtype)
    passes = select(binary("lt", *((x, c) if kind == "max" else (c, x))), c, x)
    pair = (c, passes) if kind == "max" else (passes, c)
    y = select(binary("lt", *pair), passes, c)
    return LoopKernel((spec,), (spec,), (LoopNest((SIZE,), (), (), (Store(0, (axis(0),), y),)),))


def check_limits(got: np.ndarray, kind: str, number: float) -> None:
    """Of DATA, in the type."""
    best = np.fmax if kind == "max" else np.fmin
    want = best(np.array(DATA), number)
    np.testing.assert_array_equal(got.astype(np.float64), np.where(want == 0, 0.0, want))
