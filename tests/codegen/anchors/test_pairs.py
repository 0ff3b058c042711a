"""Products and convolutions of bfloat16 by the instruction for pairs of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.anchors import anchor_tactics
from braze.codegen.cpu.backend import CpuBackend
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import EFFORTS
from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import axis, cast, load
from braze.fusion.kernel import AnchorKernel
from braze.runtime.native import LoadedKernel, host_features
from tests.codegen.anchors import harness
from tests.codegen.anchors.harness import EPILOGUES, Compiled, conv, conv3d, matmul

Array = np.ndarray[Any, Any]
N, M = sym("n"), sym("m")
EXTRA = "avx512bf16"
TARGET = CpuTarget("avx512", 2, extras=(EXTRA,))
runs_here = pytest.mark.skipif(EXTRA not in host_features(), reason="no AVX512-BF16 here")


def uses_pairs(kernel: AnchorKernel) -> bool:
    tactics = anchor_tactics(kernel, TARGET, EFFORTS[3])
    found = {f"with={EXTRA}" in str(t) for t in tactics}
    assert len(found) == 1  # all round alike
    return found.pop()


def check(kernel: AnchorKernel, env: harness.Env, depth: int) -> None:
    """Near float64 within the roundings of `depth` float32 terms and one of bfloat16; equal bits
    for every tactic and any number of workers."""
    assert uses_pairs(kernel)
    inputs = harness.random_inputs(kernel, env, depth)
    want = harness.run_kernel(kernel, inputs, env, float64=True)[0].astype(np.float64)
    bound = 4e-6 * max(4, depth)
    first: Array | None = None
    tactics = [anchor_tactics(kernel, TARGET, EFFORTS[level]) for level in (0, 3)]
    for tactic in dict.fromkeys(t for found in tactics for t in found):
        code = Compiled(kernel, tactic, TARGET)
        assert code.code.own_code.needs == f"avx512+{EXTRA}"
        for workers in (1, 3):
            got = code(inputs, env, workers)
            wide = got.astype(np.float64)
            np.testing.assert_allclose(wide, want, rtol=2**-7 + bound, atol=2**-6 + bound)
            first = got if first is None else first
            np.testing.assert_array_equal(got, first, str(tactic))


@runs_here
@pytest.mark.parametrize(
    "size", [(1, 40, 8), (13, 3, 6), (12, 32, 16), (25, 33, 18), (5, 70, 514), (9, 20, 256)]
)
def test_products(size: tuple[int, int, int]) -> None:
    check(matmul((), *size, dtype=BF16), {}, size[2])


@runs_here
@pytest.mark.parametrize("kind", EPILOGUES)
def test_epilogues_and_symbolic_rows(kind: str) -> None:
    check(matmul((N,), M, 21, 12, dtype=BF16, kind=kind), {"n": 2, "m": 13}, 12)


@runs_here
def test_batches_turned_weights_and_slices() -> None:
    check(matmul((3,), M, 20, 10, shared=False, dtype=BF16), {"m": 5}, 10)
    check(matmul((), 7, 33, 30, turned=True, dtype=BF16), {}, 30)
    check(harness.inside(matmul((2,), 7, 33, 30, dtype=BF16), 3), {}, 30)


@runs_here
@pytest.mark.parametrize("channels", [(4, 5), (2, 16), (20, 33), (64, 8)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 5)])
def test_convolutions(channels: tuple[int, int], kernel: tuple[int, int]) -> None:
    pads = (1, 0, 2, 1) if kernel != (1, 1) else (0, 0, 0, 0)
    depth = channels[0] * kernel[0] * kernel[1]
    strides = (2, 1) if kernel == (3, 3) else (1, 1)
    made = conv(2, 6, 7, channels, kernel, pads=pads, strides=strides, dtype=BF16, kind="residual")
    check(made, {}, depth)


@runs_here
def test_other_convolutions() -> None:
    check(conv(N, M, 5, (6, 9), (3, 3), groups=3, pads=(1,) * 4, dtype=BF16), {"n": 2, "m": 7}, 18)
    check(conv(1, 9, 9, (3, 12), (4, 3), dilations=(2, 1), dtype=BF16), {}, 36)
    # Winograd of 2 x 2 outputs would not be faster
    check(conv(1, 6, 6, (16, 20), (3, 3), pads=(1,) * 4, dtype=BF16), {}, 144)
    pads = (1, 1, 1, 1, 1, 1)
    check(conv3d(1, (4, 5, 3), (8, 5), (3, 3, 3), (1, 1, 1), pads, dtype=BF16), {}, 216)


@runs_here
def test_infinities_nan_and_equal_rows() -> None:
    kernel = matmul((), 6, 20, 64, dtype=BF16)
    inputs = harness.random_inputs(kernel, {})
    inputs[0][:] = inputs[0][0]
    inputs[0][1, 3], inputs[0][2, 5] = np.inf, np.nan
    for tactic in anchor_tactics(kernel, TARGET, EFFORTS[3]):
        got = Compiled(kernel, tactic, TARGET)(inputs, {}, 2).astype(np.float32)
        assert np.isnan(got[2]).all() and np.isinf(got[1]).all()
        np.testing.assert_array_equal(got[3:], np.broadcast_to(got[3], got[3:].shape))


@runs_here
@pytest.mark.parametrize("size", [1, 7, 32, 3001])
def test_rounding_has_the_bits_of_the_arithmetic_one(size: int) -> None:
    """NaN, infinities, ties and the ends of the range; denormals alone become zero."""
    at = (axis(0),)
    nest = LoopNest((size,), (), (), (Store(0, at, cast(load(0, at, F32), BF16)),))
    kernel = LoopKernel((TensorSpec(F32, (size,)),), (TensorSpec(BF16, (size,)),), (nest,))
    bits = np.random.default_rng(3).integers(0, 1 << 32, size, dtype=np.uint32)
    bits[::3] = bits[::3] & 0xFFFF0000 | 0x8000  # ties
    bits[:6] = [0x7F800000, 0xFF800001, 0x7F7FFFFF, 0x7FFFFFFF, 0x80000000, 0x00800000][:size]
    tiny = (bits & 0x7F800000) == 0
    found = []
    for target in (CpuTarget("avx512", 2), TARGET):
        backend = CpuBackend(target)
        for tactic in backend.tactics(kernel, EFFORTS[3]):
            assert (f"with={EXTRA}" in str(tactic)) is bool(target.extras)
            code = backend.compile(kernel, tactic)
            out = np.zeros(size, np.uint16)
            loaded = LoadedKernel(code.own_code.data, code.own_code.entry)
            assert loaded.run([bits.view(np.float32), out], [], workers=1) == 0
            found.append(np.where(tiny, bits >> 31 << 15, out))
    for got in found:
        np.testing.assert_array_equal(got, found[0])


@pytest.mark.parametrize(
    "kernel",
    [
        matmul((), 4, 8, 7, dtype=BF16),  # a half word
        matmul((), 4, 8, 8, dtype=BF16, constant=False),
        matmul((), 4, 8, 8, dtype=F16),
        matmul((), 4, 8, 8, dtype=F32),
        conv(1, 5, 5, (3, 8), (3, 3), strides=(2, 2), dtype=BF16),
        conv(1, 5, 5, (8, 8), (3, 3), groups=8, dtype=BF16),  # depthwise
        conv(1, 9, 9, (32, 32), (3, 3), pads=(1,) * 4, dtype=BF16),  # Winograd multiplies less
    ],
)
def test_near_misses(kernel: AnchorKernel) -> None:
    assert not uses_pairs(kernel)


def test_named_instruction_sets_do_not_use_it() -> None:
    kernel = matmul((), 4, 8, 8, dtype=BF16)
    for tactic in anchor_tactics(kernel, CpuTarget("avx512", 2), EFFORTS[3]):
        assert EXTRA not in str(tactic)
    (tactic,) = anchor_tactics(kernel, TARGET, EFFORTS[0])
    assert "vdpbf16ps" in CpuBackend(TARGET).listing(kernel, tactic, "asm")
