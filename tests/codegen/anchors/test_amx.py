"""Products and convolutions in tiles of AMX: emulated in Python, and on AMX where it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.amx.loops import Layout
from braze.codegen.cpu.amx.registers import REGISTERS
from braze.codegen.cpu.amx.tactics import SHAPES, chunk_of
from braze.codegen.cpu.amx.template import tile_tactics
from braze.codegen.cpu.anchors import anchor_tactics, compile_anchor
from braze.codegen.cpu.target import CpuTarget
from braze.codegen.reference import run_kernel
from braze.core.config import EFFORTS
from braze.core.dims import sym
from braze.core.dtypes import BF16
from braze.core.errors import TargetError
from braze.fusion.kernel import AnchorKernel
from braze.runtime.native import host_features, require_isa
from tests.codegen.anchors import harness
from tests.codegen.anchors.amx_emulator import Emulated
from tests.codegen.anchors.harness import Compiled, conv, conv3d, matmul
from tests.codegen.anchors.test_bytes import drawn, of_bytes

Array = np.ndarray[Any, Any]
N, M = sym("n"), sym("m")
UNITS = ("amx-int8", "amx-bf16")
TARGET = CpuTarget("avx512", 2, extras=UNITS)
ON_TILES = set(UNITS) <= set(host_features())


def runs(kernel: AnchorKernel, level: int) -> list[Any]:
    """Every tactic of a level; on the hardware where there is some."""
    tactics = tile_tactics(kernel, TARGET, EFFORTS[level])
    assert tactics and len(set(tactics)) == len(tactics)
    found: list[Any] = [Emulated(kernel, t, TARGET) for t in tactics]
    if ON_TILES:
        tactics = tile_tactics(kernel, TARGET, EFFORTS[5])
        found += [Compiled(kernel, t, TARGET) for t in tactics]
    return found


def check(kernel: AnchorKernel, env: dict[str, int], level: int = 3) -> None:
    """Bytes: equal to the reference, bit for bit."""
    inputs = drawn(kernel, env)
    want = run_kernel(kernel, inputs, env)[0]
    for run in runs(kernel, level):
        for workers in (1, 3):
            np.testing.assert_array_equal(run(inputs, env, workers), want, str(run.tactic))


def check_halves(kernel: AnchorKernel, env: dict[str, int], depth: int) -> None:
    """bfloat16: near float64 within roundings of `depth` float32 terms and one of bfloat16, with
    equal bits for all tactics and any number of workers."""
    inputs = harness.random_inputs(kernel, env, depth)
    want = run_kernel(kernel, inputs, env, float64=True)[0].astype(np.float64)
    bound = 4e-6 * max(4, depth)
    first: dict[bool, Array] = {}  # what emulates rounds twice where the processor rounds once
    for run in runs(kernel, 3):
        for workers in (1, 3):
            got = run(inputs, env, workers)
            wide = got.astype(np.float64)
            np.testing.assert_allclose(wide, want, rtol=2**-7 + bound, atol=2**-6 + bound)
            same = first.setdefault(isinstance(run, Compiled), got)
            np.testing.assert_array_equal(got, same, str(run.tactic))


@pytest.mark.parametrize("finish", [False, True])
@pytest.mark.parametrize(
    "size", [(1, 16, 32), (13, 17, 29), (16, 64, 64), (33, 33, 131), (49, 70, 64), (65, 16, 192)]
)
def test_products_of_bytes(size: tuple[int, int, int], finish: bool) -> None:
    """Rows, columns and terms that are no multiples of 16, 16 and 64."""
    check(of_bytes(matmul((), *size), finish), {})


@pytest.mark.parametrize("m", [1, 16, 17, 32, 47, 64])
def test_any_number_of_rows(m: int) -> None:
    check(of_bytes(matmul((N,), M, 20, 36), True), {"n": 1, "m": m}, 5)


def test_batches_and_turned_weights() -> None:
    check(of_bytes(matmul((3,), M, 20, 72, shared=False)), {"m": 5})
    check(of_bytes(matmul((), 7, 33, 120, turned=True)), {})
    check(of_bytes(harness.inside(matmul((2,), 7, 33, 64), 3)), {})


@pytest.mark.parametrize(
    ("channels", "kernel", "fill"),
    [((64, 16), (1, 1), 0), ((5, 33), (3, 3), 7), ((3, 16), (7, 7), 255), ((40, 20), (2, 5), 0)],
)
def test_convolutions_of_bytes(
    channels: tuple[int, int], kernel: tuple[int, int], fill: int
) -> None:
    pads = (1, 0, 2, 1) if kernel != (1, 1) else (0, 0, 0, 0)
    check(of_bytes(conv(2, 9, 7, channels, kernel, pads=pads), fill == 7, fill), {})


def test_other_convolutions_of_bytes() -> None:
    one = {"pads": (1, 1, 1, 1)}
    check(of_bytes(conv(1, 9, 9, (8, 17), (3, 3), strides=(2, 2), **one), True, 128), {})
    check(of_bytes(conv(1, 9, 9, (5, 16), (3, 3), dilations=(2, 1), pads=(2, 1, 2, 1)), fill=9), {})
    check(of_bytes(conv(1, 6, 6, (32, 40), (3, 3), groups=2, **one), True, 3), {})
    check(of_bytes(conv(N, M, 5, (8, 24), (3, 3), **one), fill=200), {"n": 2, "m": 7})
    check(of_bytes(conv(1, 5, 5, (50, 16), (1, 1), strides=(2, 2))), {})
    volume = conv3d(1, (4, 5, 3), (4, 18), (3, 3, 3), (1, 1, 1), (1,) * 6)
    check(of_bytes(volume, True, 11), {})


@pytest.mark.parametrize("size", [(13, 17, 29), (16, 48, 32), (33, 33, 67), (2, 20, 400)])
def test_products_of_halves(size: tuple[int, int, int]) -> None:
    check_halves(matmul((), *size, dtype=BF16), {}, size[2])


@pytest.mark.parametrize("kind", ["bias", "exp", "rows"])
def test_epilogues(kind: str) -> None:
    check_halves(matmul((N,), M, 21, 18, dtype=BF16, kind=kind), {"n": 2, "m": 13}, 18)


def test_convolutions_of_halves() -> None:
    pads = (1, 0, 2, 1)
    check_halves(conv(2, 6, 7, (20, 33), (3, 3), pads=pads, dtype=BF16, kind="residual"), {}, 180)
    check_halves(conv(1, 9, 9, (3, 16), (7, 7), strides=(2, 2), dtype=BF16), {}, 147)
    check_halves(conv(1, 5, 7, (64, 20), (1, 1), dtype=BF16, kind="relu"), {}, 64)


def test_infinities_nan_and_equal_rows() -> None:
    """What pads a row and a panel is zero, not whatever lies there: NaN stays in its row."""
    kernel = matmul((), 19, 20, 37, dtype=BF16)
    inputs = harness.random_inputs(kernel, {})
    inputs[0][:] = inputs[0][0]
    inputs[0][1, 3], inputs[0][2, 5] = np.inf, np.nan
    for run in runs(kernel, 3):
        got = run(inputs, {}, 2).astype(np.float32)
        assert np.isnan(got[2]).all() and np.isinf(got[1]).all()
        np.testing.assert_array_equal(got[3:], np.broadcast_to(got[3], got[3:].shape))


def test_workers_share_what_is_larger() -> None:
    """Weights of many columns are read once by all workers together, rows of many pixels too."""
    four = replace(TARGET, threads=4)
    for m, n, order in ((128, 768, {("rows", 1), ("panels", 1)}), (3136, 64, {("panels", 2)})):
        kernel = of_bytes(matmul((), m, n, 64))
        tactics = [t for t in tile_tactics(kernel, four, EFFORTS[5]) if t["heights"] == 2]
        assert {(t["order"], t["group"]) for t in tactics if t["a"] == "direct"} <= order


@pytest.mark.parametrize("shape", SHAPES)
def test_registers_do_not_collide(shape: tuple[int, int]) -> None:
    layout = Layout(*shape)
    heights, widths = range(shape[0]), range(shape[1])
    sums = [layout.sums(h, w) for h in heights for w in widths]
    assert len(set(sums)) == len(sums)
    for count in range(1, shape[0] + 1):
        lefts = [layout.left(h, count) for h in range(count)]
        rights = [layout.right(w) for w in widths]
        assert max(*sums, *lefts, *rights) < REGISTERS
        assert set(sums).isdisjoint(lefts + rights) and set(lefts).isdisjoint(rights)
        assert lefts.count(lefts[-1]) == 1, "the last tile of rows may have fewer"
        assert shape[0] == 1 or len(set(rights)) == shape[1], "columns stay while rows change"


def test_steps_of_k() -> None:
    """Equal steps where they are nearly full, so that no row needs a copy."""
    assert [chunk_of(words) for words in (7, 16, 36, 37, 144, 24, 17)] == [
        7,
        16,
        12,
        16,
        16,
        12,
        16,
    ]


def test_what_is_offered() -> None:
    """Bytes: both ways are timed. bfloat16: one way, for all that is timed must round alike."""
    target = CpuTarget("avx512", 2, extras=("avx512vnni", "avx512bf16", *UNITS))
    offered = anchor_tactics(of_bytes(matmul((), 64, 64, 64)), target, EFFORTS[3])
    assert {t.template for t in offered} == {"amx", "gemm"} and len(offered) == 4
    for kernel in (matmul((), 1, 64, 64, dtype=BF16), conv(1, 8, 8, (16, 16), (3, 3), dtype=BF16)):
        assert {t.template for t in anchor_tactics(kernel, target, EFFORTS[3])} == {"amx"}
    small = matmul((), 64, 8, 64, dtype=BF16)
    assert {t.template for t in anchor_tactics(small, target, EFFORTS[3])} == {"gemm"}
    floats = matmul((), 64, 64, 64)
    without = replace(target, extras=target.extras[:2])
    assert anchor_tactics(floats, target, EFFORTS[3]) == anchor_tactics(floats, without, EFFORTS[3])


@pytest.mark.parametrize(
    ("kernel", "unit", "instruction"),
    [
        (of_bytes(matmul((), 40, 40, 64)), "amx-int8", "tdpbusd"),
        (conv(1, 9, 9, (8, 24), (3, 3), dtype=BF16), "amx-bf16", "tdpbf16ps"),
    ],
)
def test_code_for_a_machine_that_is_not_here(
    kernel: AnchorKernel, unit: str, instruction: str
) -> None:
    """The object says what it needs, and its code has the instructions and releases tiles."""
    listing = replace(TARGET, emit="assembly")
    for tactic in tile_tactics(kernel, TARGET, EFFORTS[3]):
        assert compile_anchor(kernel, tactic, TARGET).own_code.needs == f"avx512+{unit}"
        text = compile_anchor(kernel, tactic, listing).own_code.data.decode()
        for wanted in (instruction, "ldtilecfg", "tileloadd", "tilestored", "tilerelease"):
            assert wanted in text


@pytest.mark.skipif(ON_TILES, reason="AMX is here")
def test_a_machine_without_it_refuses_engines_that_need_it() -> None:
    with pytest.raises(TargetError, match="lacks amx-int8; build it with target='cpu:"):
        require_isa("x86-64+amx-int8")


@pytest.mark.parametrize(
    ("size", "channels", "kernel", "given"),
    [
        ((9, 7), (64, 20), (3, 3), {"pads": (1, 1, 1, 1)}),
        ((7, 7), (128, 33), (3, 3), {"pads": (1, 1, 1, 1)}),
        ((9, 8), (64, 16), (3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
        ((8, 9), (64, 16), (1, 1), {"strides": (2, 2)}),
        ((11, 30), (64, 17), (2, 5), {"pads": (0, 1, 1, 2), "strides": (2, 1)}),
        ((12, 30), (64, 16), (3, 3), {"pads": (2, 1, 2, 1), "dilations": (2, 1)}),
        ((9, 30), (64, 16), (3, 2), {"pads": (2, 1) * 2, "strides": (1, 2), "dilations": (2, 1)}),
        ((40, 6), (64, 16), (5, 1), {}),
    ],
)  # fmt: skip
def test_convolutions_in_planes(
    size: tuple[int, int], channels: tuple[int, int], kernel: tuple[int, int], given: dict[str, Any]
) -> None:
    for batch, env in ((2, {}), (N, {"n": 3})):
        found = of_bytes(conv(batch, *size, channels, kernel, **given), batch == 2, 7)
        assert {t["a"] for t in tile_tactics(found, TARGET, EFFORTS[3])} == {"shift"}
        check(found, env)
    halves = conv(1, *size, (32, channels[1]), kernel, dtype=BF16, kind="residual", **given)
    check_halves(halves, {}, 32 * kernel[0] * kernel[1])
