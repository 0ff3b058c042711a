"""Depthwise convolutions, channels last."""

from __future__ import annotations

import numpy as np
import pytest

from braze.codegen.cpu.anchors import anchor_tactics
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import EFFORTS
from braze.core.dims import sym
from tests.codegen.anchors import harness
from tests.codegen.anchors.harness import EPILOGUES, check, conv, host_isas, variants
from tests.pairs import pairwise

N, H, W = sym("n"), sym("h"), sym("w")


def test_the_template_is_used() -> None:
    kernel = conv(1, 8, 8, (32, 32), (3, 3), groups=32)
    for tactic in anchor_tactics(kernel, CpuTarget("avx512", 2), EFFORTS[3]):
        assert tactic.template == "depthwise"
    multiplied = conv(1, 8, 8, (16, 32), (3, 3), groups=16)
    assert anchor_tactics(multiplied, CpuTarget("avx512", 2), EFFORTS[0])[0].template == "conv"


@pytest.mark.parametrize(
    ("isa", "size", "stride", "channels"), pairwise(host_isas(), [3, 5, 7], [1, 2], [16, 37])
)
def test_same_padding(isa: str, size: int, stride: int, channels: int) -> None:
    pad = size // 2
    kernel = conv(
        2,
        7,
        15,
        (channels, channels),
        (size, size),
        groups=channels,
        strides=(stride, stride),
        pads=(pad, pad, pad, pad),
    )
    check(kernel, {}, isa, size * size)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize(
    ("window", "dilations", "pads"),
    [
        ((1, 4), (1, 2), (0, 3, 0, 1)),
        ((4, 1), (2, 1), (5, 0, 2, 0)),
        ((2, 2), (3, 3), (0, 0, 0, 0)),
        ((3, 3), (1, 1), (6, 6, 6, 6)),
    ],
)
def test_odd_windows(
    isa: str, window: tuple[int, int], dilations: tuple[int, int], pads: tuple[int, int, int, int]
) -> None:
    kernel = conv(1, 9, 10, (21, 21), window, groups=21, dilations=dilations, pads=pads)
    check(kernel, {}, isa, window[0] * window[1])


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("kind", EPILOGUES)
def test_epilogue(isa: str, kind: str) -> None:
    kernel = conv(2, 5, 9, (24, 24), (3, 3), groups=24, pads=(1, 1, 1, 1), kind=kind)
    check(kernel, {}, isa, 9, level=0)


@pytest.mark.parametrize("isa", host_isas())
def test_one_object_serves_all_sizes(isa: str) -> None:
    kernel = conv(N, H, W, (40, 40), (5, 3), groups=40, pads=(2, 1, 2, 1), kind="residual")
    compiled = list(variants(kernel, isa))
    for n, h, w in ((1, 1, 1), (2, 3, 4), (1, 6, 29), (0, 5, 5)):
        env = {"n": n, "h": h, "w": w}
        inputs = harness.random_inputs(kernel, env)
        want = harness.run_kernel(kernel, inputs, env, float64=True)[0]
        for code in compiled:
            # 15 products of normal values
            np.testing.assert_allclose(code(inputs, env, 2), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("isa", host_isas())
def test_equal_images_have_equal_bits(isa: str) -> None:
    kernel = conv(3, 6, 11, (33, 33), (3, 3), groups=33, pads=(1, 1, 1, 1), kind="exp")
    inputs = harness.random_inputs(kernel, {})
    inputs[0][:] = inputs[0][0]
    for code in variants(kernel, isa):
        out = code(inputs, {}, 2)
        np.testing.assert_array_equal(out, np.broadcast_to(out[0], out.shape))
