"""Every scalar operation on every type it allows: generated code against the numpy evaluator.

Each is run at width 1 and at a vector width with a tail, on every ISA of this machine, over values
that include zeros of both signs, infinities, NaN, the extremes of integers and denormal halves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dtypes import BF16, BOOL, F16, F32, I64, NUMBERS, DType
from braze.core.elements import stored
from braze.expr.scalar import (
    BINARY,
    COMPARE,
    FUNCTIONS,
    PAIR_FUNCTIONS,
    TESTS,
    UNARY,
    Expr,
    binary,
    cast,
    select,
    unary,
)
from tests.codegen.loops.pointwise import expected, host_isas, operand, run_each, run_pointwise

Array = np.ndarray[Any, Any]
# functions of analysis: units in the last place against numpy in the same type
ANALYSIS = FUNCTIONS | PAIR_FUNCTIONS
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.5, 1e4, -7.0, np.inf, -np.inf, np.nan]


def values(dtype: DType, seed: int) -> Array:
    """Stored values of `dtype`: special ones and random ones, an odd number of them."""
    rng = np.random.default_rng(seed)
    if dtype is BOOL:
        return rng.integers(0, 2, 53).astype(bool)
    if dtype.is_float:
        mixed = np.concatenate([SPECIAL, rng.standard_normal(60) * 3, rng.uniform(0, 1, 23)])
        if dtype is F16:
            mixed = np.concatenate([mixed, [65504.0, 6e-8, -6e-5, 6.2e-5]])
        return stored(
            rng.permutation(mixed).astype(np.float32 if dtype is BF16 else dtype.numpy), dtype
        )
    info = np.iinfo(dtype.numpy)  # type: ignore[type-var]
    edge = [0, 1, info.min, info.max, info.max - 1, 3, 7, 63]
    if dtype.is_signed:
        edge += [-1, -2, -7, info.min + 1]
    small = rng.integers(0 if not dtype.is_signed else -9, 9, 40)
    wide = rng.integers(info.min, info.max, 25, dtype=dtype.numpy, endpoint=True)
    return rng.permutation(
        np.concatenate([np.array(edge, dtype.numpy), small.astype(dtype.numpy), wide])
    )


def check(exprs: list[Expr], operands: list[Array], dtypes: list[DType]) -> None:
    """Vectors on the least and the best ISA (what lies between shares their code), and scalars;
    all expressions of the same operands are one kernel."""
    wanted = [expected(e, operands) for e in exprs]
    best = host_isas()[-1]
    for isa, width in dict.fromkeys([(host_isas()[0], 8), (best, 8), (best, 1)]):
        found = run_each(exprs, operands, dtypes, isa, width)
        for e, got, want in zip(exprs, found, wanted, strict=True):
            message = f"{e.op} of {dtypes} to {e.dtype} on {isa} at width {width}"
            if e.op in ANALYSIS and e.dtype.is_float:
                # numpy's own functions of analysis may be off by a few units themselves
                assert_near(got, want, e.dtype, 4, message)
            elif e.dtype is BF16:
                np.testing.assert_array_equal(widened(got), widened(want), err_msg=message)
            else:
                np.testing.assert_array_equal(got, want, err_msg=message)


def assert_near(got: Array, want: Array, dtype: DType, ulps: int, message: str) -> None:
    if dtype is BF16:
        np.testing.assert_allclose(
            widened(got), widened(want), rtol=2.0**-7 * ulps, err_msg=message
        )
        return
    kind = want.dtype
    eps = float(np.finfo(kind).eps)  # type: ignore[type-var]
    tiny = float(np.finfo(kind).smallest_normal)  # type: ignore[type-var]
    # results below the smallest normal may be flushed
    np.testing.assert_allclose(got, want, rtol=eps * ulps, atol=tiny, err_msg=message)


def widened(brain: Array) -> Array:
    return brain.astype(np.float32)


def unary_ops(dtype: DType) -> list[str]:
    if dtype is BOOL:
        return ["not"]
    return sorted(UNARY - {"not"} | TESTS) if dtype.is_float else ["neg", "abs", "sign", "not"]


def binary_ops(dtype: DType) -> list[str]:
    logic = {"and", "or", "xor"}
    if dtype is BOOL:
        return sorted(logic | COMPARE | {"min", "max"})
    if dtype.is_float:
        return sorted((BINARY | COMPARE) - logic - {"shl", "shr"})
    floating = PAIR_FUNCTIONS - {"pow"}  # but powers, which are exact
    return sorted((BINARY | COMPARE) - floating)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_unary(dtype: DType) -> None:
    exprs = [unary(op, operand(0, dtype)) for op in unary_ops(dtype)]
    check(exprs, [values(dtype, 1)], [dtype])


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_binary(dtype: DType) -> None:
    a, b = values(dtype, 1), values(dtype, 2)
    x, y = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(a[:41], b[:41]))
    exprs = [binary(op, operand(0, dtype), operand(1, dtype)) for op in binary_ops(dtype)]
    check(exprs, [x, y], [dtype, dtype])


@pytest.mark.parametrize("source", NUMBERS, ids=str)
def test_cast(source: DType) -> None:
    targets = [d for d in NUMBERS if d is not source]
    check([cast(operand(0, source), d) for d in targets], [values(source, 3)], [source])


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_select(dtype: DType) -> None:
    chosen = select(operand(0, BOOL), operand(1, dtype), operand(2, dtype))
    size = values(dtype, 4).size
    condition = np.random.default_rng(5).integers(0, 2, size).astype(bool)
    check([chosen], [condition, values(dtype, 4), values(dtype, 5)], [BOOL, dtype, dtype])


@pytest.mark.parametrize("source", [d for d in NUMBERS if d is not BOOL], ids=str)
def test_bitcast(source: DType) -> None:
    others = [d for d in NUMBERS if d is not source and d is not BOOL]
    targets = [d for d in others if d.itemsize == source.itemsize]
    exprs = [Expr("bitcast", (operand(0, source),), target) for target in targets]
    check(exprs, [values(source, 6)], [source])


@pytest.mark.parametrize("dtype", [F32, F16, BOOL, I64], ids=str)
def test_masked_tail_touches_nothing_else(dtype: DType) -> None:
    """Lanes outside the mask are neither read nor written."""
    if "avx512" not in host_isas():
        pytest.skip("masks are used with avx512 only")
    x = values(dtype, 7)
    e = select(operand(1, BOOL), operand(0, dtype), operand(0, dtype))
    flags = np.ones(x.size, bool)
    got = run_pointwise(e, [x, flags], [dtype, BOOL], "avx512", 16, masked=True)
    np.testing.assert_array_equal(got, x)
