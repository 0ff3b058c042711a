"""Convolutions by implicit GEMM, channels last."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.anchors import anchor_tactics
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import EFFORTS
from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32, I64, DType
from braze.core.elements import stored
from braze.expr.loops import TensorSpec
from braze.expr.scalar import axis, binary, const, load
from braze.fusion.kernel import AnchorKernel
from tests.codegen.anchors import harness
from tests.codegen.anchors.harness import EPILOGUES, check, conv, conv3d, host_isas, variants
from tests.pairs import pairwise

N, H, W = sym("n"), sym("h"), sym("w")


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize(
    "kernel",
    [
        conv(1, 5, 6, (4, 7), (1, 1)),
        conv(2, 7, 7, (16, 33), (3, 3), pads=(1, 1, 1, 1)),
        conv(1, 9, 8, (3, 16), (7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
        conv(2, 6, 9, (17, 5), (2, 3), pads=(0, 2, 1, 0), dilations=(2, 1)),
        conv(1, 8, 8, (20, 12), (3, 2), groups=4, strides=(1, 2), pads=(1, 0, 2, 1)),
        conv(3, 4, 4, (64, 40), (1, 1), strides=(2, 2)),
        conv(1, 1, 11, (6, 9), (1, 5), pads=(0, 2, 0, 2), dilations=(1, 3)),
        conv(1, 3, 3, (5, 5), (3, 3), pads=(4, 4, 4, 4)),
    ],
    ids=lambda k: f"{k.spec.kernel}-{k.spec.in_channels}-{k.spec.out_channels}-{k.spec.groups}",
)
def test_static_convolution(isa: str, kernel: AnchorKernel) -> None:
    spec = kernel.spec
    check(kernel, {}, isa, spec.in_channels * spec.kernel[0] * spec.kernel[1])


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("kind", EPILOGUES)
def test_epilogue(isa: str, kind: str) -> None:
    kernel = conv(2, 5, 4, (6, 22), (3, 3), groups=2, pads=(1, 1, 1, 1), kind=kind)
    check(kernel, {}, isa, 27, level=0)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
@pytest.mark.parametrize("channels", [(3, 8), (24, 19)])
def test_one_object_serves_all_sizes(
    isa: str, kernel: tuple[int, int], channels: tuple[int, int]
) -> None:
    pad = kernel[0] // 2
    anchor = conv(N, H, W, channels, kernel, pads=(pad,) * 4, kind="residual")
    compiled = list(variants(anchor, isa))
    for n, h, w in ((1, 1, 1), (2, 5, 9), (1, 14, 3), (0, 4, 4)):
        env = {"n": n, "h": h, "w": w}
        inputs = harness.random_inputs(anchor, env)
        want = harness.run_kernel(anchor, inputs, env, float64=True)[0]
        for code in compiled:
            # up to 216 products of normal values
            np.testing.assert_allclose(code(inputs, env, 3), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("isa", host_isas())
def test_equal_images_have_equal_bits(isa: str) -> None:
    kernel = conv(5, 6, 7, (19, 21), (3, 3), pads=(1, 1, 1, 1), strides=(2, 1), kind="exp")
    inputs = harness.random_inputs(kernel, {})
    inputs[0][:] = inputs[0][0]
    for code in variants(kernel, isa):
        out = code(inputs, {}, 2)
        np.testing.assert_array_equal(out, np.broadcast_to(out[0], out.shape))


def test_a_weight_that_is_not_constant_is_left_to_the_fallback() -> None:
    kernel = conv(1, 4, 4, (3, 3), (3, 3))
    moving = AnchorKernel(kernel.spec, kernel.inputs, kernel.output, kernel.epilogue)
    assert anchor_tactics(moving, CpuTarget("avx2", 1), EFFORTS[3]) == ()


@pytest.mark.parametrize("isa", host_isas())
def test_a_residual_that_is_also_read_elsewhere(isa: str) -> None:
    """One load runs along with the output, the other reads the first pixel of each image."""
    kernel = conv(2, 4, 5, (6, 10), (1, 1), kind="residual")
    first = load(3, (axis(0), const(0, I64), const(0, I64), axis(3)), F32)
    expr = binary("mul", kernel.epilogue, first)
    check(replace(kernel, epilogue=expr), {}, isa, 6)


@pytest.mark.parametrize("isa", host_isas())
def test_one_axis_with_a_residual_of_rank_three(isa: str) -> None:
    kernel = conv(2, 1, 15, (6, 10), (1, 3), pads=(0, 1, 0, 1))
    index = (axis(0), axis(2), axis(3))
    expr = binary("add", kernel.epilogue, load(2, index, F32))
    inputs = (*kernel.inputs, TensorSpec(F32, (2, 15, 10)))
    check(replace(kernel, inputs=inputs, epilogue=expr), {}, isa, 18)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("window", [(3, 3), (9, 1), (1, 12)])
def test_few_channels_read_lines_in_place(isa: str, window: tuple[int, int]) -> None:
    """Edges to every side, and more lines than are unrolled."""
    pads = (window[0] // 2, window[1] // 2, window[0] - 1, window[1] - 1)
    kernel = conv(2, 12, 13, (2, 18), window, pads=pads, strides=(1, 2))
    modes = {t["a"] for t in anchor_tactics(kernel, CpuTarget(isa, 2), EFFORTS[3])}
    assert modes == {"line", "patch"}
    check(kernel, {}, isa, 2 * window[0] * window[1], level=3)


CONV3D: dict[str, tuple[Any, ...]] = {
    "3x3x3": ((2, 16), (3, 3, 3), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
    "strided": ((20, 18), (2, 3, 1), (2, 1, 2), (0, 1, 0, 1, 1, 0)),
    "1x1x1": ((19, 33), (1, 1, 1), (1, 1, 1), (0,) * 6),
    "many taps": ((3, 7), (5, 5, 5), (1, 1, 1), (2, 2, 2, 2, 2, 2)),
    "groups": ((12, 8), (3, 1, 3), (1, 2, 1), (1, 0, 1, 1, 0, 1), 2),
}


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("name", CONV3D)
def test_three_axes(isa: str, name: str) -> None:
    channels, kernel, *rest = CONV3D[name]
    depth = channels[0] * math.prod(kernel)
    check(conv3d(2, (5, 6, 7), channels, kernel, *rest, kind="residual"), {}, isa, depth)
    sizes = (sym("d"), sym("h"), 7)
    kernel3d = conv3d(sym("n"), sizes, channels, kernel, *rest)
    check(kernel3d, {"n": 1, "d": 4, "h": 9}, isa, depth, level=0)


@pytest.mark.parametrize(
    ("isa", "name", "dtype"), pairwise(host_isas(), list(CONV3D), [F16, BF16]), ids=str
)
def test_three_axes_of_half_types(isa: str, name: str, dtype: DType) -> None:
    """Sums of float32 kernels on the same numbers, rounded once."""
    channels, kernel, *rest = CONV3D[name]
    half, wide = (conv3d(2, (5, 6, 7), channels, kernel, *rest, dtype=d) for d in (dtype, F32))
    inputs = harness.random_inputs(half, {})
    widened = [x.astype(np.float32) for x in inputs]
    target = CpuTarget(isa, 2)
    (tactic,) = anchor_tactics(wide, target, EFFORTS[0])
    want = harness.Compiled(wide, tactic, target)(widened, {})
    for code in variants(half, isa):
        for workers in (1, 3):
            np.testing.assert_array_equal(code(inputs, {}, workers), stored(want, dtype))
