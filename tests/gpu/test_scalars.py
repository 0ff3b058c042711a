"""Every scalar operation and conversion on the GPU, against their numpy meaning."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from braze.codegen.cuda.triton.halves import FORMS
from braze.codegen.cuda.triton.nests import nest_sources
from braze.codegen.reference.run import run_kernel
from braze.core.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U64, DType
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import (
    BINARY,
    COMPARE,
    PAIR_FUNCTIONS,
    TESTS,
    UNARY,
    Expr,
    axis,
    binary,
    cast,
    load,
    unary,
)  # fmt: skip
from braze.ops.pointwise.activation import Activation
from tests.codegen.cuda.forms import check_form, every_value, form_kernel
from tests.codegen.cuda.zeros import check_zeros, numbers, signed_zeros
from tests.gpu.launching import run

Array = np.ndarray[Any, Any]
COUNT = 4096
TYPES = (F32, F64, F16, BF16, I32, I64, I8, U8, U64, BOOL)
FLOAT_ONLY = (UNARY - {"neg", "abs", "sign", "not"}) | TESTS | (PAIR_FUNCTIONS - {"pow"})
INTEGER_ONLY = {"not", "and", "or", "xor", "shl", "shr"}
BOOL_OPS = {"not", "and", "or", "xor", "eq"}
# a few units in the last place: the formulas are the CPU's, their fused steps round alike
TOLERANCE = {F32: 1e-6, F64: 1e-12, F16: 2e-3, BF16: 1.6e-2}


def applies(op: str, dtype: DType) -> bool:
    if dtype is BOOL:
        return op in BOOL_OPS
    return op not in (INTEGER_ONLY if dtype.is_float else FLOAT_ONLY)


def operand(dtype: DType, second: bool) -> Array:
    """Numbers of all sizes with the extremes among them; small second integers, for shifts."""
    rng = np.random.default_rng(int(second))
    if dtype is BOOL:
        return rng.random(COUNT) < 0.5
    if dtype.is_float:
        values = rng.standard_normal(COUNT) * 10.0 ** rng.integers(-3, 4, COUNT)
        special = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5]
        values[:8] = special[::-1] if second else special
        return values.astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    found = rng.integers(limits.min, limits.max, COUNT, dtype=dtype.numpy)
    found[::3] = rng.integers(0, 20, len(found[::3]))
    found[:4] = [0, 1, limits.min, limits.max]
    if second:
        found[COUNT // 2 :] = rng.integers(0, 8, COUNT - COUNT // 2)
    return found


def pointwise(expr: Expr, *inputs: DType) -> LoopKernel:
    specs = tuple(TensorSpec(t, (COUNT,)) for t in inputs)
    nest = LoopNest((COUNT,), (), (), (Store(0, (axis(0),), expr),))
    return LoopKernel(specs, (TensorSpec(expr.dtype, (COUNT,)),), (nest,))


def compare(kernel: LoopKernel, arrays: list[Array], tolerance: float) -> None:
    (got,), status = run(nest_sources(kernel, 256, 1, 4), arrays, kernel.outputs, {})
    assert status == 0
    with np.errstate(all="ignore"):
        (want,) = run_kernel(kernel, arrays, {})
    if tolerance == 0:
        if kernel.outputs[0].dtype is BF16:  # numpy does not know its NaNs
            got, want = got.astype(np.float32), want.astype(np.float32)
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(
            got.astype("f8"), want.astype("f8"), rtol=tolerance, atol=tolerance
        )


OPS = [(o, 1) for o in sorted(UNARY | TESTS)] + [(o, 2) for o in sorted(BINARY | COMPARE)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("op", "operands"), OPS)
def test_operations(op: str, operands: int, dtype: DType) -> None:
    if not applies(op, dtype):
        pytest.skip(f"{op} has no meaning for {dtype}")
    loads = [load(i, (axis(0),), dtype) for i in range(operands)]
    expr = unary(op, *loads) if operands == 1 else binary(op, *loads)
    arrays = [operand(dtype, bool(i)) for i in range(operands)]
    exact = expr.dtype is BOOL or not dtype.is_float
    compare(pointwise(expr, *[dtype] * operands), arrays, 0 if exact else TOLERANCE[dtype])


@pytest.mark.parametrize(("source", "target"), itertools.permutations(TYPES, 2), ids=str)
def test_conversions(source: DType, target: DType) -> None:
    x = operand(source, False)
    compare(pointwise(cast(load(0, (axis(0),), source), target), source), [x], 0)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("op", FORMS, ids=str)
def test_short_forms_round_like_exact_ones(op: Activation, dtype: DType, alone: bool) -> None:
    kernel = form_kernel(op, dtype, alone)
    (got,), _ = run(nest_sources(kernel, 256, 1, 4), [every_value(dtype)], kernel.outputs, {})
    check_form(op, dtype, alone, got)


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
def test_constants_keep_the_sign_of_zero(dtype: DType) -> None:
    kernel = signed_zeros(dtype)
    (got,), _ = run(nest_sources(kernel, 8, 1, 4), [numbers(dtype)], kernel.outputs, {})
    check_zeros(got)
