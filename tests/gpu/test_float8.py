"""Products of 8-bit floats on the GPU, against sums in float32.

Tensor cores of Hopper align the products of a step to the largest and keep 14 bits of it: a sum of
products of normal values is off by up to 2**-13 of the largest of each 32, which add up like a
random walk. Programs of Triton multiply them as float16, with sums as those of float16.
"""

from __future__ import annotations

import numpy as np
import pytest

from braze.codegen.cuda.driver import find_card
from braze.codegen.cuda.gluon.layout import GluonTile
from braze.codegen.cuda.gluon.product import gluon_source
from braze.codegen.cuda.packing import pack_constant
from braze.codegen.cuda.triton.matmul import matmul_source
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.tile import Tile
from braze.codegen.reference.run import run_kernel
from braze.core.dims import sym
from braze.core.dtypes import F8E4M3FN, F8E5M2, DType
from braze.fusion.kernel import AnchorKernel
from tests.codegen.anchors import harness
from tests.codegen.cuda.bytes import SCALE, drawn_floats, float8
from tests.gpu.launching import run

M = sym("m")
CARD = find_card()
pytestmark = pytest.mark.skipif(
    CARD is None or CARD.capability != "sm_90", reason="8-bit floats are tested on sm_90"
)
TILES = [
    GluonTile(64, 128, 4, 3, 0), GluonTile(128, 128, 8, 4, 1), GluonTile(64, 128, 4, 6, 2),
    GluonTile(128, 64, 4, 4, 0, lift=1), GluonTile(64, 192, 4, 6, 2),
]  # fmt: skip
LARGEST = 12.0  # product of normal values among some thousand


def check(kernel: AnchorKernel, source: TritonSource, depth: int, bits: int) -> None:
    """The sums, and that two runs have the same bits."""
    inputs = drawn_floats(kernel, {"m": 77})
    (want,) = run_kernel(kernel, inputs, {"m": 77})
    arrays = list(inputs)
    for slot, packing in source.packings:
        arrays[slot] = pack_constant(arrays[slot], packing)
    (got,), status = run([source], arrays, [kernel.output], {"m": 77})
    (again,), _ = run([source], arrays, [kernel.output], {"m": 77})
    assert status == 0
    np.testing.assert_array_equal(got.view(np.uint8), again.view(np.uint8))
    got, want = got.astype("f8"), want.astype("f8")
    bound = LARGEST * 2.0**-bits * (depth / 32) ** 0.5 + 1e-4
    if kernel.output.dtype is F8E4M3FN:  # the code beside, where a sum lies between two
        off = np.abs(got - want) > 0.13 * np.abs(want) + 4 * bound / SCALE
        assert not off.any() and (got == want).mean() > 0.95
        return
    relative = 2e-3 if kernel.output.dtype.itemsize == 2 else 1e-5
    np.testing.assert_allclose(got, want, rtol=relative, atol=4 * bound)


@pytest.mark.parametrize("element", [F8E4M3FN, F8E5M2], ids=str)
@pytest.mark.parametrize("kind", ["sums", "codes", "halves"])
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_gluon(kind: str, tile: GluonTile, element: DType) -> None:
    for rows, columns, depth in ((M, 160, 336), (200, 128, 768)):
        kernel = float8(harness.matmul((), rows, columns, depth), kind, element)
        check(kernel, gluon_source(kernel, tile), depth, 12)


@pytest.mark.parametrize("element", [F8E4M3FN, F8E5M2], ids=str)
@pytest.mark.parametrize("kind", ["sums", "codes", "halves"])
@pytest.mark.parametrize("split", [1, 2])
def test_triton(kind: str, split: int, element: DType) -> None:
    kernel = float8(harness.matmul((), 70, 72, 144), kind, element)
    for tile in (Tile(16, 32, 32, 4, 2, split=split), Tile(64, 64, 64, 4, 3, split=split)):
        check(kernel, matmul_source(kernel, tile), 144, 20)
