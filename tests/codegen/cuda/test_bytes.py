"""Products of bytes on GPUs: conversions in their epilogues, and cubins of the Gluon forms.

interpreted.py has the results of Triton's templates, tests/gpu/test_bytes.py those on a card.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from braze.codegen.cuda.gluon.layout import (
    GluonTile,
    gluon_tactic,
    gluon_tile,
    spread_order,
)
from braze.codegen.cuda.gluon.product import gluon_source
from braze.codegen.cuda.gluon.shapes import product_shape
from braze.codegen.cuda.gluon.stem import gluon_stem_sources
from braze.codegen.cuda.gluon.sweep import sweep_source, sweep_tactics
from braze.codegen.cuda.gluon.tactics import gluon_tactics
from braze.codegen.cuda.gluon.walk import (
    WalkTile,
    residual_of,
    walk_source,
    walk_tactics,
    walk_tile,
)
from braze.codegen.cuda.packing import fold_window, pack_constant
from braze.codegen.cuda.target import CudaTarget
from braze.codegen.cuda.triton.bytes import byte_forms, inverse
from braze.codegen.cuda.triton.stem import folded_kernel
from braze.core.config import EFFORTS
from braze.core.dtypes import F8E4M3FN, F8E5M2, F16, F32, I8, I32, U8
from braze.expr.loops import TensorSpec
from braze.expr.scalar import binary, cast, const, load, unary
from braze.ops.quant.linear import saturated
from braze.ops.writing.minifloat import encode
from tests.codegen.anchors import harness
from tests.codegen.cuda.bytes import quantized
from tests.codegen.cuda.typed import typed

SHARED = CudaTarget("sm_90", 1).shared_bytes


@pytest.mark.parametrize("ends", [(-128, 127), (0, 255)])
def test_inverses_round_as_quotients_do(ends: tuple[int, int]) -> None:
    """Near every code's ends, which `inverse` has looked at, and anywhere else."""
    rng = np.random.default_rng(0)
    found, halves = 0, tuple(n + 0.5 for n in range(ends[0] - 1, ends[1] + 1))
    for scale in (*rng.uniform(1e-3, 1, 200).astype(np.float32), np.float32(0.25)):
        parts = inverse(float(scale), halves)
        if parts is None:
            continue
        found += 1
        x = (rng.uniform(ends[0], ends[1], 20000) * scale).astype(np.float32)
        x = np.concatenate([x, (np.arange(ends[0], ends[1]) + 0.5).astype(np.float32) * scale])
        first, second = (np.float32(p) for p in parts)
        # the sum of the exact product and a float32 has few enough bits for float64
        got = x.astype("f8") * float(first) + (x * second).astype("f8")
        want = np.rint(x / scale)
        np.testing.assert_array_equal(np.rint(got.astype(np.float32)), want, str(scale))
    assert found > 150  # few scales have a quotient that the parts would miss


def test_which_scales_have_no_inverse() -> None:
    for scale in (2.0**-70, 0.0, -0.5, float("nan")):
        assert inverse(scale, (0.5, 1.5)) is None
    assert inverse(0.25, (0.5, 1.5)) == (4.0, 0.0)


def test_which_conversions_take_the_forms() -> None:
    x = load(0, (), F32)
    q = unary("round", binary("div", x, const(0.5, F32)))
    code = saturated(q, I8, 8)
    assert byte_forms([code])[code][1] == x
    by_data = saturated(unary("round", binary("div", x, load(1, (), F32))), I8, 8)
    assert byte_forms([by_data])[by_data][1] == by_data.args[0].args[1].args[1].args[0]
    for other in (cast(q, I8), saturated(q, I8, 4), saturated(x, U8, 8)):
        assert other not in byte_forms([other])
    byte = cast(load(0, (), I8), F32)
    assert byte in byte_forms([byte])
    for wide in (cast(load(0, (), I32), F32), cast(load(0, (), U8), F32)):
        assert wide not in byte_forms([wide])
    code = encode(binary("div", x, const(0.7, F32)), F8E4M3FN, True)
    assert byte_forms([code])[code][1] == x
    for other in (encode(x, F8E4M3FN, False), encode(x, F8E5M2, True)):
        assert other not in byte_forms([other])


@pytest.mark.parametrize("run", [8, 16])
def test_weights_stand_in_the_order_of_the_registers(run: int) -> None:
    order = spread_order(128, run)
    assert sorted(order) == list(range(128))
    for q in range(4):
        own = [8 * j + 2 * q + e for j in range(16) for e in (0, 1)]
        runs = order[own].reshape(-1, run)
        assert (runs == runs[:, :1] + np.arange(run)).all()
        assert list(runs[:, 0]) == list(range(run * q, 128, 4 * run))


