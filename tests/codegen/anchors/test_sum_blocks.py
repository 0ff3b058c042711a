"""The order of every sum, bit by bit: blocks of k in ascending order, whatever the tile.

Inputs are small integers times powers of two, so products are exact, fused or not, and only sums
round: the bits a spec asks for can be computed here, term by term. Half types hold the inputs
exactly and round each sum once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32, DType
from braze.core.elements import numbers, stored
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import SUM_BLOCK, ConvSpec, window_block
from tests.codegen.anchors.harness import conv, host_isas, matmul, variants
from tests.pairs import pairwise

Array = np.ndarray[Any, Any]
LENGTHS = (1, SUM_BLOCK - 1, SUM_BLOCK, SUM_BLOCK + 1, 2 * SUM_BLOCK, 2 * SUM_BLOCK + 1)


def rough(rng: np.random.Generator, *shape: int) -> Array:
    """Numbers of very different sizes with few bits: their products are exact in float32."""
    values = rng.integers(-127, 128, shape) * 2.0 ** rng.integers(-12, -1, shape)
    return values.astype(np.float32)


DTYPES = (F32, F16, BF16)


def summed(lhs: Array, rhs: Array, block: int) -> Array:
    """lhs [.., m, k] @ rhs [.., k, n] in float32 as specs say: one term after another."""
    total = np.zeros(np.matmul(lhs[..., :1], rhs[..., :1, :]).shape, np.float32)
    for start in range(0, lhs.shape[-1], block):
        part = np.zeros_like(total)
        for k in range(start, min(start + block, lhs.shape[-1])):
            part += lhs[..., k, None] * rhs[..., k, None, :]
        total += part
    return total


def windows(spec: ConvSpec, x: Array) -> Array:
    """[N, *out, groups, taps * channels of a group]: what each output's sum runs over."""
    n, (pad_h, pad_w) = x.shape[0], spec.pads[:2]
    padded = np.pad(x, [(0, 0), (pad_h, spec.pads[2]), (pad_w, spec.pads[3]), (0, 0)])
    out_h, out_w = (int(s) for s in spec.out_spatial)  # type: ignore[arg-type]
    taps = []
    for kh, kw in np.ndindex(*spec.kernel):
        h, w = kh * spec.dilations[0], kw * spec.dilations[1]
        rows = slice(h, h + (out_h - 1) * spec.strides[0] + 1, spec.strides[0])
        columns = slice(w, w + (out_w - 1) * spec.strides[1] + 1, spec.strides[1])
        taps.append(padded[:, rows, columns].reshape(n, out_h, out_w, spec.groups, -1))
    return np.concatenate(taps, -1)


def check_bits(kernel: AnchorKernel, isa: str, given: list[Array], want: Array, env: Any) -> None:
    """Every tactic gives `want` (float32 sums, rounded to the kernel's type) bit for bit."""
    dtype = kernel.output.dtype
    inputs = [stored(a, dtype) for a in given]
    assert all((numbers(a, dtype) == b).all() for a, b in zip(inputs, given, strict=True))
    for compiled in variants(kernel, isa):
        for workers in (1, 3):
            np.testing.assert_array_equal(compiled(inputs, env, workers), stored(want, dtype))


def check_product(isa: str, sizes: tuple[int, int, int], dtype: DType, **options: bool) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(k)
    a, b = rough(rng, m, k), rough(rng, k, n)
    right = np.ascontiguousarray(b.T) if options.get("turned") else b
    kernel = matmul((), m, n, k, dtype=dtype, **options)
    check_bits(kernel, isa, [a, right], summed(a, b, SUM_BLOCK), {})


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("k", LENGTHS)
@pytest.mark.parametrize("constant", [True, False])
def test_products(isa: str, k: int, constant: bool) -> None:
    check_product(isa, (13, 17, k), F32, constant=constant)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_every_form(isa: str, dtype: DType) -> None:
    k = SUM_BLOCK + 1
    for size in ((1, 40, k), (5, 1, k), (29, 70, k)):
        check_product(isa, size, dtype)
    check_product(isa, (7, 33, k), dtype, constant=False)
    check_product(isa, (7, 33, k), dtype, constant=False, turned=True)
    check_product(isa, (3, 20, 1), dtype)


