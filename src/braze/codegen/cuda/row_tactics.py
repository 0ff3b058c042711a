"""Tactics of products of one row, the most promising first."""

from __future__ import annotations

import math
from collections.abc import Iterator

from braze.codegen.cuda.tactics import MULTIPROCESSORS
from braze.codegen.cuda.triton.row import LINE_BYTES, Row, RowTile, row_of
from braze.core.config import Effort
from braze.core.dtypes import DType
from braze.fusion.kernel import AnchorKernel, Tactic

TEMPLATE = "row"
COLUMNS, WARPS, LOADS = (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4)
# bytes of weights that a thread asks for at once, which its registers hold, and what was best of
# them on an H200 in products of 4 to 131 MB (they reach 0.9 to 1.02 of what copies do from 46 MB
# on; below, a launch adds about a microsecond)
MOST_BYTES, GOOD_BYTES = 384, 128
# what one column a program costs, and the second and third load of a step, where others may be had
ALONE, STEPS = 0.5, 0.1


def row_tactics(kernel: AnchorKernel, effort: Effort) -> tuple[Tactic, ...]:
    """Tiles of a product of one row; none for what the template does not take."""
    row = row_of(kernel)
    if row is None:
        return ()
    element = kernel.inputs[1].dtype
    found = sorted((_cost(t, row, element), i, t) for i, t in enumerate(_tiles(row, element)))
    wanted = 1 if effort.tactics == 1 else 3 * effort.tactics
    return tuple(row_tactic(t) for _, _, t in found[:wanted])


def row_tactic(t: RowTile) -> Tactic:
    """A tile as a tactic."""
    sizes = (("columns", t.columns), ("depth", t.depth), ("warps", t.warps))
    return Tactic(TEMPLATE, sizes)


def row_tile(tactic: Tactic) -> RowTile:
    """The tile of a tactic."""
    p = {k: int(v) for k, v in tactic.parameters}
    return RowTile(p["columns"], p["depth"], p["warps"])


def _bytes_a_thread(t: RowTile, row: Row, element: DType) -> int:
    steps = math.ceil(row.depth / t.depth)
    return t.columns * steps * t.depth * element.itemsize // (32 * t.warps)


def _tiles(row: Row, element: DType) -> Iterator[RowTile]:
    """Every tile whose weights fit into registers. All warps of a program stand along k, so that
    the left operand is read as it is needed; `LOADS` of theirs are a step."""
    for warps in WARPS:
        line = _line(warps, element)
        for depth in (line * loads for loads in LOADS):
            if depth > line and depth >= 2 * row.depth:
                continue
            for columns in COLUMNS:
                tile = RowTile(columns, depth, warps)
                if _bytes_a_thread(tile, row, element) <= MOST_BYTES:
                    yield tile


def _line(warps: int, element: DType) -> int:
    """Elements that so many warps load at once."""
    return 32 * warps * LINE_BYTES // element.itemsize


def _cost(t: RowTile, row: Row, element: DType) -> float:
    """How far a tile is from what was good, on no scale of time."""
    asked = _bytes_a_thread(t, row, element)
    off = abs(math.log2(asked / GOOD_BYTES)) + (ALONE if t.columns == 1 else 0.0)
    few = max(0.0, math.log2(MULTIPROCESSORS * 4 * t.columns / row.columns))
    idle = math.log2(-(-row.depth // t.depth) * t.depth / row.depth)
    return off + few + idle + STEPS * math.log2(t.depth / _line(t.warps, element))
