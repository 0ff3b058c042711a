"""Machine code of convolutions reads the elements that its windows see, and no other ones."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.target import CudaTarget
from braze.core.config import EFFORTS
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import ConvSpec
from tests.codegen.anchors import harness

pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")
from tests.codegen.cuda.machine import Machine, base, disassembled, nvdisasm

pytestmark = pytest.mark.skipif(not nvdisasm().exists(), reason="this Triton has no nvdisasm")
PROGRAMS = 4  # of a kernel are run: the first ones, whose windows begin before the image


def dilated(
    image: tuple[int, int, int], channels: tuple[int, int], taps: tuple[int, ...],
    strides: tuple[int, ...], pads: tuple[int, ...], dilations: tuple[int, ...],
) -> AnchorKernel:  # fmt: skip
    """A convolution over three axes of one image, whose output may have no elements."""
    kernel = harness.conv3d(1, image, channels, taps, strides, pads)
    reach = [(t - 1) * d + 1 for t, d in zip(taps, dilations, strict=True)]
    sides = zip(image, pads[:3], pads[3:], reach, strides, strict=True)
    out = tuple(max(0, (x + a + z - r) // s + 1) for x, a, z, r, s in sides)
    spec = replace(kernel.spec, dilations=dilations, out_spatial=out)
    return replace(kernel, spec=spec, output=replace(kernel.output, shape=(1, *out, channels[1])))


def drawn(seed: int) -> AnchorKernel:
    r = random.Random(seed)
    image = (r.choice([7, 8]), r.choice([9, 20]), r.choice([5, 6]))
    taps, dilations = (tuple(r.choices(c, k=3)) for c in ([1, 2, 3, 5], [1, 1, 2, 3]))
    strides, pads = tuple(r.choices([1, 1, 2], k=3)), tuple(r.choices([0, 1, 2], k=6))
    channels = (r.choice([3, 5, 6]), r.choice([2, 8, 16]))
    return dilated(image, channels, taps, strides, pads, dilations)


def seen(spec: ConvSpec, pixels: range) -> set[int]:
    """Elements of the image within the windows of some outputs."""
    found = set()
    height, width, depth = (int(s) for s in spec.in_spatial)
    out = [int(s) for s in spec.out_spatial]
    for pixel in pixels:
        at = (pixel // out[2] // out[1], pixel // out[2] % out[1], pixel % out[2])
        for tap in itertools.product(*map(range, spec.kernel)):
            z, y, x = (
                p * s - a + t * d
                for p, s, a, t, d in zip(
                    at, spec.strides, spec.pads, tap, spec.dilations, strict=False
                )
            )
            if 0 <= z < height and 0 <= y < width and 0 <= x < depth:
                first = ((z * width + y) * depth + x) * spec.in_channels
                found.update(range(first, first + spec.in_channels))
    return found


def check_reads(kernel: AnchorKernel, rows: int) -> None:
    """By tiles of so many rows, which are not split; nothing where there are none."""
    from braze.codegen.cuda.triton.cubin import code_of, compile_source

    assert isinstance(kernel.spec, ConvSpec)
    backend = CudaBackend(CudaTarget("sm_90", 1))
    tactics = backend.tactics(kernel, EFFORTS[3])
    of_rows = [t for t in tactics if {"rows": rows}.items() <= dict(t.parameters).items()]
    whole = [t for t in of_rows if t.template == "conv" and dict(t.parameters).get("split", 1) == 1]
    if not whole:
        pytest.skip("no such tile")
    source = backend.sources(kernel, whole[0])[0]
    compiled = compile_source(source, 90)
    code = disassembled(code_of(source, 90, compiled))
    total = int(np.prod([int(s) for s in kernel.spec.out_spatial]))
    for place in range(min(-(-total // rows), PROGRAMS)):
        read = Machine(code, 32 * compiled.metadata.num_warps, place).run()
        of_image = {(a - base(0)) // 4 for a in read if base(0) <= a < base(1)}
        assert of_image == seen(kernel.spec, range(place * rows, min(total, (place + 1) * rows)))


def test_a_factor_below_zero_beside_another_index() -> None:
    """Whose product Triton 3.6 adds to it (`with_cut_products`)."""
    kernel = dilated((7, 20, 6), (3, 2), (5, 3, 5), (1, 1, 1), (1, 0, 2, 1, 0, 2), (1, 2, 1))
    check_reads(kernel, 16)


@pytest.mark.parametrize("rows", [16, 32, 64])
@pytest.mark.parametrize("seed", range(6))
def test_dilated_windows(seed: int, rows: int) -> None:
    kernel = drawn(seed)
    if 0 in kernel.output.shape or np.prod(kernel.spec.kernel) == 1:
        pytest.skip("no window")
    check_reads(kernel, rows)
