"""Convolutions of pictures with a pool behind them: the form in Gluon for Hopper.

interpreted.py has what the first launch makes, tests/gpu/test_bytes.py the results on a card.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.gluon.layout import spread_order
from braze.codegen.cuda.gluon.pooled import pooled_sources, pooled_tactics, pools
from braze.codegen.cuda.packing import pack_constant
from braze.codegen.cuda.target import CudaTarget
from braze.codegen.cuda.triton.pooled import plain_source, plain_tactic
from braze.codegen.reference.run import run_kernel
from braze.core.config import EFFORTS
from braze.core.dtypes import F32, I8
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import PooledSpec
from tests.codegen.cuda.bytes import drawn, quantized
from tests.codegen.cuda.pools import behind, picture


def network(size: int = 32, columns: int = 64) -> AnchorKernel:
    return behind(quantized(picture(3, size, size, columns)))


def test_which_pools_it_takes() -> None:
    def refusal(kernel: AnchorKernel, **changes: object) -> str | None:
        assert isinstance(kernel.spec, PooledSpec)
        return pools(replace(kernel.spec, **changes), kernel.inputs, kernel.constant)

    assert refusal(network()) is None and refusal(network(64, 128)) is None
    assert "other windows" in str(refusal(network(), window=(2, 2), pads=(0, 0)))
    assert "pictures" in str(refusal(network(columns=48)))
    assert "hangs over" in str(refusal(network(30)))  # 15 sums a line
    floats = behind(picture(3, 32, 32, 64))
    assert "bytes" in str(refusal(floats))
    kernel = network()
    found = pooled_tactics(kernel, EFFORTS[3])
    for target, taken in (("sm_90", True), ("sm_80", False)):
        backend = CudaBackend(CudaTarget(target, 1))
        why = backend.supports(kernel.spec, kernel.inputs, kernel.constant)
        assert (why is None) == taken
        if taken:
            assert backend.tactics(kernel, EFFORTS[1]) == (found[0], plain_tactic())
            assert backend.tactics(kernel, EFFORTS[3]) == (*found, plain_tactic())


def test_it_compiles() -> None:
    from braze.codegen.cuda.triton.cubin import compile_source

    pytest.importorskip("triton", reason="triton is not installed: pip install braze[cuda]")
    kernel = network(112)
    first, second = pooled_sources(kernel, pooled_tactics(kernel, EFFORTS[1])[0])
    assert compile_source(first, 90).metadata.name == "spread"
    done = compile_source(second, 90)
    assert ".s32.s8.s8" in done.asm["ptx"] and "st.global.v4" in done.asm["ptx"]
    plain = compile_source(plain_source(kernel), 90)
    assert plain.metadata.name == "pooled"
    # pixels come as words, to registers
    assert "ld.global.b32" in done.asm["ptx"] and done.metadata.shared < 16384


def test_weights_are_lines_of_pixels() -> None:
    kernel = network(columns=128)
    _, second = pooled_sources(kernel, pooled_tactics(kernel, EFFORTS[1])[0])
    ((slot, packing),) = second.packings
    weight = np.random.default_rng(0).integers(-128, 128, (128, 3, 7, 7)).astype(np.int8)
    packed = pack_constant(weight, packing).reshape(2, 7, 64, 8, 4)
    assert slot == 1 and not packed[..., 7, :].any() and not packed[..., 3].any()
    back = np.empty_like(packed)
    back[:, :, spread_order(64, 16)] = packed
    rows = back.transpose(0, 2, 1, 3, 4).reshape(128, 7, 8, 4)
    np.testing.assert_array_equal(rows[:, :, :7, :3], weight.transpose(0, 2, 3, 1))


def test_the_reference_takes_the_largest() -> None:
    kernel = network()
    spec = kernel.spec
    assert isinstance(spec, PooledSpec)
    plain = replace(quantized(picture(3, 32, 32, 64)), constant=kernel.constant)
    inputs = drawn(kernel, {})
    (got,), (all_of,) = run_kernel(kernel, inputs, {}), run_kernel(plain, inputs, {})
    padded = np.pad(all_of, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=-128)
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    np.testing.assert_array_equal(got, views[:, ::2, ::2].max((-1, -2)))
    assert got.dtype == I8.numpy and plain.inputs[2].dtype is F32
