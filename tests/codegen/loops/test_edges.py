"""Remainders of floats at the edges of their types: the compiler compares constants, and the
processor what a run reads. The loop that makes a remainder has to end with both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dtypes import BF16, F16, F32, F64, DType
from braze.expr.scalar import binary, const
from tests.codegen.loops.pointwise import host_isas, operand, run_pointwise

LOOPS = ("floordiv", "fmod", "mod")
FLOATS = (F32, F64, F16, BF16)


def edges(dtype: DType) -> list[float]:
    """Numbers of both signs at the ends of a type, the least of them denormals."""
    limits = {F16: (6e-8, 5e-5, 6.2e-5, 65504.0), F64: (5e-324, 1e-310, 2.3e-308, 1.7e308)}
    least = limits.get(dtype, (1e-45, 1e-40, 1.2e-38, 3.3e38))
    sizes = (*least, 0.0, 0.5, 1.0, 7.0, float("inf"))
    values = [s * x for x in sizes for s in (1.0, -1.0)]
    return [*values, float("nan")]


def flushed(a: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """As float64, denormals as zeros: x / 1 may be x, or 0 as an operand is (docs/semantics.md)."""
    wide = a.astype(np.float64)
    least = {F64: 2.0**-1022, F16: 0.0}.get(dtype, 2.0**-126)
    return np.where(np.abs(wide) < least, 0.0, wide)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", LOOPS)
def test_a_constant_operand_is_one_that_a_run_reads(op: str, dtype: DType) -> None:
    """And a denormal divisor is zero in both."""
    isa = host_isas()[-1]
    x = np.array(edges(dtype)).astype(dtype.numpy)
    for value in edges(dtype):
        held = const(float(np.array(value).astype(dtype.numpy)), dtype)
        y = np.full_like(x, held.value)
        for swap in (False, True):
            pair = (operand(0, dtype), operand(1, dtype))
            fixed = (pair[0], held)
            if swap:
                pair, fixed = pair[::-1], fixed[::-1]
            read = run_pointwise(binary(op, *pair), [x, y], [dtype, dtype], isa, 8)
            known = run_pointwise(binary(op, *fixed), [x], [dtype], isa, 8)
            both = (flushed(a, dtype) for a in (known, read))
            np.testing.assert_array_equal(*both, err_msg=f"{op} of {value}, swapped: {swap}")
