"""Prefetching: constants of a product come from memory, once a run, while tiles are computed.

A tile that waits for its panel to come from memory takes several times as long as one that finds
it in cache. So the tiles of a panel each fetch their share of the panel that comes next. Which
lines are fetched changes no result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from braze.codegen.cpu.llvm.function import I32, KernelFunction, i64
from braze.codegen.cpu.product.register_tile import TileShape
from braze.core.dims import Dim

MAX_TILES: Final = 64  # tiles that share a panel up to which waiting for it once matters
CACHE_LINE: Final = 64
_BYTE = ir.IntType(8)


@dataclass(frozen=True, slots=True)
class Ahead:
    """The tiles of a panel, from row `start` on, fetch the panel `distance` bytes behind `panel`.

    Each tile has `rows` rows and fetches `step` bytes in each of its `depth` steps of k.
    """

    panel: ir.Value
    start: ir.Value
    distance: int
    rows: int
    depth: int
    step: int

    def share(self, fn: KernelFunction, row: ir.Value, k: ir.Value) -> ir.Value:
        """What the tile at `row` fetches from step `k` on."""
        b = fn.builder
        tile = b.sdiv(b.sub(row, self.start), i64(self.rows))
        steps = b.add(b.mul(tile, i64(self.depth)), k)
        following = fn.at(self.panel, self.distance, _BYTE)
        return fn.at(following, b.mul(steps, i64(self.step)), _BYTE)

    def fetch(self, fn: KernelFunction, share: ir.Value, index: ir.Value) -> None:
        """Step `index` of a share; no harm where the memory is not ours or is not there."""
        where = fn.builder.gep(share, [fn.builder.mul(index, i64(self.step))], source_etype=_BYTE)
        fetch_line(fn, where, level=2)


def fetch_line(fn: KernelFunction, where: ir.Value, level: int = 1) -> None:
    """Ask for a line in the cache of a level; no harm where no memory is."""
    read, locality, data = (ir.Constant(I32, value) for value in (0, 4 - level, 1))
    fn.intrinsic("llvm.prefetch.p0", ir.VoidType(), [where, read, locality, data])


def ahead(
    shape: TileShape, panel: ir.Value, start: ir.Value, rows: Dim, depth: Dim | ir.Value, skip: int
) -> Ahead | None:
    """For `rows` rows from `start` on and the panel `skip` behind `panel`; None if it does not pay.

    That is without known sizes or without rows, for so many tiles that a panel from memory costs
    little, and for so few that each fetches more than a line per step, which the processor's own
    prefetch does.
    """
    if not isinstance(rows, int) or not isinstance(depth, int) or not rows:
        return None
    tiles = -(-rows // shape.rows)
    line = shape.columns * shape.panel_bytes
    step = -(-line // tiles)
    if tiles > MAX_TILES or step > CACHE_LINE:
        return None
    return Ahead(panel, start, skip * depth * line, shape.rows, depth, step)
