"""Tactics of the Gluon templates, the most promising first."""

from __future__ import annotations

import math
from dataclasses import replace

from braze.codegen.cuda.gluon.layout import DEPTH_BYTES, GluonTile, gluon_tactic
from braze.codegen.cuda.gluon.shapes import Rows, Windows, product_shape
from braze.core.config import Effort
from braze.core.dims import Dim, product
from braze.fusion.kernel import AnchorKernel, Tactic

MULTIPROCESSORS = 132
UNKNOWN_ROWS, UNKNOWN_BATCH, UNKNOWN_SIDE = 4096, 8, 28
SIDES = (1, 2, 4, 8, 16)  # of boxes of pixels
LARGE = 1 << 29  # multiplications, which take an H200 about 1.5 us
MOST_SUMS_BESIDE = 128  # a thread's sums that leave registers for a residual
BARRIERS = 256  # bytes of shared memory beside the operands

# rows, columns, warps, stages, consumers
TILES = (
    (128, 128, 4, 6, 2), (128, 64, 4, 3, 0), (128, 128, 8, 3, 0), (64, 128, 4, 3, 0),
    (128, 64, 4, 4, 2), (64, 64, 4, 4, 0), (64, 256, 4, 3, 0), (256, 128, 8, 4, 1),
    (128, 128, 4, 3, 0), (64, 256, 4, 4, 2), (256, 64, 8, 3, 0), (128, 256, 8, 4, 1),
    (64, 128, 4, 6, 2), (128, 256, 8, 3, 0), (256, 64, 8, 4, 1), (64, 64, 4, 8, 0),
    (64, 32, 4, 6, 0), (64, 64, 4, 8, 2), (128, 64, 4, 8, 2), (64, 32, 4, 4, 0),
    (128, 192, 8, 5, 1), (128, 192, 8, 4, 0), (64, 192, 4, 6, 2), (128, 64, 4, 2, 0),
    (64, 64, 4, 2, 0), (128, 192, 4, 5, 2),
)  # fmt: skip


def gluon_tactics(kernel: AnchorKernel, shared_bytes: int, effort: Effort) -> tuple[Tactic, ...]:
    """Tiles of a product, ranked by waste and by how they fill the card; none for what the
    template does not take."""
    found: list[tuple[float, int, GluonTile]] = []
    for depth in depths(kernel):
        shape = product_shape(kernel, depth)
        if isinstance(shape, str):
            continue
        for sizes in TILES:
            tile = GluonTile(*sizes, depth=depth)
            if tile.stages * (tile.rows + tile.columns) * depth + BARRIERS > shared_bytes:
                continue
            if sums_of_a_thread(tile) > MOST_SUMS_BESIDE and _reads_as_much(kernel):
                continue
            t = tile if isinstance(shape, Rows) else boxed(tile, shape)
            cost = _cost(t, shape, tile.steps_of(kernel.inputs[0].dtype)) * depth / DEPTH_BYTES
            found.append((cost, len(found), t))
    found.sort(key=lambda f: f[:2])
    # one more than three an effort, so that wide tiles in turns push none of the others out
    wanted = 1 if effort.tactics == 1 else 3 * effort.tactics + 1
    return tuple(gluon_tactic(t) for _, _, t in found[:wanted])


def sums_of_a_thread(t: GluonTile) -> int:
    """Registers for the sums of a tile."""
    return t.rows * t.columns // (32 * t.warps)


def _reads_as_much(kernel: AnchorKernel) -> bool:
    """Whether the epilogue reads an element for every one of the output. Tiles are read ahead, into
    registers."""
    count = product(kernel.output.shape)
    return any(product(t.shape) == count for t in kernel.inputs[2:])


def depths(kernel: AnchorKernel) -> tuple[int, ...]:
    """Bytes of a step: half of what is usual where bytes fill no more."""
    half = DEPTH_BYTES // 2
    shape = product_shape(kernel, half)
    if kernel.inputs[0].dtype.itemsize > 1 or isinstance(shape, str):
        return (DEPTH_BYTES,)
    channels = shape.depth if isinstance(shape, Rows) else shape.channels
    return (half,) if channels <= half else (DEPTH_BYTES,)


def is_large(kernel: AnchorKernel) -> bool:
    """Whether these templates are the best guess: for what takes longer than a launch, they are on
    an H200; below, tiles of fewer than 64 rows and split sums count more."""
    shape = product_shape(kernel)
    if isinstance(shape, str):
        return False
    if isinstance(shape, Rows):
        pixels, steps = known(shape.count, UNKNOWN_ROWS), shape.depth
    else:
        sides = math.prod(known(d, UNKNOWN_SIDE) for d in shape.out)
        pixels, steps = known(shape.batch, UNKNOWN_BATCH) * sides, shape.channels
        steps *= math.prod(shape.kernel)
    columns = shape.columns if isinstance(shape, Rows) else shape.out_channels
    return pixels * steps * columns >= LARGE


def boxed(t: GluonTile, shape: Windows) -> GluonTile:
    """`t` with the box of pixels that wastes the least, of these a large and square one, whose
    windows share the most."""
    found = [
        replace(t, height=height, width=width)
        for height in SIDES
        for width in SIDES
        if height * width <= t.rows
    ]
    return min(
        found, key=lambda b: (row_tiles(b, shape), -b.height * b.width, abs(b.height - b.width))
    )


def row_tiles(t: GluonTile, shape: Rows | Windows) -> int:
    """Tiles of rows at known sizes."""
    if isinstance(shape, Rows):
        return math.ceil(known(shape.count, UNKNOWN_ROWS) / t.rows)
    images = t.rows // (t.height * t.width)
    sizes = (
        (shape.batch, UNKNOWN_BATCH, images),
        *((d, UNKNOWN_SIDE, side) for d, side in zip(shape.out, (t.height, t.width), strict=True)),
    )
    return math.prod(math.ceil(known(d, guess) / step) for d, guess, step in sizes)


def _cost(t: GluonTile, shape: Rows | Windows, step: int) -> float:
    """Relative time: waves of tiles times the work of one, and what small tiles read again."""
    if isinstance(shape, Rows):
        columns, steps = shape.columns, math.ceil(shape.depth / step)
    else:
        columns = shape.out_channels
        steps = math.prod(shape.kernel) * math.ceil(shape.channels / step)
    tiles = row_tiles(t, shape) * math.ceil(columns / t.columns)
    waves = math.ceil(tiles / MULTIPROCESSORS)
    work = t.rows * t.columns + 48 * (t.rows + t.columns)
    return waves * work * (steps + 2.0)


def known(d: Dim, guess: int) -> int:
    """A size, or a guess where it depends on the input shapes."""
    return d if isinstance(d, int) else guess
