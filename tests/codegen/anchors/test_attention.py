"""Fused attention."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dims import Dim, sym
from braze.core.dtypes import BF16, F16, DType
from tests.codegen.anchors import harness
from tests.codegen.anchors.harness import attention, host_isas, variants
from tests.pairs import pairwise

B, Q, S = sym("b"), sym("q"), sym("s")
# exp and sums of up to 70 terms in float32
TOLERANCE = 2e-5
SIZES = [(1, 2, 7, 9, 8, 8), (2, 3, 33, 40, 16, 24), (1, 1, 1, 70, 5, 3), (1, 4, 20, 20, 64, 64)]


# and the one rounding of the result to a half type
HALVES = {F16: 2**-11, BF16: 2**-8}


def compare(kernel: harness.AnchorKernel, env: harness.Env, isa: str, hide: float = 0) -> None:
    inputs = harness.random_inputs(kernel, env)
    tolerance = TOLERANCE + HALVES.get(kernel.output.dtype, 0)
    if hide:
        mask = inputs[3]
        mask[np.random.default_rng(1).random(mask.shape) < hide] = -np.inf
    want = harness.run_kernel(kernel, inputs, env, float64=True)[0]
    first = None
    for code in variants(kernel, isa):
        for workers in (1, 3):
            got = code(inputs, env, workers)
            pair = got.astype(np.float64), want.astype(np.float64)
            np.testing.assert_allclose(*pair, rtol=tolerance, atol=tolerance)
            first = got if first is None else first
            np.testing.assert_array_equal(got, first)


@pytest.mark.parametrize(
    ("isa", "sizes", "causal"), pairwise(host_isas(), SIZES, [False, True]), ids=str
)
def test_static(isa: str, sizes: tuple[int, int, int, int, int, int], causal: bool) -> None:
    compare(attention(sizes, causal=causal), {}, isa)


@pytest.mark.parametrize(
    ("isa", "dtype", "mask", "layouts"),
    pairwise(
        host_isas(),
        [F16, BF16],
        ["none", "keys", "full"],
        [("bshd",) * 4, ("bhds", "bhds", "bhds", "bhsd")],
    ),
    ids=str,
)
def test_half_types(isa: str, dtype: DType, mask: str, layouts: tuple[str, str, str, str]) -> None:
    """Scores and weights stay float32: the result alone is rounded."""
    hide = 0 if mask == "none" else 0.4
    compare(attention(SIZES[1], layouts=layouts, mask=mask, dtype=dtype), {}, isa, hide)
    kernel = attention((B, 2, Q, S, 16, 8), layouts=layouts, mask=mask, dtype=dtype, causal=True)
    compare(harness.inside(kernel, 3), {"b": 2, "q": 5, "s": 19}, isa, hide)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("mask", ["keys", "full"])
def test_mask(isa: str, mask: str) -> None:
    compare(attention(SIZES[1], mask=mask), {}, isa, hide=0.4)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize(
    "layouts", [("bhsd",) * 4, ("bhds", "bhds", "bhds", "bhds"), ("bshd", "bhds", "bhsd", "bshd")]
)
def test_layouts(isa: str, layouts: tuple[str, str, str, str]) -> None:
    compare(attention(SIZES[1], layouts=layouts), {}, isa)


@pytest.mark.parametrize("isa", host_isas())
def test_rows_that_see_nothing_are_zero(isa: str) -> None:
    kernel = attention((1, 2, 6, 10, 8, 8), mask="full")
    inputs = harness.random_inputs(kernel, {})
    inputs[3][0, 1, 2] = -np.inf
    for code in variants(kernel, isa):
        out = code(inputs, {})
        assert np.isfinite(out).all()
        assert not code(inputs, {}).reshape(1, 6, 2, 8)[0, 2, 1].any()
    # more queries than keys: the first ones come before every key
    kernel = attention((1, 1, 9, 4, 8, 8), causal=True)
    inputs = harness.random_inputs(kernel, {})
    for code in variants(kernel, isa):
        out = code(inputs, {}).reshape(9, 8)
        assert not out[:5].any() and out[5:].all()


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("causal", [False, True])
def test_one_object_serves_all_lengths(isa: str, causal: bool) -> None:
    kernel = attention((B, 2, Q, S, 16, 16), causal=causal, mask="full")
    compiled = list(variants(kernel, isa, level=0))
    for b, q, s in ((1, 1, 1), (2, 5, 37), (1, 40, 40), (1, 13, 3), (0, 4, 4), (1, 3, 0)):
        env = {"b": b, "q": q, "s": s}
        inputs = harness.random_inputs(kernel, env)
        want = harness.run_kernel(kernel, inputs, env, float64=True)[0]
        for code in compiled:
            got = code(inputs, env, 2)
            np.testing.assert_allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("isa", host_isas())
def test_equal_queries_have_equal_bits(isa: str) -> None:
    kernel = attention((1, 2, 50, 33, 16, 16), layouts=("bhsd",) * 4)
    inputs = harness.random_inputs(kernel, {})
    inputs[0][:] = inputs[0][:, :, :1]
    for code in variants(kernel, isa):
        out = code(inputs, {}, 2)
        np.testing.assert_array_equal(out, np.broadcast_to(out[:, :, :1], out.shape))


@pytest.mark.parametrize("isa", host_isas())
def test_nan_in_one_query_stays_there(isa: str) -> None:
    kernel = attention((1, 1, 8, 20, 8, 8), layouts=("bhsd",) * 4)
    inputs = harness.random_inputs(kernel, {})
    inputs[0][0, 0, 3, 2] = np.nan
    for code in variants(kernel, isa):
        out = code(inputs, {})
        assert np.isnan(out[0, 0, 3]).all()
        assert np.isfinite(np.delete(out, 3, axis=2)).all()


@pytest.mark.parametrize(
    ("isa", "sizes", "mask", "layouts"),
    pairwise(
        host_isas(),
        [*SIZES[:3], (B, 2, Q, S, 16, 8)],
        ["none", "full"],
        [("bshd",) * 4, ("bhsd", "bshd", "bshd", "bhsd")],
    ),
    ids=str,
)
def test_slices(
    isa: str, sizes: tuple[Dim, Dim, Dim, Dim, int, int], mask: str,
    layouts: tuple[str, str, str, str],
) -> None:  # fmt: skip
    """Operands that are slices of tensors with longer rows, at places that no vector begins at."""
    kernel = harness.inside(attention(sizes, layouts=layouts, mask=mask), 3)
    compare(kernel, {"b": 2, "q": 5, "s": 19}, isa)
