"""Tactics of products of one row, the most promising first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from braze.codegen.cuda.tactics import MULTIPROCESSORS, START
from braze.codegen.cuda.triton.row import LINE_BYTES, Row, RowTile, row_of
from braze.core.config import Effort
from braze.core.dtypes import DType
from braze.fusion.kernel import AnchorKernel, Tactic

TEMPLATE = "row"
COLUMNS, WARPS, LOADS = (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4)
# bytes of weights that a thread asks for at once: fewer leave memory idle, more fill its registers
MOST_BYTES, GOOD_BYTES = 256, 128


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
    return Tactic(TEMPLATE, (*sizes, ("early", int(t.early))))


def row_tile(tactic: Tactic) -> RowTile:
    """The tile of a tactic."""
    p = {k: int(v) for k, v in tactic.parameters}
    return RowTile(p["columns"], p["depth"], p["warps"], bool(p["early"]))


def _bytes_a_thread(t: RowTile, row: Row, element: DType) -> int:
    steps = math.ceil(row.depth / t.depth)
    return t.columns * steps * t.depth * element.itemsize // (32 * t.warps)


def _tiles(row: Row, element: DType) -> Iterator[RowTile]:
    """Every tile whose weights fit into registers. All warps of a program stand along k, so that
    the left operand is read as it is needed; `LOADS` of theirs are a step."""
    for warps in WARPS:
        line = 32 * warps * LINE_BYTES // element.itemsize  # what they load at once
        for depth in (line * loads for loads in LOADS):
            if depth > line and depth >= 2 * row.depth:
                continue
            for columns in COLUMNS:
                tile = RowTile(columns, depth, warps, True)
                if _bytes_a_thread(tile, row, element) <= MOST_BYTES:
                    yield from (tile, replace(tile, early=False))


def _cost(t: RowTile, row: Row, element: DType) -> float:
    """A rough time in microseconds: the starts of programs, and what is in flight of a card's
    memory."""
    programs = math.ceil(row.columns / t.columns)
    asked = _bytes_a_thread(t, row, element)
    return START * programs / MULTIPROCESSORS + abs(math.log2(asked / GOOD_BYTES))
