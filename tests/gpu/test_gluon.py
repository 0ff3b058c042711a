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
from braze.codegen.cuda.triton.halves import FORMS
from braze.codegen.reference.run import run_kernel
from braze.core.dims import Dim, sym
from braze.core.dtypes import BF16, F16, F32, DType
from braze.engine.write import write_file
from braze.expr.scalar import cast, hole
from braze.fusion.kernel import AnchorKernel
from braze.ops.pointwise.activation import Activation
from braze.runtime.engine import Engine
from tests.codegen.anchors import harness
from tests.codegen.anchors.windows import (
    BOXED,
    PADDED,
    STRIDED,
    Window,
    among,
    infinite_beside,
)
from tests.codegen.cuda.bounds import bound, kernel_bound
from tests.codegen.cuda.forced import RANGES, forced_plan, two_products
from tests.codegen.cuda.forms import COUNT, check_form, every_value
from tests.codegen.cuda.typed import typed
from tests.gpu.launching import run

M = sym("m")
CARD = find_card()
pytestmark = pytest.mark.skipif(
    CARD is None or CARD.capability != "sm_90", reason="the Gluon templates are for sm_90"
)
KINDS = [k for k in harness.EPILOGUES if k != "exp"]  # which leaves the range of 16-bit floats
ALONE, ONE, TWO, WIDE = (
    GluonTile(64, 64, 4, 4, 0),
    GluonTile(256, 64, 8, 4, 1),
    GluonTile(64, 64, 4, 8, 2),
    GluonTile(128, 192, 4, 5, 2),
)
tiles = pytest.mark.parametrize("tile", [ALONE, TWO], ids=["alone", "turns"])


def name(t: GluonTile) -> str:
    return f"{t.rows}x{t.columns}w{t.warps}s{t.stages}c{t.consumers}"


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
    kernel_bound(kernel, env).check(first[0][0], want)


@tiles
@pytest.mark.parametrize(("turn", "kind"), list(enumerate(KINDS)), ids=KINDS)
def test_epilogues(turn: int, kind: str, tile: GluonTile) -> None:
    rows: Dim = M if turn % 2 else 200
    kernel = typed(harness.matmul((), rows, 160, 328, kind=kind), (F16, BF16)[turn // 2 % 2])
    check(kernel, tile, {"m": 77})


@pytest.mark.parametrize("sizes", TILES, ids=lambda t: name(GluonTile(*t)))
def test_every_tile(sizes: tuple[int, int, int, int, int]) -> None:
    """A window, which has more to it than a product, with partial tiles everywhere."""
    kernel = typed(
        harness.conv(M, 14, 13, (72, 96), (3, 3), pads=(1, 1, 1, 1), kind="residual"), F16
    )
    check(kernel, replace(GluonTile(*sizes), height=4, width=4), {"m": 3})


@pytest.mark.parametrize(
    ("sizes", "turned", "tile"),
    [
        ((1, 64, 8), False, ALONE), ((333, 200, 64), True, TWO), ((128, 20, 40), False, ONE),
        ((700, 512, 640), True, ALONE), ((700, 512, 640), False, TWO),
        ((333, 201, 64), True, TWO), ((70, 77, 72), False, ALONE), ((300, 129, 64), True, ONE),
        ((150, 200001, 64), True, TWO), ((150, 200000, 64), True, ALONE),
        ((1000, 2304, 768), True, WIDE), ((700, 50257, 200), True, WIDE),
        ((4500, 600, 64), False, WIDE),
    ],
)  # fmt: skip
def test_sizes(sizes: tuple[int, int, int], turned: bool, tile: GluonTile) -> None:
    """One row, one step, whole tiles, columns that are no multiple of 16 bytes or of 4, weights
    that no cache holds."""
    check(typed(harness.matmul((), *sizes, turned=turned, kind="residual"), F16), tile, {})


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("op", FORMS, ids=str)
def test_short_forms_round_like_exact_ones(op: Activation, dtype: DType) -> None:
    """Every finite number, times one."""
    x = every_value(dtype)
    finite = np.isfinite(x.astype(np.float32))
    kernel = typed(harness.matmul((), COUNT // 64, 64, 64), dtype)
    value = op.expr(cast(cast(hole(0, F32), dtype), F32))
    kernel = replace(kernel, epilogue=cast(value, dtype))
    one = np.eye(64, dtype=np.float32).astype(dtype.numpy)
    rows = np.where(finite, x, np.zeros_like(x)).reshape(-1, 64)
    source = gluon_source(kernel, TWO)
    ((slot, packing),) = source.packings
    arrays = [rows, pack_constant(one, packing)]
    assert slot == 1
    (got,), status = run([source], arrays, [kernel.output], {})
    assert status == 0
    with np.errstate(all="ignore"):
        elsewhere = op.apply(x.astype(np.float64)).astype(dtype.numpy)
    check_form(op, dtype, True, np.where(finite, got.reshape(-1), elsewhere))


def test_batches_of_rows() -> None:
    check(typed(harness.matmul((3, M), 50, 72, 136, kind="residual"), F16), TWO, {"m": 5})


@tiles
def test_slices_are_read_in_place(tile: GluonTile) -> None:
    """Rows and pixels of a wider tensor, whose other channels are infinite."""
    kernel = typed(harness.matmul((), 70, 64, 72, kind="residual"), F16)
    sliced(among(kernel, 16, 128), slice(16, 88), tile)
    for window in (PADDED, STRIDED):
        kernel = typed(replace(window, channels=(64, 40)).conv(2, 14, 10, "residual"), F16)
        sliced(among(kernel, 24, 104), slice(24, 88), replace(tile, height=2, width=4))


def sliced(kernel: AnchorKernel, channels: slice, tile: GluonTile) -> None:
    """What lies beside the slice changes nothing, and it is right."""
    inputs = harness.random_inputs(kernel, {})
    (want,) = run_kernel(kernel, inputs, {})
    inputs[0] = infinite_beside(inputs[0], channels)
    source = gluon_source(kernel, tile)
    for slot, packing in source.packings:
        inputs[slot] = pack_constant(inputs[slot], packing)
    (got,), _ = run([source], inputs, [kernel.output], {})
    kernel_bound(kernel, {}).check(got, want)


@pytest.mark.parametrize("kind", ["residual", "rows"])
def test_pixels(kind: str) -> None:
    check(typed(harness.conv(M, 13, 9, (72, 144), (1, 1), kind=kind), F16), ONE, {"m": 3})


@pytest.mark.parametrize(("size", "window", "box"), BOXED, ids=str)
def test_windows(size: tuple[int, int], window: Window, box: tuple[int, int]) -> None:
    kernel = window.conv(M, *size, "residual")
    for tile in (ALONE, TWO):
        check(typed(kernel, F16), replace(tile, height=box[0], width=box[1]), {"m": 3})


def test_images_of_any_size() -> None:
    kernel = harness.conv(M, sym("h"), sym("w"), (64, 64), (3, 3), pads=(1, 1, 1, 1), kind="middle")
    check(typed(kernel, F16), replace(TWO, height=8, width=8), {"m": 3, "h": 11, "w": 17})


@pytest.mark.parametrize("turn", [0, 5])
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
        want = reference({"x": x})["y"]
        for context in contexts:
            # the 160 values between the products, about 0.4 each, are rounded; weights are 0.1
            bound(F16, 160, inner=6.4).check(context.run({"x": x})["y"], want)
