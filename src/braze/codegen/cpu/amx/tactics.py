"""Which tiles and loops of AMX are worth trying for a product, and whether AMX is used at all.

A performance policy only: for given sizes every choice gives the same bits. Sums of bfloat16 have
other roundings than those of the instruction for pairs, so whether they are taken depends on what
a model says and not on measured times, nor on the number of rows, which a batch changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from braze.codegen.cpu.amx.registers import ROWS
from braze.codegen.cpu.product.dot import WORDS
from braze.codegen.cpu.product.tactics import ASSUMED_ROWS
from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import Dim
from braze.core.dtypes import BF16, I8, U8, DType

CHUNK: Final = 16  # words of a tile's row
SHIFT: Final = "shift"  # the way to read rows of a convolution in planes (see shifted.py)
SHAPES: Final = ((2, 2), (1, 4), (1, 3), (4, 1), (3, 1), (2, 1), (1, 2), (1, 1))
_LEAST_COLUMNS, _LEAST_WORDS = 16, 8  # less fills no tile
_LATENCY, _LOAD, _FETCH = 52, 8, 25  # cycles: a product; loading a tile, from the second level
_ROOM: Final = 0.8  # of the first level that one side of a tile may take
_UNLIKE: Final = 1.5  # times as many rows as columns, or the other way round
_UNEVEN: Final = 1.34  # more steps than full ones, up to which rows need no copy


@dataclass(frozen=True, slots=True)
class Unit:
    """One kind of AMX: its name as an extra of the target, its instruction."""

    extra: str
    instruction: str


UNITS: Final = {
    (U8, I8): Unit("amx-int8", "tdpbusd"),
    (BF16, BF16): Unit("amx-bf16", "tdpbf16ps"),
}


def unit_of(target: CpuTarget, operands: Sequence[DType], n: int, k: int) -> Unit | None:
    """What multiplies these operands in tiles, if the target has it and the sizes fill tiles."""
    left, right = operands
    unit = UNITS.get((left, right))
    if unit is None or unit.extra not in target.extras:
        return None
    return unit if n >= _LEAST_COLUMNS and words(k, right) >= _LEAST_WORDS else None


def words(k: int, dtype: DType) -> int:
    """Words of 32 bits that `k` elements are."""
    return -(-k // WORDS[dtype])


def chunk_of(count: int) -> int:
    """Words of a step, of `count` in a row: all equal and nearly full, or full ones."""
    if count <= CHUNK:
        return count
    best = max(d for d in range(1, CHUNK + 1) if count % d == 0)
    return best if count // best <= _UNEVEN * -(-count // CHUNK) else CHUNK


def shapes(target: CpuTarget, m: Dim, n: int, row_bytes: int) -> list[tuple[int, int]]:
    """Tiles of rows and of columns that are multiplied together, best estimate first."""
    rows = m if isinstance(m, int) else ASSUMED_ROWS
    tiles, panels = max(1, -(-rows // ROWS)), -(-n // ROWS)
    found = [(h, w) for h, w in SHAPES if h <= tiles and w <= panels]

    def cost(shape: tuple[int, int]) -> float:
        """Cycles of a step of k over the whole product."""
        heights, widths = shape
        across = ((widths, panels // widths), (panels % widths, 1))
        down = ((ROWS * heights, rows // (ROWS * heights)), (rows % (ROWS * heights), 1))
        return sum(
            count * times * _step_cost(target, height, width, row_bytes)
            for width, count in across
            for height, times in down
            if width and height
        )

    return sorted(found, key=lambda s: (cost(s), -s[0] * s[1]))


def _step_cost(target: CpuTarget, rows: int, widths: int, row_bytes: int) -> float:
    """Cycles of a step of k for `rows` rows: products, loads, or what comes from the second level.

    One side stays in the first level while the other passes by, if it has room there.
    """
    heights = -(-rows // ROWS)
    room = _ROOM * target.l1_bytes // (ROWS * row_bytes)
    passing = min(
        widths if heights <= room else heights + widths,
        heights if widths <= room else heights + widths,
    )
    return max(rows * widths, _LOAD * (heights + widths), _LATENCY, _FETCH * passing)


def cuts(
    target: CpuTarget, sizes: tuple[Dim, int, int], shape: tuple[int, int], mode: str
) -> tuple[tuple[str, int, int], ...]:
    """(order, block_tiles, group_panels), best first; sizes: rows, columns, bytes of a row.

    Blocks as large as the second level holds come first: panels stay in the first one while rows
    pass by, and what was just copied is not loaded at once. Rows are copied once for each group of
    panels and each unit of a block, so that all panels are one group, or blocks are small where
    workers share one.
    """
    (m, n, row_bytes), (heights, widths) = sizes, shape
    if mode == SHIFT:
        return _shifted_cuts(target, m, n, shape)
    rows, half = (m if isinstance(m, int) else ASSUMED_ROWS), target.l2_bytes // 2
    tiles, panels = -(-rows // (ROWS * heights)), -(-n // (ROWS * widths))
    tile_bytes, panel_bytes = ROWS * heights * row_bytes, ROWS * widths * row_bytes
    share = max(1, -(-tiles // target.threads))
    near = max(1, min(target.l1_bytes // 2 // tile_bytes, share))
    far = max(1, min(half // 2 // tile_bytes, share))
    whole = max(1, min(half // tile_bytes, tiles))
    group = panels if mode != "direct" else max(1, min(half // panel_bytes, panels))
    by_rows = [("panels", far, group), ("panels", near, group)]
    if mode == "direct":
        by_panels = [("panels", whole, 1), ("rows", whole, 1)]
        few = whole == tiles and (tiles < panels or n * row_bytes > half)
    else:
        by_panels = [("rows", whole if target.threads == 1 else near, 1), ("rows", whole, 1)]
        few = tiles < 2 * target.threads
    first, second = (by_panels, by_rows) if few else (by_rows, by_panels)
    if mode == "direct" and target.threads > 1 and max(n, rows) > _UNLIKE * min(n, rows):
        # each worker reads all of what is not cut, which times in warm caches do not show
        return tuple(dict.fromkeys(by_panels if n > rows else by_rows))
    return tuple(dict.fromkeys((first[0], second[0], first[1], second[1])))[:3]


def _shifted_cuts(
    target: CpuTarget, m: Dim, n: int, shape: tuple[int, int]
) -> tuple[tuple[str, int, int], ...]:
    """The same for rows in planes: copying them is cheap beside their products, so that workers may
    each copy all of them and share the columns."""
    assert isinstance(m, int)
    tiles, panels = -(-m // (ROWS * shape[0])), -(-n // (ROWS * shape[1]))
    share = -(-tiles // target.threads)
    by_rows = [("panels", share, panels), ("panels", -(-share // 4), panels)]
    by_panels = [("rows", tiles, 1), ("rows", -(-tiles // 2), 1)]
    if target.threads == 1:
        return tuple(dict.fromkeys(by_rows))
    first, second = (by_panels, by_rows) if n > m else (by_rows, by_panels)
    return tuple(dict.fromkeys((first[0], second[0], first[1])))
