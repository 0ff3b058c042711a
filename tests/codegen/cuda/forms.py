"""How exact the short forms of activations are, for the interpreter and for a card."""

from __future__ import annotations

from typing import Any

import numpy as np

from braze.core.dtypes import F16, F32, DType
from braze.core.elements import stored
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import axis, binary, cast, const, load
from braze.ops.pointwise.activation import Activation

Array = np.ndarray[Any, Any]
COUNT = 1 << 16
FACTOR = 1.5  # a product in float32 between the activation and the rounding


def every_value(dtype: DType) -> Array:
    """Every float16, or the bfloat16 with these bits; infinities and NaN among them."""
    bits = np.arange(COUNT, dtype=np.uint32)
    x = bits.astype(np.uint16).view(np.float16).astype(np.float32)
    if dtype is not F16:
        x = (bits << 16).view(np.float32)
    return stored(x.astype(dtype.numpy), dtype)


def form_kernel(op: Activation, dtype: DType, alone: bool) -> LoopKernel:
    """The activation of a tensor, `alone` or times FACTOR, rounded to its type."""
    value = op.expr(cast(load(0, (axis(0),), dtype), F32))
    if not alone:
        value = binary("mul", value, const(FACTOR, F32))
    store = Store(0, (axis(0),), cast(value, dtype))
    spec = TensorSpec(dtype, (COUNT,))
    return LoopKernel((spec,), (spec,), (LoopNest((COUNT,), (), (), (store,)),))


def check_form(op: Activation, dtype: DType, alone: bool, got: Array) -> None:
    """At most one unit from the float64 value, NaN where that is NaN."""
    x = every_value(dtype)
    with np.errstate(all="ignore"):
        want = op.apply(x.astype(np.float64)) * (1.0 if alone else FACTOR)
    digits = 11 if dtype is F16 else 8
    finite = np.isfinite(want) & (np.abs(want) < 65504)
    unit = np.maximum(np.abs(want) * 2.0 ** (1 - digits), 2.0**-24)
    off = np.abs(got.astype(np.float64) - want)[finite] / unit[finite]
    assert off.max() <= 1, (x[finite][off.argmax()], want[finite][off.argmax()])
    np.testing.assert_array_equal(np.isnan(got.astype("f8")), np.isnan(want))