FORMS = [
    ("sums", GluonTile(64, 64, 4, 4, 0)), ("bytes", GluonTile(128, 64, 4, 4, 2)),
    ("residual", GluonTile(128, 256, 8, 4, 1)), ("residual", GluonTile(64, 192, 4, 6, 2)),
    ("residual", GluonTile(64, 32, 4, 4, 0)), ("bytes", GluonTile(128, 64, 4, 4, 0, 4, 4, 64)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "tile"), FORMS)
def test_forms_compile(kind: str, tile: GluonTile) -> None:
    from braze.codegen.cuda.triton.cubin import compile_source

    pytest.importorskip("triton", reason="triton is not installed: pip install braze[cuda]")
    kernel = quantized(harness.matmul((), 200, 160, 320), kind)
    if tile.height > 1:
        kernel = quantized(harness.conv(2, 9, 9, (64, 96), (3, 3), pads=(1,) * 4), kind)
    done = compile_source(gluon_source(kernel, tile), 90)
    assert done.metadata.shared <= SHARED
    assert "wgmma.mma_async.sync.aligned" in done.asm["ptx"] and ".s32.s8.s8" in done.asm["ptx"]
    # 16 codes of a thread are one store
    assert ("st.global.v4" in done.asm["ptx"]) or kind == "sums" or tile.columns == 32


@pytest.mark.parametrize("tile", [GluonTile(64, 64, 4, 4, 0), GluonTile(128, 64, 4, 4, 2)])
def test_stems_compile(tile: GluonTile) -> None:
    """The product copies boxes of what the launch before it has folded."""
    from braze.codegen.cuda.triton.cubin import compile_cubin

    pytest.importorskip("triton", reason="triton is not installed: pip install braze[cuda]")
    plain = harness.conv(2, 32, 48, (3, 64), (7, 7), strides=(2, 2), pads=(3, 3, 3, 3))
    kernel = quantized(plain)
    boxed = replace(tile, height=4, width=8, depth=64)
    first, second = gluon_stem_sources(kernel, boxed)
    for source in (first, second):
        assert compile_cubin(source, 90).entry == source.entry
    assert first.scratch_bytes == second.scratch_bytes == 2 * 19 * 27 * 16
    assert [m.buffer for m in second.maps] == [len(kernel.inputs) + 1, 1]
    assert [name for name, _ in first.pointers][-2] == "scratch"
    assert [name for name, _ in second.pointers][-2] == "in0"
    folded = folded_kernel(kernel)
    weight = np.random.default_rng(0).integers(-128, 128, (64, 3, 7, 7)).astype(np.int8)
    ((slot, packing),) = second.packings
    assert (slot, first.packings, folded is None) == (1, second.packings, False)
    ((_, rows),) = gluon_source(folded, boxed).packings
    whole = fold_window(weight)
    np.testing.assert_array_equal(pack_constant(weight, packing), pack_constant(whole, rows))
    # taps along a line are channels: [block][line of the window][tap, channel]
    back = np.empty((64, 4, 64), np.int8)
    back[spread_order(64, 16)] = pack_constant(weight, packing).reshape(64, 4, 64)
    np.testing.assert_array_equal(back.reshape(64, 4, 4, 16), whole.transpose(0, 2, 3, 1))


SWEEPS = [
    ((128, 64, 4, 3), (56, 56, 64, 256), 64), ((64, 128, 4, 2), (14, 14, 256, 136), 128),
    ((256, 64, 8, 3), (9, 7, 112, 72), 64),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "shape", "depth"), SWEEPS)
