"""Products in Gluon on the GPU, at sizes that leave partial tiles, against numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import braze
from braze.codegen.cuda.driver import find_card
from braze.codegen.cuda.gluon.layout import GluonTile
from braze.codegen.cuda.gluon.product import gluon_source
from braze.codegen.cuda.gluon.tactics import TILES
from braze.codegen.cuda.packing import pack_constant
from braze.codegen.reference.run import run_kernel
from braze.core.dims import Dim, sym
from braze.core.dtypes import BF16, F16, DType
from braze.engine.write import write_file
from braze.fusion.kernel import AnchorKernel
from braze.runtime.engine import Engine
from tests.codegen.anchors import harness
from tests.codegen.cuda.forced import RANGES, forced_plan, two_products
from tests.codegen.cuda.typed import typed
from tests.gpu.launching import run

M = sym("m")
CARD = find_card()
pytestmark = pytest.mark.skipif(
    CARD is None or CARD.capability != "sm_90", reason="the Gluon templates are for sm_90"
)
KINDS = [k for k in harness.EPILOGUES if k != "exp"]  # which leaves the range of 16-bit floats
# a few roundings of the element type on sums of up to 700 normal values
TOLERANCE = {F16: 3e-2, BF16: 2e-1}


def name(t: GluonTile) -> str:
    return f"{t.rows}x{t.columns}w{t.warps}s{t.stages}c{t.consumers}"


tiles = pytest.mark.parametrize("tile", [GluonTile(*t) for t in TILES], ids=name)


def check(kernel: AnchorKernel, tile: GluonTile, env: dict[str, int]) -> None:
    """The kernel is right and gives the same bits twice."""
    inputs = harness.random_inputs(kernel, env)
    (want,) = run_kernel(kernel, inputs, env)
    source = gluon_source(kernel, tile)
    arrays = list(inputs)
    for slot, packing in source.packings:
        arrays[slot] = pack_constant(arrays[slot], packing)
    first, second = (run([source], arrays, [kernel.output], env) for _ in range(2))
    assert first[1] == 0
    np.testing.assert_array_equal(first[0][0], second[0][0])
    tolerance = TOLERANCE[kernel.output.dtype]
    np.testing.assert_allclose(
        first[0][0].astype("f8"), want.astype("f8"), rtol=tolerance, atol=tolerance
    )


@tiles
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [M, 200])
def test_products(rows: Dim, kind: str, dtype: DType, tile: GluonTile) -> None:
    kernel = typed(harness.matmul((), rows, 160, 328, kind=kind), dtype)
    check(kernel, tile, {"m": 77})


@tiles
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", [(1, 64, 8), (333, 200, 64), (128, 20, 40), (700, 512, 640)])
def test_sizes(sizes: tuple[int, int, int], turned: bool, tile: GluonTile) -> None:
    """One row, one step, whole tiles, columns that are no multiple of 16 bytes."""
    kernel = typed(harness.matmul((), *sizes, turned=turned, kind="residual"), F16)
    check(kernel, tile, {})


@tiles
def test_batches_of_rows(tile: GluonTile) -> None:
    kernel = typed(harness.matmul((3, M), 50, 72, 136, kind="residual"), F16)
    check(kernel, tile, {"m": 5})


@tiles
@pytest.mark.parametrize("kind", ["residual", "rows", "middle"])
def test_pixels(kind: str, tile: GluonTile) -> None:
    kernel = typed(harness.conv(M, 13, 9, (72, 144), (1, 1), kind=kind), F16)
    check(kernel, tile, {"m": 3})


def boxes_of(tile: GluonTile) -> list[GluonTile]:
    """The tile with three kinds of boxes: of one image, of several, of lines."""
    found = [(8, 8), (2, 2), (1, 16)]
    return [replace(tile, height=h, width=w) for h, w in found]


@tiles
@pytest.mark.parametrize(
    ("size", "channels", "window", "strides", "dilations", "pads"),
    [
        ((14, 14), (72, 96), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        ((9, 13), (64, 72), (3, 2), (1, 1), (2, 1), (2, 0, 1, 1)),
        ((14, 10), (64, 64), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
        ((14, 10), (128, 64), (1, 1), (2, 2), (1, 1), (0, 0, 0, 0)),
        ((12, 9), (40, 64), (5, 3), (2, 1), (1, 1), (2, 1, 1, 0)),
        ((7, 12), (64, 40), (2, 4), (1, 2), (1, 1), (0, 1, 0, 1)),
    ],
)
def test_windows(
    size: tuple[int, int],
    channels: tuple[int, int],
    window: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, int, int, int],
    tile: GluonTile,
) -> None:
    kernel = harness.conv(
        M, *size, channels, window,
        strides=strides, dilations=dilations, pads=pads, kind="residual",
    )  # fmt: skip
    for box in boxes_of(tile):
        check(typed(kernel, F16), box, {"m": 3})


@tiles
def test_images_of_any_size(tile: GluonTile) -> None:
    kernel = harness.conv(
        M, sym("h"), sym("w"), (64, 64), (3, 3), pads=(1, 1, 1, 1), kind="middle"
    )
    check(typed(kernel, F16), boxes_of(tile)[0], {"m": 3, "h": 11, "w": 17})


@pytest.mark.parametrize("turn", range(0, len(TILES), 3))
def test_engines_place_their_maps(turn: int, tmp_path: Path) -> None:
    """Shapes of every size, in two contexts, one of an engine from a file."""
    plan = forced_plan("gluon", turn)
    engine = Engine.from_plan(plan)
    write_file(plan, tmp_path / "net.engine")
    loaded = Engine.load(tmp_path / "net.engine")
    reference = braze.build(two_products(), target="reference", shapes=RANGES)
    contexts = [engine.create_context(), loaded.create_context()]
    for rows in (1, 300, 77, 128, 1):
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float16)
        want = reference({"x": x})["y"].astype("f8")
        for context in contexts:
            got = context.run({"x": x})["y"].astype("f8")
            np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)
