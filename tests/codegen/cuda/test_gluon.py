"""Products in Gluon: which are taken, how weights lie, and that every form compiles for sm_90.

Gluon is not interpreted: tests/gpu/test_gluon.py has the results.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.gluon.layout import GluonTile, gluon_tactic, gluon_tile, spread_order
from braze.codegen.cuda.gluon.product import gluon_source, is_ragged
from braze.codegen.cuda.gluon.shapes import Rows, Windows, product_shape
from braze.codegen.cuda.gluon.tactics import TILES, boxed, gluon_tactics
from braze.codegen.cuda.packing import pack_constant, pack_rows
from braze.codegen.cuda.target import CudaTarget
from braze.core.config import EFFORTS
from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32, DType
from braze.engine.read import read_file
from braze.engine.steps import Launch
from braze.engine.write import write_file
from braze.fusion.kernel import AnchorKernel, Packing
from braze.ops.lowering import MatmulSpec
from tests.codegen.anchors import harness
from tests.codegen.cuda.forced import forced_plan
from tests.codegen.cuda.typed import typed

pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")
M = sym("m")
ALONE, TURNS = GluonTile(64, 64, 4, 4, 0), GluonTile(128, 64, 4, 4, 2)
SHARED = CudaTarget("sm_90", 1).shared_bytes


def half(kernel: AnchorKernel) -> AnchorKernel:
    return typed(kernel, F16)


def forms() -> list[tuple[str, AnchorKernel, GluonTile]]:
    """Epilogues, sizes that are known or not, pixels and windows, each by one kind of tile."""
    found = []
    for i, kind in enumerate(harness.EPILOGUES):
        kernel = half(harness.matmul((), M if i % 2 else 200, 160, 328, kind=kind))
        found.append((f"{kind}-{i % 2}", kernel, (ALONE, TURNS)[i // 2 % 2]))
    pixels = half(harness.conv(M, 13, 9, (72, 144), (1, 1), kind="residual"))
    found.append(("pixels", pixels, GluonTile(256, 64, 8, 4, 1)))
    rows = half(harness.matmul((3, M), 50, 64, 136, kind="middle"))
    found.append(("batches", rows, ALONE))
    found.append(("bfloat16", typed(harness.matmul((), 64, 64, 64, kind="relu"), BF16), TURNS))
    three = half(harness.matmul((), M, 200, 72, kind="residual"))  # columns are 128 and 64
    biased = half(harness.matmul((), M, 200, 72, kind="bias"))
    found += [
        ("192", three, GluonTile(64, 192, 4, 4, 2)),
        ("192-alone", three, GluonTile(128, 192, 8, 4, 0)),
        ("192-wide", biased, GluonTile(128, 192, 4, 5, 2)),
    ]
    ragged = half(harness.matmul((), M, 163, 72, kind="residual"))
    found += [("ragged", ragged, TURNS), ("ragged-alone", ragged, ALONE)]
    for stride in (1, 2):
        window = harness.conv(
            M, 14, 14, (64, 64), (3, 3), strides=(stride, stride), pads=(1, 1, 1, 1), kind="relu"
        )
        box = replace((ALONE, TURNS)[stride - 1], height=2, width=4)
        found.append((f"window-{stride}", half(window), box))
    return found


@pytest.mark.parametrize(("name", "kernel", "tile"), forms(), ids=[f[0] for f in forms()])
def test_forms_compile_and_copy_boxes_as_triton_does(
    name: str, kernel: AnchorKernel, tile: GluonTile
) -> None:
    from braze.codegen.cuda.triton.cubin import compile_source

    source = gluon_source(kernel, tile)
    meta = compile_source(source, 90).metadata
    expected = [(m.swizzle, list(m.box), m.dtype.itemsize) for m in source.maps]
    described = meta.tensordesc_meta
    assert [(d["swizzle"], d["block_size"], d["elem_size"]) for d in described] == expected
    assert meta.global_scratch_size == 0
    assert meta.num_warps == (tile.warps if not tile.consumers else 4 * (1 + 2))


@pytest.mark.parametrize(
    ("tile", "columns"),
    [*((t, 257) for t in TILES if t[1] >= 64), (TILES[0], 256), (TILES[1], 256)],
)
def test_tiles_fit_the_card(tile: tuple[int, ...], columns: int) -> None:
    """Ragged rows are laid out anew before they are stored: no others need more memory."""
    from braze.codegen.cuda.triton.cubin import compile_cubin

    kernel = half(harness.matmul((), 4096, columns, 256))
    cubin = compile_cubin(gluon_source(kernel, GluonTile(*tile)), 90)
    assert cubin.shared <= SHARED


def test_what_is_larger_than_a_cache_is_read_once() -> None:
    """Neighbouring tiles share columns of a large weight, and rows beside a small one."""
    for columns, order in ((768, "tile % 6"), (50257, "tile // 32")):
        kernel = half(harness.matmul((), 4096, columns, 768, turned=True))
        text = gluon_source(kernel, GluonTile(128, 128, 4, 4, 2)).text
        assert text.count(f"column_tile = {order}\n") == 2


def test_the_turn_is_handed_on_under_the_last_products() -> None:
    """The tensor cores then have work while the other group gets ready; places in shared memory
    are given back behind them."""
    text = gluon_source(PRODUCT, TURNS).text
    turn, place = "mbarrier.arrive(turn.index(1 - me))", "mbarrier.arrive(empty.index(last))"
    loop, drain = "mbarrier.arrive(empty.index(before)", "warpgroup_mma_wait(0"
    assert text.index(loop) < text.index(turn) < text.index(drain) < text.index(place)
    assert "turn.index(1 - me)" not in gluon_source(PRODUCT, replace(TURNS, consumers=1)).text


def test_wide_tiles_leave_residuals_out() -> None:
    """Beside 192 sums a thread has no registers for what it reads ahead."""
    wide = gluon_tactic(GluonTile(128, 192, 4, 5, 2))
    for kind, offered in (("none", True), ("bias", True), ("residual", False), ("rows", True)):
        kernel = half(harness.matmul((), 4096, 768, 768, kind=kind))
        assert (wide in gluon_tactics(kernel, SHARED, EFFORTS[3])) is offered


def test_ragged_rows_are_stored_along_rows() -> None:
    for columns, ragged in ((50257, True), (50258, False), (1000, False)):
        kernel = half(harness.matmul((), 64, columns, 64))
        assert is_ragged(kernel) is ragged
        assert ("convert_layout(t" in gluon_source(kernel, ALONE).text) is ragged


def test_weights_stand_in_the_order_of_the_registers() -> None:
    for block in (64, 128, 256):
        order = spread_order(block)
        assert sorted(order) == list(range(block))
        # thread q of four has columns 8j + 2q and 8j + 2q + 1: of every 32, for it neighbours
        for q in range(4):
            own = [8 * j + 2 * q + e for j in range(block // 8) for e in (0, 1)]
            runs = order[own].reshape(-1, 8)
            assert (runs == runs[:, :1] + np.arange(8)).all()
            assert list(runs[:, 0]) == list(range(8 * q, block, 32))
    weight = np.random.default_rng(0).standard_normal((70, 40, 3, 1)).astype(np.float32)
    packed = pack_rows(weight, 64, 32).reshape(2, 64, 3, 64)
    back = np.empty_like(packed)
    back[:, spread_order(64)] = packed
    flat = back.reshape(128, 3, 64)
    np.testing.assert_array_equal(flat[:70, :, :40], np.moveaxis(weight[..., 0], 1, 2))
    assert not flat[70:].any() and not flat[:, :, 40:].any()
    turned, plain = (
        Packing("rows", F32, (("block", 64), ("depth", 32), ("turned", n), ("run", 8),
                              ("joined", 1)))
        for n in (1, 0)
    )  # fmt: skip
    matrix = weight[..., 0, 0]
    np.testing.assert_array_equal(pack_constant(matrix, plain), pack_constant(matrix.T, turned))


def test_tactics_are_their_tiles() -> None:
    for tile in (ALONE, TURNS, replace(ALONE, height=8, width=4)):
        assert gluon_tile(gluon_tactic(tile)) == tile


def changed(kernel: AnchorKernel, **fields: object) -> AnchorKernel:
    assert isinstance(kernel.spec, MatmulSpec)
    return replace(kernel, spec=replace(kernel.spec, **fields))  # type: ignore[arg-type]


PRODUCT = half(harness.matmul((), 32, 48, 64, kind="bias"))
assert isinstance(PRODUCT.spec, MatmulSpec)
LEFT = PRODUCT.spec.lhs
NEAR = [
    ("operands", harness.matmul((), 32, 48, 64)),
    (f"{1 << 31} rows", half(harness.matmul((), 1 << 31, 48, 64))),
    ("not constant", half(harness.matmul((), 32, 48, 64, constant=False))),
    ("one matrix", half(harness.matmul((2,), 32, 48, 64, shared=False))),
    ("16 bytes", half(harness.matmul((), 32, 48, 60))),
    ("columns or a depth", half(harness.matmul((), 32, 48, M))),
    ("not contiguous", changed(PRODUCT, lhs=replace(LEFT, strides=(1, 32)))),
    ("16 bytes", changed(PRODUCT, lhs=replace(LEFT, offset=4))),
    ("not contiguous", changed(PRODUCT, lhs=replace(LEFT, offset=M * 8))),
    ("evenly spaced", changed(PRODUCT, lhs=replace(LEFT, strides=(32, 1)))),
    ("groups", half(harness.conv(1, 8, 8, (64, 64), (3, 3), groups=2))),
    ("16 bytes", half(harness.conv(1, 8, 8, (12, 64), (1, 1)))),
    ("a stride", half(harness.conv(1, 9, 8, (64, 64), (3, 3), strides=(2, 2)))),
    ("a stride", half(harness.conv(1, 9, 9, (64, 64), (3, 3), strides=(3, 3)))),
    ("a stride", half(harness.conv(1, M, 8, (64, 64), (3, 3), strides=(2, 1)))),
    ("no whole steps", half(harness.conv(1, 8, 8, (40, 64), (3, 3), strides=(1, 2)))),
]


@pytest.mark.parametrize(("reason", "kernel"), NEAR)
def test_near_misses(reason: str, kernel: AnchorKernel) -> None:
    assert reason in str(product_shape(kernel))
    assert gluon_tactics(kernel, SHARED, EFFORTS[5]) == ()


def test_what_is_taken() -> None:
    assert isinstance(product_shape(PRODUCT), Rows)
    assert isinstance(product_shape(half(harness.conv(1, 8, 8, (40, 64), (1, 1)))), Rows)
    padded = half(harness.conv(1, 8, 8, (64, 64), (1, 1), pads=(1, 0, 0, 0)))
    assert isinstance(product_shape(padded), Windows)
    wide = changed(PRODUCT, lhs=replace(LEFT, strides=(128, 1)))  # rows of a wider matrix
    assert product_shape(wide) == Rows((32,), 48, 64, 128, 0, True)
    later = changed(PRODUCT, lhs=replace(LEFT, strides=(128, 1), offset=16))
    assert product_shape(later) == Rows((32,), 48, 64, 128, 16, True)


@pytest.mark.parametrize(("side", "expected"), [(56, 8), (28, 4), (14, 2), (7, 1)])
def test_boxes_waste_nothing_where_they_can(side: int, expected: int) -> None:
    shape = product_shape(half(harness.conv(128, side, side, (64, 64), (3, 3), pads=(1,) * 4)))
    assert isinstance(shape, Windows)
    best = boxed(GluonTile(128, 64, 4, 4, 2), shape)
    assert side % best.height == side % best.width == 0
    assert max(best.height, best.width) >= expected


@pytest.mark.parametrize(("dtype", "capability"), [(F16, "sm_90"), (F16, "sm_80"), (F32, "sm_90")])
def test_only_hopper_has_them(dtype: DType, capability: str) -> None:
    kernel = typed(harness.matmul((), 4096, 256, 256, kind="residual"), dtype)
    tactics = CudaBackend(CudaTarget(capability, 1)).tactics(kernel, EFFORTS[3])
    has = any(t.template == "gluon" for t in tactics)
    assert has == (dtype is F16 and capability == "sm_90")


@pytest.mark.parametrize("level", [1, 2, 4])
@pytest.mark.parametrize("batch", [1, 32])
def test_large_ones_are_the_best_guess(batch: int, level: int) -> None:
    kernel = half(harness.conv(batch, 14, 14, (256, 256), (3, 3), pads=(1, 1, 1, 1)))
    first = CudaBackend(CudaTarget("sm_90", 1)).tactics(kernel, EFFORTS[level])[0]
    assert (first.template == "gluon") == (batch == 32 and level > 1)


def test_an_engine_keeps_its_maps(tmp_path: Path) -> None:
    plan = forced_plan("gluon")
    for step in plan.steps:
        assert isinstance(step, Launch)
        left, right = step.maps
        assert [plan.sizes[i].op for i in left.shape] == ["sym", "const"]
        assert all(plan.sizes[i].op == "const" for i in (*right.shape, *left.strides))
        assert left.dtype is right.dtype is F16
    write_file(plan, tmp_path / "net.engine")
    assert read_file(tmp_path / "net.engine").steps == plan.steps
