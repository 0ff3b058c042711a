"""Every scalar operation on every type it allows: generated code against the numpy evaluator.

Each is run at width 1 and at a vector width with a tail, on every ISA of this machine, over values
that include zeros of both signs, infinities, NaN, the extremes of integers and denormal halves.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from braze.core.dtypes import BF16, BOOL, F16, F32, F64, I64, NUMBERS, DType
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
from tests.codegen.loops.pointwise import expected, host_isas, operand, run_pointwise

Array = np.ndarray[Any, Any]
FLOAT_ONLY = UNARY - {"neg", "abs", "sign", "not"} | TESTS
FLOATS = (F64, F32, F16, BF16)
INTS = tuple(d for d in NUMBERS if d.is_int)
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


def check(e: Expr, operands: list[Array], dtypes: list[DType], ulps: int = 0) -> None:
    """Vectors on the least and the best ISA (what lies between shares their code), and scalars."""
    want = expected(e, operands)
    best = host_isas()[-1]
    for isa, width in dict.fromkeys([(host_isas()[0], 8), (best, 8), (best, 1)]):
        got = run_pointwise(e, operands, dtypes, isa, width)
        message = f"{e.op} {dtypes} on {isa} at width {width}"
        if e.dtype is BF16 and not ulps:
            np.testing.assert_array_equal(widened(got), widened(want), err_msg=message)
        elif not ulps:
            np.testing.assert_array_equal(got, want, err_msg=message)
        else:
            assert_near(got, want, e.dtype, ulps, message)


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


def unary_pairs() -> list[tuple[str, DType]]:
    pairs = [(op, d) for op in sorted(UNARY - {"not"} | TESTS) for d in FLOATS]
    pairs += [(op, d) for op in ("neg", "abs", "sign", "not") for d in INTS]
    return [*pairs, ("not", BOOL)]


def binary_pairs() -> list[tuple[str, DType]]:
    logic = {"and", "or", "xor"}
    pairs = [(op, d) for op in sorted((BINARY | COMPARE) - logic - {"shl", "shr"}) for d in FLOATS]
    floating = PAIR_FUNCTIONS - {"pow"}  # but powers, which are exact
    pairs += [(op, d) for op in sorted((BINARY | COMPARE) - floating) for d in INTS]
    return pairs + [(op, BOOL) for op in sorted(logic | COMPARE | {"min", "max"})]


@pytest.mark.parametrize(("op", "dtype"), unary_pairs(), ids=str)
def test_unary(op: str, dtype: DType) -> None:
    # numpy's own functions of analysis may be off by a few units themselves
    check(unary(op, operand(0, dtype)), [values(dtype, 1)], [dtype], 4 if op in ANALYSIS else 0)


@pytest.mark.parametrize(("op", "dtype"), binary_pairs(), ids=str)
def test_binary(op: str, dtype: DType) -> None:
    a, b = values(dtype, 1), values(dtype, 2)
    x, y = (v.ravel() for v in np.meshgrid(a[:41], b[:41]))
    e = binary(op, operand(0, dtype), operand(1, dtype))
    check(
        e,
        [np.ascontiguousarray(x), np.ascontiguousarray(y)],
        [dtype, dtype],
        4 if op in ANALYSIS and dtype.is_float else 0,
    )


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(NUMBERS, 2)), ids=str)
def test_cast(source: DType, target: DType) -> None:
    check(cast(operand(0, source), target), [values(source, 3)], [source])


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_select(dtype: DType) -> None:
    chosen = select(operand(0, BOOL), operand(1, dtype), operand(2, dtype))
    size = values(dtype, 4).size
    condition = np.random.default_rng(5).integers(0, 2, size).astype(bool)
    check(chosen, [condition, values(dtype, 4), values(dtype, 5)], [BOOL, dtype, dtype])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        p
        for p in itertools.permutations(NUMBERS, 2)
        if p[0].itemsize == p[1].itemsize and BOOL not in p
    ],
    ids=str,
)
def test_bitcast(source: DType, target: DType) -> None:
    e = Expr("bitcast", (operand(0, source),), target)
    x = values(source, 6)
    want = expected(e, [x])
    for isa, width in itertools.product(host_isas(), (1, 8)):
        got = run_pointwise(e, [x], [source], isa, width)
        if target is BF16:
            np.testing.assert_array_equal(widened(got), widened(want))
        else:
            np.testing.assert_array_equal(got, want)


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