@pytest.mark.parametrize("isa", host_isas())
def test_products_of_symbolic_size(isa: str) -> None:
    kernel = matmul((), sym("m"), sym("n"), sym("k"), constant=False)
    compiled = list(variants(kernel, isa))
    rng = np.random.default_rng(0)
    for k in LENGTHS:
        for m, n in ((1, 3), (14, 35)):
            a, b = rough(rng, m, k), rough(rng, k, n)
            for code in compiled:
                got = code([a, b], {"m": m, "n": n, "k": k}, 2)
                np.testing.assert_array_equal(got, summed(a, b, SUM_BLOCK))


CONVS = {
    # name: channels in and out, kernel, options
    "1x1": ((513, 20), (1, 1), {}),
    "taps longer than a block": ((300, 18), (1, 2), {"pads": (0, 1, 0, 0)}),
    "taps that divide a block": ((64, 18), (3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    "taps across blocks": ((48, 33), (3, 3), {"pads": (1, 1, 1, 1), "dilations": (2, 1)}),
    "groups": ((80, 36), (3, 3), {"groups": 2, "strides": (1, 2)}),
    "lines": ((12, 18), (5, 5), {"pads": (2, 2, 2, 2)}),
    "patches": ((10, 18), (4, 7), {"dilations": (1, 2), "pads": (3, 6, 3, 6)}),
    "exactly one block": ((32, 16), (2, 4), {}),
    "one more than a block": ((257, 16), (1, 1), {"strides": (2, 1)}),
    "depthwise": ((21, 21), (3, 3), {"groups": 21, "pads": (1, 1, 1, 1)}),
    "depthwise across blocks": ((19, 19), (17, 16), {"groups": 19, "pads": (8, 8, 8, 8)}),
    "depthwise in lines": ((6, 6), (18, 15), {"groups": 6, "pads": (9, 7, 9, 7)}),
    "depthwise of long lines": ((5, 5), (2, 259), {"groups": 5, "pads": (1, 129, 1, 129)}),
    "two filters a channel": ((6, 12), (17, 16), {"groups": 6, "pads": (8, 8, 8, 8)}),
}


@pytest.mark.parametrize(
    ("isa", "name", "dtype"), pairwise(host_isas(), list(CONVS), DTYPES), ids=str
)
def test_convolutions(isa: str, name: str, dtype: DType) -> None:
    (c, k), kernel, options = CONVS[name]
    made = conv(2, 7, 9, (c, k), kernel, dtype=dtype, **options)
    spec = made.spec
    assert isinstance(spec, ConvSpec)
    rng = np.random.default_rng(1)
    x, w = rough(rng, 2, 7, 9, c), rough(rng, k, c // spec.groups, *kernel)
    filters = w.reshape(spec.groups, k // spec.groups, c // spec.groups, -1).transpose(0, 3, 2, 1)
    filters = filters.reshape(spec.groups, -1, k // spec.groups)  # group, tap and channel, filter
    want = summed(windows(spec, x)[..., None, :], filters, spec.block)
    check_bits(made, isa, [x, w], want.reshape(2, *spec.out_spatial, k), {})


def test_blocks_of_windows() -> None:
    assert window_block((3, 3), 64) == window_block((16, 16), 1) == SUM_BLOCK
    assert window_block((17, 16), 2) == SUM_BLOCK
    assert window_block((18, 15), 1) == 17 * 15  # whole lines
    assert window_block((2, 259), 1) == 259


@pytest.mark.parametrize("isa", host_isas())
def test_long_sums_are_accurate(isa: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((4, 25088), np.float32), rng.random((25088, 8), np.float32)
    want = a.astype(np.float64) @ b
    for constant in (True, False):
        for compiled in variants(matmul((), 4, 8, 25088, constant=constant), isa):
            # one chain is off by 8e-6; 98 blocks of 256 by the rounding of 98 + 256 steps at most
            assert np.max(np.abs(compiled([a, b], {}) / want - 1)) < 1e-6
