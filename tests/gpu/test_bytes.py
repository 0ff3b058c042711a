"""Products of bytes on the GPU: the same bits as the reference, by every template and library."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from braze.codegen.cuda.driver import find_card
from braze.codegen.cuda.gluon.layout import GluonTile
from braze.codegen.cuda.gluon.pooled import pooled_sources, pooled_tactics
from braze.codegen.cuda.gluon.product import gluon_source
from braze.codegen.cuda.gluon.stem import gluon_stem_sources
from braze.codegen.cuda.gluon.sweep import TILES as SWEEPS
from braze.codegen.cuda.gluon.sweep import sweep_source
from braze.codegen.cuda.gluon.tactics import TILES
from braze.codegen.cuda.gluon.walk import TILES as WALKS
from braze.codegen.cuda.gluon.walk import WalkTile, walk_source
from braze.codegen.cuda.packing import pack_constant
from braze.codegen.cuda.triton.conv import conv_source
from braze.codegen.cuda.triton.lanes import lane_tactics, lanes_source
from braze.codegen.cuda.triton.matmul import matmul_source
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.pooled import plain_source
from braze.codegen.cuda.triton.stem import stem_sources
from braze.codegen.cuda.triton.tile import Tile
from braze.codegen.reference.run import run_kernel
from braze.core.config import EFFORTS
from braze.core.dims import sym
from braze.core.dtypes import F16, F32, I8, U8, DType
from braze.fusion.kernel import AnchorKernel
from tests.codegen.anchors import harness
from tests.codegen.anchors.windows import BOXED, Window
from tests.codegen.cuda.bytes import drawn, quantized
from tests.codegen.cuda.pools import behind, picture, pool
from tests.codegen.cuda.pools import drawn as drawn_pool
from tests.gpu.launching import run

M = sym("m")
CARD = find_card()
pytestmark = pytest.mark.skipif(CARD is None, reason="no GPU")
hopper = pytest.mark.skipif(
    CARD is None or CARD.capability != "sm_90", reason="the Gluon templates are for sm_90"
)
KINDS = ["sums", "bytes", "residual"]
ALONE, TWO = GluonTile(64, 64, 4, 4, 0), GluonTile(64, 64, 4, 8, 2)


def check(kernel: AnchorKernel, sources: tuple[TritonSource, ...], env: dict[str, int]) -> None:
    """Bit for bit, and not all codes are the ends of the range."""
    inputs = drawn(kernel, env)
    (want,) = run_kernel(kernel, inputs, env)
    assert len(np.unique(want)) > 20
    arrays = list(inputs)
    for slot, packing in sources[-1].packings:
        arrays[slot] = pack_constant(arrays[slot], packing)
    (got,), status = run(sources, arrays, [kernel.output], env)
    assert status == 0
    np.testing.assert_array_equal(got, want)


@hopper
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tile", [ALONE, TWO], ids=["alone", "turns"])
def test_rows(kind: str, tile: GluonTile) -> None:
    for rows, columns, depth in ((M, 160, 336), (70, 72, 64), (200, 128, 512)):
        kernel = quantized(harness.matmul((), rows, columns, depth), kind)
        check(kernel, (gluon_source(kernel, tile),), {"m": 77})


@hopper
@pytest.mark.parametrize("depth", [128, 64])
@pytest.mark.parametrize("sizes", TILES)
def test_every_tile(sizes: tuple[int, int, int, int, int], depth: int) -> None:
    plain = harness.conv(M, 14, 13, (64, 96), (3, 3), pads=(1, 1, 1, 1))
    kernel = quantized(plain, "residual")
    tile = replace(GluonTile(*sizes, depth=depth), height=4, width=4)
    check(kernel, (gluon_source(kernel, tile),), {"m": 3})


@hopper
@pytest.mark.parametrize(("size", "window", "box"), BOXED, ids=str)
def test_windows(size: tuple[int, int], window: Window, box: tuple[int, int]) -> None:
    # pairs of pixels must have whole steps of bytes
    channels = (128 if max(window.strides) > 1 else 48, window.channels[1])
    kernel = quantized(replace(window, channels=channels).conv(M, *size), "residual")
    for tile in (ALONE, TWO):
        boxed = replace(tile, height=box[0], width=box[1])
        check(kernel, (gluon_source(kernel, boxed),), {"m": 3})


@hopper
@pytest.mark.parametrize("kind", ["bytes", "residual"])
@pytest.mark.parametrize("sizes", SWEEPS)
def test_sweeps(kind: str, sizes: tuple[int, int, int, int]) -> None:
    """One step and several, tiles of columns that are not whole, rows that are not."""
    for channels, columns, depth in ((64, 256, 64), (112, 328, 128), (320, 264, 128)):
        kernel = quantized(harness.conv(M, 13, 9, (channels, columns), (1, 1)), kind)
        tile = GluonTile(*sizes, consumers=0, depth=depth)
        check(kernel, (sweep_source(kernel, tile),), {"m": 3})
    plain = harness.conv(M, 14, 12, (128, 256), (1, 1), strides=(2, 2))
    tile = GluonTile(*sizes, consumers=0, height=4, width=4)
    check(quantized(plain, kind), (sweep_source(quantized(plain, kind), tile),), {"m": 3})


@hopper
@pytest.mark.parametrize("kind", ["bytes", "residual"])
@pytest.mark.parametrize("tile", WALKS, ids=str)
def test_walks(kind: str, tile: WalkTile) -> None:
    """One step and several, few tiles and many a program, what is not whole of either side."""
    for size, channels, columns, depth in (
        ((13, 9), 64, 256, 64), ((13, 9), 112, 336, 128), ((9, 9), 256, 80, 128),
        ((61, 59), 64, 144, 64), ((97, 91), 48, 64, 64),
    ):  # fmt: skip
        kernel = quantized(harness.conv(M, *size, (channels, columns), (1, 1)), kind)
        check(kernel, (walk_source(kernel, replace(tile, depth=depth)),), {"m": 5})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", [1, 3])
def test_triton(kind: str, split: int) -> None:
    tile = Tile(32, 64, 32, 4, 2, split=split)
    kernel = quantized(harness.matmul((), 70, 72, 144), kind)
    check(kernel, (matmul_source(kernel, tile),), {})
    kernel = quantized(harness.conv(2, 9, 11, (48, 40), (3, 3), pads=(1, 1, 1, 1)), kind)
    check(kernel, (conv_source(kernel, tile),), {})


@pytest.mark.parametrize("kind", KINDS)
def test_stems(kind: str) -> None:
    plain = harness.conv(2, 32, 48, (3, 64), (7, 7), strides=(2, 2), pads=(3, 3, 3, 3))
    kernel = quantized(plain, kind)
    for tile in (Tile(64, 64, 64, 4, 3), Tile(128, 64, 128, 4, 2), Tile(32, 32, 32, 4, 2)):
        check(kernel, stem_sources(kernel, tile), {})


@hopper
@pytest.mark.parametrize("kind", KINDS)
def test_stems_in_gluon(kind: str) -> None:
    plain = harness.conv(2, 32, 48, (3, 64), (7, 7), strides=(2, 2), pads=(3, 3, 3, 3))
    kernel = quantized(plain, kind)
    for tile in (ALONE, TWO):
        boxed = replace(tile, height=4, width=8, depth=64)
        check(kernel, gluon_stem_sources(kernel, boxed), {})


@pytest.mark.parametrize("dtype", [I8, U8, F16, F32], ids=str)
@pytest.mark.parametrize("channels", [64, 20])
def test_pools(dtype: DType, channels: int) -> None:
    kernel, x = pool(dtype, M, channels), drawn_pool(dtype, 5, channels)
    (want,) = run_kernel(kernel, [x], {"m": 5})
    for tactic in lane_tactics(kernel, 9):
        source = lanes_source(kernel, tactic)
        (got,), status = run([source], [x], kernel.outputs, {"m": 5})
        assert status == 0
        np.testing.assert_array_equal(got, want)


@hopper
@pytest.mark.parametrize(("size", "columns", "batch"), [((32, 48), 64, 3), ((112, 64), 128, 5)])
@pytest.mark.parametrize("kind", KINDS)
def test_pools_behind_stems(kind: str, size: tuple[int, int], columns: int, batch: int) -> None:
    """Strips that are not whole tiles, columns that are not, and tiles of channels."""
    kernel = behind(quantized(picture(batch, *size, columns), kind))
    for tactic in pooled_tactics(kernel, EFFORTS[3]):
        check(kernel, pooled_sources(kernel, tactic), {})
    check(kernel, (plain_source(kernel),), {})
