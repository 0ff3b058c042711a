"""Which register tiles and loop orders are worth trying for a product of a given size.

A performance policy only: every choice gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import Dim
from braze.core.dtypes import DType

ASSUMED_ROWS, ASSUMED_COLUMNS, ASSUMED_DEPTH = 256, 256, 256  # for symbolic sizes
SMALL_TILE = 4, 2  # rows and vectors; fits the registers of every instruction set
MAX_ROWS = 14  # row pointers that still fit the integer registers
CONFLICT_BYTES = 4096  # rows this far apart (or a multiple) share their cache sets
# About 2 us of one thread. Two that are awake would save half a microsecond of that; one to wake
# costs more, and so does one that has to share its processor.
SMALL_PRODUCTS, _SMALL_RESULTS = 65536, 2048
_CACHE_WAYS = 8
_CONFLICT_COST = 1.1


@dataclass(frozen=True, slots=True)
class TileChoice:
    """A register tile and its estimated time for one step of k over the whole product."""

    rows: int
    vectors: int
    lanes: int
    cost: float


def accumulators(target: CpuTarget) -> int:
    """Registers for sums that leave some for operands."""
    if target.registers == 32:
        return 24
    return 12 if target.has_fma else 10


def fits_registers(target: CpuTarget, rows: int, vectors: int) -> bool:
    """Whether sums, a row of B and a broadcast (and a product without FMA) stay in registers."""
    operands = vectors + (1 if target.has_fma else 2)
    sums = rows * vectors
    return sums <= accumulators(target) and sums + operands <= target.registers


def is_small(results: Dim, depth: Dim) -> bool:
    """Whether a product is too little work to share: so many results of so many terms."""
    if not (isinstance(results, int) and isinstance(depth, int)):
        return False
    return results <= _SMALL_RESULTS and results * depth <= SMALL_PRODUCTS


def max_lanes(target: CpuTarget, dtype: DType) -> int:
    """Elements of a full vector."""
    return target.vector_bits // dtype.bits


def choose_lanes(target: CpuTarget, dtype: DType, columns: Dim) -> int:
    """The vector length: full vectors, or fewer lanes for products of few columns."""
    lanes = max_lanes(target, dtype)
    if isinstance(columns, int):
        while lanes > 4 and lanes // 2 >= columns:
            lanes //= 2
    return lanes


def tile_choices(
    target: CpuTarget,
    dtype: DType,
    rows: Dim,
    columns: Dim,
    row_stride: Dim = 0,
    estimate: bool = True,
) -> tuple[TileChoice, ...]:
    """Register tiles, best estimate first. row_stride: elements between the rows of a tile.

    Without `estimate`, one small tile: half the time to compile, and mostly close to the best.
    """
    m = rows if isinstance(rows, int) else ASSUMED_ROWS
    n = columns if isinstance(columns, int) else ASSUMED_COLUMNS
    lanes = choose_lanes(target, dtype, columns)
    if not estimate:
        vectors = min(SMALL_TILE[1], max(1, -(-n // lanes)))
        return (TileChoice(min(SMALL_TILE[0], max(1, m)), vectors, lanes, 0.0),)
    per_cycle = 1 if lanes * dtype.bits > 256 else 2
    found = []
    for vectors in range(1, 9):
        for count in range(1, MAX_ROWS + 1):
            wasteful = count > max(1, m) or (vectors - 1) * lanes >= max(1, n)
            if wasteful or not fits_registers(target, count, vectors):
                continue
            cost = _step_cost(m, n, TileChoice(count, vectors, lanes, 0), per_cycle)
            if count > _CACHE_WAYS and conflicts(row_stride, dtype.itemsize, count):
                cost *= _CONFLICT_COST
            found.append(TileChoice(count, vectors, lanes, cost))
    return tuple(sorted(found, key=lambda t: (t.cost, -t.rows * t.vectors, t.vectors)))


def _step_cost(m: int, n: int, tile: TileChoice, per_cycle: int) -> float:
    """Cycles per step of k: multiplies, loads or latency of the tiles, whichever is longest."""
    width = tile.vectors * tile.lanes
    total = 0.0
    for row_tiles, count in ((m // tile.rows, tile.rows), (1, m % tile.rows)):
        for column_tiles, columns in ((n // width, width), (1, n % width)):
            if count and columns:
                vectors = -(-columns // tile.lanes)
                loads = (count + vectors * (3 - per_cycle)) / 2
                cycles = max(count * vectors / per_cycle, loads + 0.5, 4.0)
                total += row_tiles * column_tiles * cycles
    return total


def orders(
    target: CpuTarget, itemsize: int, sizes: tuple[Dim, Dim, Dim], tile: TileChoice
) -> Iterator[tuple[str, int, int]]:
    """(order, block_tiles, group_panels), best first."""
    m, n, k = (
        size if isinstance(size, int) else assumed
        for size, assumed in zip(sizes, (ASSUMED_ROWS, ASSUMED_COLUMNS, ASSUMED_DEPTH), strict=True)
    )
    width = tile.vectors * tile.lanes
    half = target.l2_bytes // 2
    panel_bytes = max(1, k * width * itemsize)
    tile_bytes = max(1, k * tile.rows * itemsize)
    group = max(1, min(half // panel_bytes, -(-n // width)))
    block = max(1, min(half // tile_bytes, -(-m // tile.rows)))
    tiles, panels = -(-m // tile.rows), -(-n // width)
    small_b = k * n * itemsize <= half
    small_m = isinstance(sizes[0], int) and m * k * itemsize <= half
    if small_m and (not small_b or tiles < panels):
        # all rows stay in cache: panel after panel, shared between workers to within one tile
        yield "panels", block, 1
        yield "rows", block, group
        return
    first = "panels" if tiles >= target.threads else "rows"
    near = max(1, min(block, target.l1_bytes // tile_bytes))
    second = "rows" if first == "panels" else "panels"
    for order in (first, second):
        yield order, block if order == "rows" else near, group


def conflicts(stride: Dim, itemsize: int, rows: int) -> bool:
    """Whether rows `stride` elements apart would push each other out of the first-level cache."""
    if not isinstance(stride, int) or stride == 0 or rows <= 4:
        return False
    return stride * itemsize % CONFLICT_BYTES == 0
