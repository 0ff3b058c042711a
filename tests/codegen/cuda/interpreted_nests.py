"""Loop nests of small shapes, and pictures that are spread, in Triton's interpreter, against numpy.

Run by test_interpreted.py, as interpreted.py is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from braze.codegen.cuda.gluon.pooled import pooled_sources, pooled_tactics, spread_size
from braze.codegen.cuda.triton.halves import FORMS
from braze.codegen.cuda.triton.lanes import lane_tactics, lanes_source
from braze.codegen.cuda.triton.nests import nest_sources
from braze.codegen.cuda.triton.pooled import plain_source
from braze.codegen.reference.run import run_kernel
from braze.core.config import EFFORTS
from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32, F64, I8, U8, DType
from braze.expr.loops import TensorSpec
from braze.ops.lowering import PooledSpec
from braze.ops.pointwise.activation import Activation
from tests.codegen.cuda.bytes import drawn as codes
from tests.codegen.cuda.bytes import quantized
from tests.codegen.cuda.families import reduces
from tests.codegen.cuda.forms import check_form, every_value, form_kernel
from tests.codegen.cuda.interpreter import run
from tests.codegen.cuda.limits import DATA, KINDS, check_limits, twice
from tests.codegen.cuda.pools import behind, drawn, picture, pool
from tests.codegen.cuda.zeros import check_zeros, numbers, signed_zeros
from tests.codegen.loops.kernels import Case, cases

N = sym("n")
# blocks have four rows: a few of them, the last one not full. The interpreter takes long for each
SMALL = cases(channels=3, wide=18, square=(22, 18))


@pytest.mark.parametrize("columns", [16, 64])  # rows of 37 take several steps, or one
@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_nests(case: Case, columns: int) -> None:
    launches = nest_sources(case.kernel, 4, columns, 4)
    got, status = run(launches, case.inputs, case.kernel.outputs, case.env)
    assert status == 0
    for g, w in zip(got, run_kernel(case.kernel, case.inputs, case.env), strict=True):
        np.testing.assert_allclose(g.astype("f8"), w.astype("f8"), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("case", [c for c in SMALL if reduces(c)], ids=lambda c: c.name)
@pytest.mark.parametrize("rows_first", [0, 1])
def test_a_warp_reduces_a_row(case: Case, rows_first: int) -> None:
    launches = nest_sources(case.kernel, 4, 128, 4, 4, rows_first)
    got, status = run(launches, case.inputs, case.kernel.outputs, case.env)
    assert status == 0
    for g, w in zip(got, run_kernel(case.kernel, case.inputs, case.env), strict=True):
        np.testing.assert_allclose(g.astype("f8"), w.astype("f8"), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("channels", [8, 20, 64])
@pytest.mark.parametrize(
    ("dtype", "mean"),
    [(I8, False), (U8, False), (F16, False), (F32, False), (F16, True), (F32, True)], ids=str,
)  # fmt: skip
def test_pools(dtype: DType, channels: int, mean: bool) -> None:
    kernel, x = pool(dtype, N, channels, mean), drawn(dtype, 3, channels)
    want = run_kernel(kernel, [x], {"n": 3})
    tactics = lane_tactics(kernel, 9)
    assert len(tactics) > 2
    for tactic in tactics[:2]:
        (got,), status = run([lanes_source(kernel, tactic)], [x], kernel.outputs, {"n": 3})
        assert status == 0
        np.testing.assert_allclose(got.astype("f8"), want[0].astype("f8"), rtol=1e-3 * mean)


def test_an_index_out_of_range_is_reported_and_reads_nothing() -> None:
    (case,) = [c for c in cases() if c.name == "embedding"]
    table, index = case.inputs
    wrong = np.array(index)
    wrong[0] = len(table) + 3
    got, status = run(
        nest_sources(case.kernel, 4, 16, 4), [table, wrong], case.kernel.outputs, case.env
    )
    assert status == 1
    right, _ = run(
        nest_sources(case.kernel, 4, 16, 4), [table, index], case.kernel.outputs, case.env
    )
    np.testing.assert_array_equal(got[0][1:], right[0][1:])


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("op", FORMS, ids=str)
def test_short_forms_round_like_exact_ones(op: Activation, dtype: DType, alone: bool) -> None:
    kernel = form_kernel(op, dtype, alone)
    (source,) = nest_sources(kernel, 1 << 16, 1, 4)
    assert "tl.exp2" in source.text
    (got,), _ = run([source], [every_value(dtype)], kernel.outputs, {})
    check_form(op, dtype, alone, got)


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
def test_constants_keep_the_sign_of_zero(dtype: DType) -> None:
    kernel = signed_zeros(dtype)
    (got,), status = run(nest_sources(kernel, 8, 1, 4), [numbers(dtype)], kernel.outputs, {})
    assert status == 0
    check_zeros(got)


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=str)
@pytest.mark.parametrize(("kind", "number"), KINDS)
def test_the_outer_of_two_limits_is_that_of_no_number(
    kind: str, number: float, dtype: DType
) -> None:
    kernel, data = twice(kind, number, dtype), np.array(DATA, dtype.numpy)
    (got,), status = run(nest_sources(kernel, 8, 1, 4), [data], kernel.outputs, {})
    assert status == 0
    check_limits(got, kind, number)


def test_pictures_are_spread() -> None:
    """Three bytes of a pixel and a zero, with zeros around the picture."""
    kernel = behind(quantized(picture(2, 32, 20, 64)))
    assert isinstance(kernel.spec, PooledSpec)
    inputs, (high, wide) = codes(kernel, {}), spread_size(kernel.spec)
    first, _ = pooled_sources(kernel, pooled_tactics(kernel, EFFORTS[1])[0])
    spread = TensorSpec(I8, (2, high, wide, 4))
    (_, got), _ = run([replace(first, scratch_bytes=0)], inputs, [kernel.output, spread], {})
    want = np.zeros(got.shape, np.int8)
    want[:, 5 : 5 + 32, 5 : 5 + 20, :3] = inputs[0].transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(got, want)


def test_pools_behind_stems_have_a_plain_form() -> None:
    kernel = behind(quantized(picture(2, 10, 14, 20, window=3)))
    inputs = codes(kernel, {})
    (got,), status = run([plain_source(kernel)], inputs, [kernel.output], {})
    assert status == 0
    np.testing.assert_array_equal(got, run_kernel(kernel, inputs, {})[0])