@pytest.mark.parametrize("kind", ["bytes", "residual"])
def test_sweeps_compile(
    sizes: tuple[int, int, int, int], shape: tuple[int, int, int, int], depth: int, kind: str
) -> None:
    from braze.codegen.cuda.triton.cubin import compile_source

    pytest.importorskip("triton", reason="triton is not installed: pip install braze[cuda]")
    h, w, channels, columns = shape
    kernel = quantized(harness.conv(2, h, w, (channels, columns), (1, 1)), kind)
    source = sweep_source(kernel, GluonTile(*sizes, consumers=0, depth=depth))
    done = compile_source(source, 90)
    assert done.metadata.shared <= SHARED
    assert [d["block_size"] for d in done.metadata.tensordesc_meta] == [
        list(m.box) for m in source.maps
    ]
    # of four tiles that are written out, each residual is asked for before the epilogue before
    loads = [line for line in source.text.splitlines() if "tl.load(in4" in line]
    tiles = -(-columns // sizes[1])
    together = next(n for n in (4, 2, 1) if tiles % n == 0)
    assert len(loads) == (together if kind == "residual" else 0)


def test_which_products_sweep() -> None:
    def tactics(channels: int, columns: int, window: int = 1, kind: str = "bytes") -> int:
        plain = harness.conv(32, 28, 28, (channels, columns), (window, window))
        return len(sweep_tactics(quantized(plain, kind), SHARED, EFFORTS[5]))

    assert tactics(64, 256) and tactics(128, 512) and tactics(256, 1024) and tactics(512, 256)
    assert not tactics(64, 256, kind="residual") and not tactics(64, 64)
    assert not tactics(1024, 256) and not tactics(128, 256, 3)
    assert not sweep_tactics(
        typed(harness.conv(32, 28, 28, (64, 256), (1, 1)), F16), SHARED, EFFORTS[5]
    )
    for t in sweep_tactics(
        quantized(harness.conv(32, 28, 28, (64, 256), (1, 1))), SHARED, EFFORTS[5]
    ):
        assert gluon_tactic(gluon_tile(t)).parameters == t.parameters


WALKS = [
    (WalkTile(64, 64, 3, 5, 64), (56, 56, 64, 256)), (WalkTile(128, 64, 2, 2), (9, 7, 256, 112)),
    (WalkTile(64, 128, 3, 3, 64), (9, 7, 48, 144)),
]  # fmt: skip


@pytest.mark.parametrize(("tile", "shape"), WALKS)
@pytest.mark.parametrize("kind", ["bytes", "residual"])
def test_walks_compile(tile: WalkTile, shape: tuple[int, int, int, int], kind: str) -> None:
    from braze.codegen.cuda.triton.cubin import compile_source

    pytest.importorskip("triton", reason="triton is not installed: pip install braze[cuda]")
    h, w, channels, columns = shape
    kernel = quantized(harness.conv(2, h, w, (channels, columns), (1, 1)), kind)
    source = walk_source(kernel, tile)
    done = compile_source(source, 90)
    assert done.metadata.shared <= SHARED // tile.programs
    assert ".s32.s8.s8" in done.asm["ptx"] and "st.global.v4" in done.asm["ptx"]
    # the residual comes by a tensor map
    assert [m.buffer for m in source.maps] == ([0, 1, 4] if kind == "residual" else [0, 1])
    assert "tl.load(in4" not in source.text
    tiles = -(-2 * h * w // tile.rows), -(-columns // tile.columns)
    assert source.grid == min(tiles[0], 132 * tile.programs // tiles[1]) * tiles[1]


def test_which_products_walk() -> None:
    def tactics(channels: int, columns: int, window: int = 1, kind: str = "bytes") -> list[str]:
        plain = harness.conv(32, 28, 28, (channels, columns), (window, window))
        found = walk_tactics(quantized(plain, kind), SHARED, EFFORTS[5])
        assert all(walk_tile(t).programs > 1 for t in found)
        return [str(t) for t in found]

    assert tactics(64, 256) and tactics(64, 256, kind="residual") and tactics(256, 64)
    # what does not fit twice, windows, rows of a residual that no tensor map takes, sums
    assert not tactics(1024, 256) and not tactics(64, 256, 3)
    assert tactics(64, 72) and not tactics(64, 72, kind="residual")
    assert not tactics(64, 256, kind="sums")
    kernel = quantized(harness.conv(32, 28, 28, (64, 256), (1, 1)), "residual")
    beside = residual_of(kernel)
    assert beside is not None and beside.slot == 4
    inputs = (*kernel.inputs[:4], TensorSpec(I8, (33, 28, 28, 256)))  # not as large as the output
    assert residual_of(replace(kernel, inputs=inputs)) is None
    assert not walk_tactics(replace(kernel, inputs=inputs), SHARED, EFFORTS[5])


def test_which_steps_they_take() -> None:
    """64 channels are one step of half the size."""
    for channels, depths in ((64, {64}), (128, {128}), (256, {128}), (48, {64})):
        kernel = quantized(harness.conv(32, 28, 28, (channels, 64), (1, 1)))
        found = gluon_tactics(kernel, SHARED, EFFORTS[5])
        assert {int(t["depth"]) for t in found} == depths
    assert "16 bytes" in str(product_shape(quantized(harness.matmul((), 32, 48, 72))))
    folded = folded_kernel(
        quantized(harness.conv(2, 32, 32, (3, 64), (7, 7), strides=(2, 2), pads=(3,) * 4))
    )
    assert folded is not None
    assert {int(t["depth"]) for t in gluon_tactics(folded, SHARED, EFFORTS[5])} == {64}
    strided = quantized(harness.conv(2, 8, 8, (64, 64), (3, 3), strides=(2, 2)))
    assert "no whole steps" in str(product_shape(strided))
    assert not isinstance(product_shape(strided, 64), str)
