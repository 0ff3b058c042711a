"""Winograd's algorithm beside infinities, NaN and huge numbers.

A tile whose patch is spread has the bits of the direct template. Any other tile is on the fast
path: its bits do not know of the numbers outside of its patch.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from braze.codegen.cpu.anchors import anchor_tactics
from braze.codegen.cpu.conv.winograd.spread import ALONE, RATIO, weight_marks
from braze.codegen.cpu.packing import pack_anchor
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import EFFORTS
from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32, F64, DType
from braze.fusion.kernel import AnchorKernel, Tactic
from tests.codegen.anchors import harness
from tests.codegen.anchors.harness import Compiled, conv, host_isas
from tests.pairs import pairwise

Array = NDArray[Any]
N, H, W = sym("n"), sym("h"), sym("w")
SIZES = {"n": 3, "h": 10, "w": 9}
PADS = (1, 1, 1, 1)
CHANNELS = [(16, 20), (32, 32), (40, 35), (19, 21), (90, 17)]
HUGE = (np.inf, -np.inf, np.nan, 1e9, -1e9, 3e38, 1e4)
# (image, row, column, channel): corners, edges, the middle, and several far from each other
PLACES: tuple[tuple[tuple[int, int, int, int], ...], ...] = (
    ((0, 0, 0, 0),),
    ((2, 9, 8, -1),),
    ((1, 4, 0, 3),),
    ((1, 5, 4, 7),),
    ((0, 0, 4, 1), (0, 9, 3, 15), (2, 3, 8, 2)),
)


def tactic(size: int, lanes: int, rows: int = 4) -> Tactic:
    values = {"size": size, "rows": rows, "vectors": 2, "lanes": lanes, "block": 2, "group": 1}
    return Tactic("winograd", tuple(values.items()))


def lanes_of(isa: str, dtype: DType = F32) -> int:
    return CpuTarget(isa, 2).vector_bits // (64 if dtype is F64 else 32)


def fast(kernel: AnchorKernel, isa: str, size: int, rows: int = 4) -> Compiled:
    lanes = lanes_of(isa, kernel.spec.acc)  # type: ignore[union-attr]
    return Compiled(kernel, tactic(size, lanes, rows), CpuTarget(isa, 2))


def direct(kernel: AnchorKernel, isa: str) -> Compiled:
    target = CpuTarget(isa, 2)
    (simple,) = anchor_tactics(kernel, target, EFFORTS[0])
    assert simple.template == "conv"
    return Compiled(kernel, simple, target)


def tiles(out: Array, size: int) -> dict[tuple[int, int, int], tuple[int, slice, slice]]:
    """Tiles of [N, H, W, K]: (image, row of tiles, column of tiles) -> where its outputs are."""
    images, high, wide = out.shape[:3]
    numbers = itertools.product(range(images), range(-(-high // size)), range(-(-wide // size)))
    return {
        (n, i, j): (n, slice(i * size, (i + 1) * size), slice(j * size, (j + 1) * size))
        for n, i, j in numbers
    }


def windows(
    number: tuple[int, int, int], place: tuple[int, int, int, int], size: int, out: Array
) -> list[bool]:
    """For each existing output of a tile (padding 1) whether its window holds a pixel."""
    n, i, j = number
    rows = range(i * size, min((i + 1) * size, out.shape[1]))
    columns = range(j * size, min((j + 1) * size, out.shape[2]))
    return [
        n == place[0] and abs(row - place[1]) <= 1 and abs(column - place[2]) <= 1
        for row, column in itertools.product(rows, columns)
    ]


def in_patch(number: tuple[int, int, int], place: tuple[int, int, int, int], size: int) -> bool:
    """Whether the patch of a tile (padding 1) holds a pixel."""
    n, i, j = number
    first = i * size - 1, j * size - 1
    inside = (f <= p < f + size + 2 for f, p in zip(first, place[1:3], strict=True))
    return n == place[0] and all(inside)


def summed_directly(code: Compiled, inputs: list[Array], env: harness.Env) -> set[Any]:
    """Tiles for which the code reads the weights that only direct sums need: they are NaN here."""
    ((slot, packing),) = code.code.packings
    packed = pack_anchor(inputs[slot], packing)
    size, columns = int(code.tactic["size"]), dict(packing.parameters)["columns"]
    marks = -(-inputs[slot].shape[0] // columns) * columns
    matrix = marks * inputs[slot].shape[1]
    packed[(size + 2) ** 2 * matrix : -marks] = np.nan
    given = [packed if k == slot else x for k, x in enumerate(inputs)]
    poisoned = copy.copy(code)
    poisoned.code = replace(code.code, packings=())
    out = poisoned(given, env)
    return {number for number, where in tiles(out, size).items() if np.isnan(out[where]).any()}


@pytest.mark.parametrize(
    ("isa", "size", "channels"), pairwise(host_isas(), [2, 4], CHANNELS), ids=str
)
def test_huge_numbers(isa: str, size: int, channels: tuple[int, int]) -> None:
    kernel = conv(N, H, W, channels, (3, 3), pads=PADS, kind="residual")
    fixed = conv(*SIZES.values(), channels, (3, 3), pads=PADS, kind="residual")
    code, static = fast(kernel, isa, size), fast(fixed, isa, size, rows=1)
    straight = direct(kernel, isa)
    inputs = harness.random_inputs(kernel, SIZES)
    ordinary = inputs[0]
    clean = code(inputs, SIZES)
    for value, places in itertools.product(HUGE, PLACES):
        inputs[0] = ordinary.copy()
        for place in places:
            inputs[0][place] = value
        got, summed = code(inputs, SIZES), straight(inputs, SIZES)
        for number, where in tiles(got, size).items():
            near = [place for place in places if in_patch(number, place, size)]
            if near and abs(value) < 1e10 and all(windows(number, near[0], size, got)):
                scale = abs(value) * np.abs(inputs[1]).max()
                np.testing.assert_allclose(got[where], summed[where], rtol=0, atol=4e-6 * scale)
                continue
            want = summed if near else clean
            np.testing.assert_array_equal(got[where], want[where], f"{value} {places} {number}")
        np.testing.assert_array_equal(code(inputs, SIZES, 3), got)
        np.testing.assert_array_equal(static(inputs, {}, 2), got)


@pytest.mark.parametrize("size", [2, 4])
def test_other_windows_are_right(size: int) -> None:
    kernel = conv(1, 32, 32, (32, 32), (3, 3), pads=PADS)
    inputs = harness.random_inputs(kernel, {})
    inputs[1] *= np.float32(0.05)
    isa = host_isas()[0]
    code, (at, row, column) = fast(kernel, isa, size), (0, 10, 10)
    for value in (*HUGE, 500.0, 300.0, 100.0):
        inputs[0][at, row, column, 0] = value
        with np.errstate(all="ignore"):
            want = harness.run_kernel(kernel, inputs, {}, float64=True)[0].astype(np.float32)
        got = code(inputs, {})
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.where(np.isinf(want), want, 0),
                                      np.where(np.isinf(got), got, 0))  # fmt: skip
        got[at, row - 1 : row + 2, column - 1 : column + 2] = 0
        want[at, row - 1 : row + 2, column - 1 : column + 2] = 0
        # an error is at most RATIO / 2 times that of even numbers, which is 2e-6 of the norms
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * RATIO / 2 * 0.05 * 288**0.5 * 2)


def ordinary_inputs() -> dict[str, Array]:
    """Data that stays on the fast path in every tile."""
    rng = np.random.default_rng(1)
    normal = rng.standard_normal((2, 13, 14, 32)).astype(np.float32)
    sparse = np.maximum(normal - 1.3, 0)
    islands = np.where(rng.random(normal.shape[:3]) < 0.1, 1, 0)[..., None] * np.abs(normal)
    steps = normal * np.geomspace(1, 40, 14).astype(np.float32)[:, None]
    bump = normal.copy()
    bump[1, 6, 7, 5] = 60
    return {
        "normal": normal, "tiny": normal * np.float32(1e-12), "large": normal * np.float32(1e12),
        "sparse": sparse, "islands": islands.astype(np.float32), "steps": steps, "bump": bump,
        "sentinels everywhere": np.full_like(normal, -1e9),
        "one channel": normal * np.where(np.arange(32) == 3, 1e6, 1).astype(np.float32),
    }  # fmt: skip


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1), (1, 0, 0, 1)])
def test_ordinary_numbers_stay_on_the_fast_path(
    isa: str, size: int, pads: tuple[int, int, int, int]
) -> None:
    kernel = conv(2, 13, 14, (32, 32), (3, 3), pads=pads)
    code, inputs = fast(kernel, isa, size), harness.random_inputs(kernel, {})
    for name, data in ordinary_inputs().items():
        inputs[0] = data
        assert not summed_directly(code, inputs, {}), name


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("size", [2, 4])
def test_windows_of_zeros(isa: str, size: int) -> None:
    """Zeros beside ordinary numbers are no reason to sum directly; beside large ones they are."""
    kernel = conv(1, 12, 12, (16, 16), (3, 3))
    code, inputs = fast(kernel, isa, size), harness.random_inputs(kernel, {})
    for value, apart in ((ALONE * 0.99, False), (ALONE * 1.01, True), (-1e9, True)):
        inputs[0][:] = 0
        inputs[0][0, 4, 4, 3] = value  # in a corner of a patch: most windows do not see it
        assert bool(summed_directly(code, inputs, {})) == apart


@pytest.mark.parametrize("size", [2, 4])
def test_the_border_between_the_two(size: int) -> None:
    """Just above the ratio a tile is summed directly, just below not, for small numbers too."""
    kernel = conv(1, size + 2, size + 2, (32, 32), (3, 3))
    code, inputs = fast(kernel, host_isas()[0], size), harness.random_inputs(kernel, {})
    for scale in (1.0, 1e-3, 1e-16, 1e6):
        for factor, spread in ((0.9, False), (1.1, True)):
            inputs[0] = np.full_like(inputs[0], scale)
            window = scale * (9 * 32) ** 0.5
            inputs[0][0, 0, 0, 0] = RATIO * factor * window
            assert bool(summed_directly(code, inputs, {})) == spread, (scale, factor)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("dtype", [F16, BF16, F64], ids=str)
def test_other_types(size: int, dtype: DType) -> None:
    kernel = conv(2, 7, 9, (20, 19), (3, 3), pads=PADS, dtype=dtype)
    isa = host_isas()[0]
    code, straight = fast(kernel, isa, size), direct(kernel, isa)
    inputs = harness.random_inputs(kernel, {})
    clean, place = code(inputs, {}), (1, 3, 4, 17)
    values = (np.inf, np.nan, 6e4) if dtype is F16 else (np.inf, np.nan, 1e30, 1e300)
    for value in values:
        with np.errstate(all="ignore"):
            inputs[0][place] = value
        got, summed = code(inputs, {}), straight(inputs, {})
        for number, where in tiles(got, size).items():
            if any(seen := windows(number, place, size, got)) and not all(seen):
                assert got[where].tobytes() == summed[where].tobytes()
            elif not in_patch(number, place, size):
                np.testing.assert_array_equal(got[where], clean[where])


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("size", [2, 4])
def test_nothing_overflows_between(isa: str, size: int) -> None:
    """Numbers whose products are still finite may not be in the transforms."""
    kernel = conv(1, 8, 8, (16, 17), (3, 3), pads=PADS)
    inputs = harness.random_inputs(kernel, {})
    code = fast(kernel, isa, size)
    for left, right in ((1e37, 0.1), (1e18, 1e18), (1e10, 1e26), (1e26, 1e10), (1e15, 1e15)):
        scaled = [inputs[0] * np.float32(left), inputs[1] * np.float32(right)]
        want = harness.run_kernel(kernel, scaled, {}, float64=True)[0]
        assert np.abs(want).max() < 3e38
        got = code(scaled, {})
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4 * left * right)


WEIGHTS = {
    "infinite": np.inf, "NaN": np.nan, "huge": 3e38, "sentinel": -1e9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("isa", "size", "name"), pairwise(host_isas(), [2, 4], list(WEIGHTS)), ids=str
)
def test_weights(isa: str, size: int, name: str) -> None:
    """Output channels of spread weights, and those in one vector with them, are summed directly."""
    lanes = lanes_of(isa)
    kernel = conv(2, 9, 7, (18, 2 * lanes + 3), (3, 3), pads=PADS, kind="bias")
    code, straight = fast(kernel, isa, size), direct(kernel, isa)
    inputs = harness.random_inputs(kernel, {})
    clean = code(inputs, {})
    for channel, tap in ((0, (0, 0)), (lanes + 1, (1, 1)), (2 * lanes + 2, (2, 1))):
        changed = list(inputs)
        changed[1] = inputs[1].copy()
        changed[1][(channel, 5, *tap)] = WEIGHTS[name]
        got, summed = code(changed, {}), straight(changed, {})
        vector = np.arange(got.shape[-1]) // lanes == channel // lanes
        np.testing.assert_array_equal(got[..., vector], summed[..., vector])
        np.testing.assert_array_equal(got[..., ~vector], clean[..., ~vector])
        np.testing.assert_array_equal(code(changed, {}, 3), got)


def test_which_weights_are_spread() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, 16, 3, 3)).astype(np.float32)
    weight[1] *= 1e-20
    weight[2, :, 1, 1] += 20  # a convolution with the identity added
    weight[3, :, :, 2] = 0  # a masked one
    weight[4, :, 0, 0] *= 1e-9
    weight[5] *= 1e30
    weight[6, 3, 1, 1] = -np.inf
    weight[7] = 0
    assert weight_marks(weight, F32).tolist() == [0, 0, 0, 1, 2, 2, 2, 0]


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("size", [2, 4])
def test_taps_of_zeros(isa: str, size: int) -> None:
    """A huge number under taps of zeros counts for nothing, although all windows see it."""
    kernel = conv(1, 9, 7, (18, 20), (3, 3), pads=PADS, kind="bias")
    code, straight = fast(kernel, isa, size), direct(kernel, isa)
    inputs = harness.random_inputs(kernel, {})
    inputs[1][:, :, 0] = inputs[1][:, :, :, ::2] = 0
    assert not summed_directly(code, inputs, {})
    inputs[0][0, 5, 4, 3] = 1e9
    got, summed = code(inputs, {}), straight(inputs, {})
    for number, where in tiles(got, size).items():
        if in_patch(number, (0, 5, 4, 3), size):
            np.testing.assert_array_equal(got[where], summed[where])
