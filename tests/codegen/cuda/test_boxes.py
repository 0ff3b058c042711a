"""What the boxes of the Gluon templates hold, step by step: the copies are done here in numpy, by
the coordinates that stand in the source, and the sums compared with the reference."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from types import CodeType
from typing import Any

import numpy as np
import pytest

from braze.codegen.cuda.gluon.layout import GluonTile, spread_order
from braze.codegen.cuda.gluon.product import gluon_source
from braze.codegen.cuda.gluon.shapes import Rows, Windows, product_shape
from braze.codegen.cuda.gluon.tiles import PixelTiles, RowTiles, Tiles
from braze.codegen.cuda.packing import pack_constant
from braze.codegen.cuda.triton.source import Source
from braze.codegen.cuda.triton.tile import AnchorWriter
from braze.codegen.reference.run import run_kernel
from braze.core.dtypes import F16
from braze.fusion.kernel import AnchorKernel, TensorMap
from tests.codegen.anchors import harness
from tests.codegen.anchors.windows import BOXED, PADDED, Window, among, infinite_beside
from tests.codegen.cuda.bounds import kernel_bound
from tests.codegen.cuda.typed import typed

Array = np.ndarray[Any, Any]
TILE = GluonTile(64, 64, 4, 4, 0)


def box_of(m: TensorMap, memory: Array, at: list[int]) -> Array:
    """The box at `at`; what lies outside of the map is zero."""
    total, inside = np.zeros((), np.int64), np.ones((), bool)
    for k, (first, count, size) in enumerate(zip(at, m.box, m.shape, strict=True)):
        index = first + np.arange(count)
        stride = m.strides[k] if k < len(m.strides) else 1
        assert isinstance(size, int) and isinstance(stride, int)
        total = total[..., None] + index * stride
        inside = inside[..., None] & (index >= 0) & (index < size)
    return np.where(inside, memory[np.where(inside, total, 0)], 0)


def tiles_of(kernel: AnchorKernel, tile: GluonTile) -> Tiles:
    shape = product_shape(kernel)
    assert not isinstance(shape, str), shape
    return RowTiles(shape, tile, F16) if isinstance(shape, Rows) else PixelTiles(shape, tile, F16)


def _code(source: Source) -> CodeType:
    """Compiled once: it runs at every step of every tile."""
    return compile(textwrap.dedent(source.text()), "source", "exec")


def products(kernel: AnchorKernel, inputs: list[Array], tile: GluonTile) -> Array:
    """[tile of rows, row, output channel], summed from boxes."""
    left, source = tiles_of(kernel, tile), Source()
    w = AnchorWriter(kernel, [], kernel.spec.out_shape, waits=False)
    left.place(w, source)
    place = _code(source)
    source = Source()
    coordinates = compile(f"[{left.coordinates(source)}]", "coordinates", "eval")
    moves = _code(source)
    memory = inputs[0].reshape(-1).astype(np.float64)
    ((_, packing),) = gluon_source(kernel, tile).packings
    depth = tile.steps_of(F16)
    weight = pack_constant(inputs[1], packing).astype(np.float64)
    blocks = weight.reshape(-1, tile.columns, left.steps * depth)
    matrix = np.empty_like(blocks)
    matrix[:, spread_order(tile.columns)] = blocks
    matrix = matrix.reshape(-1, left.steps * depth)
    assert isinstance(left.count, int)
    out = np.zeros((left.count, tile.rows, len(matrix)))
    for row_tile in range(left.count):
        for step in range(left.steps):
            space = {"row_tile": row_tile, "step": step}
            exec(place, {}, space)
            exec(moves, {}, space)
            at = eval(coordinates, {}, space)
            box = box_of(left.map(), memory, at).reshape(tile.rows, depth)
            out[row_tile] += box @ matrix[:, step * depth : (step + 1) * depth].T
    return out[..., : left.columns]


@pytest.mark.parametrize("pitch", [72, 128])
def test_rows(pitch: int) -> None:
    offset = 16 if pitch > 72 else 0
    kernel = among(typed(harness.matmul((3,), 50, 40, 72), F16), offset, pitch)
    inputs = harness.random_inputs(kernel, {})
    (want,) = run_kernel(kernel, inputs, {})
    inputs[0] = infinite_beside(inputs[0], slice(offset, offset + 72))
    got = products(kernel, inputs, TILE).reshape(-1, 40)[:150]
    kernel_bound(kernel, {}).check(got, want.reshape(-1, 40))


WIDE = Window((64, 40), (2, 4), strides=(1, 2), dilations=(1, 3), pads=(0, 1, 0, 5))


JOINED = (
    Window((16, 64), (4, 4)), Window((8, 40), (3, 2), strides=(2, 1)),
    Window((24, 40), (2, 2), dilations=(2, 1), pads=(1, 0, 0, 0)), Window((72, 40), (1, 2)),
)  # fmt: skip


@pytest.mark.parametrize("box", [(2, 4), (8, 8)])
@pytest.mark.parametrize("window", JOINED, ids=str)
def test_taps_along_a_line(window: Window, box: tuple[int, int]) -> None:
    """Side by side in memory they are one box, where a step has room for all."""
    kernel = typed(window.conv(3, 10, 11), F16)
    shape = product_shape(kernel)
    assert isinstance(shape, Windows)
    assert shape.joined == (window.size[1] if window.channels[0] * window.size[1] <= 64 else 1)
    check_windows(kernel, box, harness.random_inputs(kernel, {}))


@pytest.mark.parametrize("box", [(2, 4), (8, 8), (1, 1)])
@pytest.mark.parametrize(
    ("size", "window"),
    [
        ((14, 10), replace(PADDED, channels=(72, 40))),
        *((size, window) for size, window, _ in BOXED[:4]),
        ((7, 12), WIDE),
    ],
    ids=str,
)
@pytest.mark.parametrize("beside", [0, 24])
def test_windows(size: tuple[int, int], window: Window, box: tuple[int, int], beside: int) -> None:
    """Each pixel has its sum where its tile has it; channels beside those read are infinite."""
    channels = window.channels[0]
    kernel = among(typed(window.conv(3, *size), F16), beside, channels + 2 * beside)
    inputs = harness.random_inputs(kernel, {})
    check_windows(kernel, box, inputs, slice(beside, beside + channels))


def check_windows(
    kernel: AnchorKernel, box: tuple[int, int], inputs: list[Array], read: slice | None = None
) -> None:
    """read: the channels beside which all is infinite."""
    tile = replace(TILE, height=box[0], width=box[1])
    (want,) = run_kernel(kernel, inputs, {})
    if read is not None:
        inputs[0] = infinite_beside(inputs[0], read)
    got = products(kernel, inputs, tile)
    bound, images = kernel_bound(kernel, {}), tile.rows // (box[0] * box[1])
    count, (p, q) = want.shape[0], want.shape[1:3]
    down, across = -(-p // box[0]), -(-q // box[1])
    for n, y, x in np.ndindex(count, p, q):
        number = (n // images * down + y // box[0]) * across + x // box[1]
        row = (n % images * box[0] + y % box[0]) * box[1] + x % box[1]
        bound.check(got[number, row], want[n, y, x])
