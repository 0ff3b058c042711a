"""3x3 convolutions by Winograd's algorithm."""

from __future__ import annotations

import numpy as np
import pytest

from braze.codegen.cpu.anchors import anchor_tactics
from braze.codegen.cpu.conv.winograd.matrices import INPUT, OUTPUT, WEIGHT
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import EFFORTS
from braze.core.dims import sym
from braze.fusion.kernel import AnchorKernel, Tactic
from tests.codegen.anchors import harness
from tests.codegen.anchors.harness import EPILOGUES, Compiled, check, conv, host_isas, variants

N, H, W = sym("n"), sym("h"), sym("w")
# F(4, 3) has several times the rounding error; sums of 9 * 20 normal values
TOLERANCE = {2: 2e-5, 4: 2e-4}


def tactic(size: int, lanes: int, rows: int = 4, vectors: int = 2) -> Tactic:
    values = {"size": size, "rows": rows, "vectors": vectors, "lanes": lanes}
    return Tactic("winograd", (*values.items(), ("block", 2), ("group", 1)))


@pytest.mark.parametrize("size", [2, 4])
def test_matrices_filter_a_line(size: int) -> None:
    rng = np.random.default_rng(0)
    line, taps = rng.standard_normal(size + 2), rng.standard_normal(3)
    product = (np.array(WEIGHT[size]) @ taps) * (np.array(INPUT[size]) @ line)
    want = np.correlate(line, taps, "valid")
    np.testing.assert_allclose(np.array(OUTPUT[size]) @ product, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "used"),
    [
        (conv(1, 14, 14, (64, 64), (3, 3), pads=(1, 1, 1, 1)), True),
        (conv(N, H, W, (64, 64), (3, 3)), True),
        (conv(1, 14, 14, (8, 64), (3, 3)), False),
        (conv(1, 14, 14, (64, 64), (3, 3), strides=(2, 2)), False),
        (conv(1, 14, 14, (64, 64), (3, 3), dilations=(2, 2)), False),
        (conv(1, 14, 14, (64, 64), (3, 3), groups=2), False),
        (conv(1, 14, 14, (64, 64), (3, 1)), False),
        (conv(1, 4, 14, (64, 64), (3, 3)), False),
    ],
)
def test_a_rule_decides(kernel: AnchorKernel, used: bool) -> None:
    for level in (2, 3):
        for found in anchor_tactics(kernel, CpuTarget("avx2", 2), EFFORTS[level]):
            assert (found.template == "winograd") == used
            assert not used or found["size"] == 4
    assert anchor_tactics(kernel, CpuTarget("avx2", 2), EFFORTS[0])[0].template == "conv"


def test_large_tiles_need_few_weights_and_large_outputs() -> None:
    target = CpuTarget("avx512", 2)
    for kernel in (conv(1, 30, 30, (256, 256), (3, 3)), conv(1, 9, 9, (64, 64), (3, 3))):
        assert {t["size"] for t in anchor_tactics(kernel, target, EFFORTS[3])} == {2}


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("kind", EPILOGUES)
def test_epilogue(isa: str, kind: str) -> None:
    kernel = conv(2, 7, 6, (17, 21), (3, 3), pads=(1, 1, 1, 1), kind=kind)
    check(kernel, {}, isa, 9 * 17, level=2)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("size", [2, 4])
def test_one_object_serves_all_sizes(isa: str, size: int) -> None:
    kernel = conv(N, H, W, (20, 35), (3, 3), pads=(1, 0, 2, 1), kind="residual")
    target = CpuTarget(isa, 2)
    lanes = target.vector_bits // 32
    codes = [Compiled(kernel, tactic(size, lanes, rows), target) for rows in (1, 4)]
    for n, h, w in ((1, 1, 2), (2, 9, 5), (1, 5, 17), (0, 4, 4)):
        env = {"n": n, "h": h, "w": w}
        inputs = harness.random_inputs(kernel, env)
        want = harness.run_kernel(kernel, inputs, env, float64=True)[0]
        first = codes[0](inputs, env)
        np.testing.assert_allclose(first, want, rtol=TOLERANCE[size], atol=TOLERANCE[size])
        for workers in (1, 2, 7):
            np.testing.assert_array_equal(codes[1](inputs, env, workers), first)


@pytest.mark.parametrize("isa", host_isas())
def test_equal_images_have_equal_bits(isa: str) -> None:
    kernel = conv(5, 6, 7, (19, 21), (3, 3), pads=(1, 1, 1, 1), kind="exp")
    inputs = harness.random_inputs(kernel, {})
    inputs[0][:] = inputs[0][0]
    for code in variants(kernel, isa, level=3):
        out = code(inputs, {}, 2)
        np.testing.assert_array_equal(out, np.broadcast_to(out[0], out.shape))
