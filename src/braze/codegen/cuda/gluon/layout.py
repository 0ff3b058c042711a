"""Where a warp group's accumulators lie, and the order of weight rows that makes them neighbours.

A warp group multiplies 64 rows by `columns` columns. Its instruction leaves a thread with the
columns 8j + 2q + e, j = 0.., e = 0 and 1, q its number in four: never more than two neighbours.
With channel 8q + 2j + e of every 32 as row 8j + 2q + e of the weight the same registers hold eight
neighbouring channels, and the four threads 32: results are stored, and residuals read, 64 bytes
of a row at a time, without passing through shared memory. Where the results are bytes, 16 of every
64 are neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from braze.core.dtypes import DType
from braze.fusion.kernel import Tactic

SHARERS = 4  # threads that share a row
RUN, BYTE_RUN = 8, 16  # neighbouring channels of a thread; where results are bytes
DEPTH_BYTES = 128  # of one step along k: the widest swizzle of shared memory
LIFT = 2  # steps whose products of 8-bit floats tensor cores sum before float32 does
SWIZZLES = {64: 2, 128: 3}  # CUtensorMapSwizzle by bytes of a step


@dataclass(frozen=True, slots=True)
class GluonTile:
    """rows x columns of the output at a time, in steps of `depth` bytes along k, 128 or 64.

    warps: of a group that multiplies (4 or 8); stages: steps in flight; consumers: groups beside a
    warp that only loads, taking turns over tiles (1 or 2), or 0: every program computes one tile,
    and the warps that multiply load too. height, width: of the box of output pixels that the rows
    are, as many images of them as it takes; 1 and 1 for what has no pixels. lift: after how many
    steps sums of products of 8-bit floats go on in float32.
    """

    rows: int
    columns: int
    warps: int
    stages: int
    consumers: int
    height: int = 1
    width: int = 1
    depth: int = DEPTH_BYTES
    lift: int = LIFT

    def steps_of(self, dtype: DType) -> int:
        """Elements of one step along k."""
        return self.depth // dtype.itemsize


def gluon_tactic(t: GluonTile) -> Tactic:
    """A tile as a tactic."""
    lift = (("lift", t.lift),) if t.lift != LIFT else ()
    return Tactic(
        "gluon",
        (
            ("rows", t.rows), ("columns", t.columns), ("warps", t.warps), ("stages", t.stages),
            ("consumers", t.consumers), ("height", t.height), ("width", t.width),
            ("depth", t.depth), *lift,
        ),
    )  # fmt: skip


def gluon_tile(tactic: Tactic) -> GluonTile:
    """The tile of a tactic."""
    return GluonTile(**{k: int(v) for k, v in tactic.parameters})


def run_of(t: GluonTile, output: DType) -> int:
    """Neighbouring channels of a thread: 16 bytes of them, where the tile has columns for that."""
    wide = output.itemsize == 1 and t.columns % (SHARERS * BYTE_RUN) == 0
    return BYTE_RUN if wide else RUN


def spread_order(columns: int, run: int = RUN) -> NDArray[np.intp]:
    """The channel that stands in each row of a block of `columns` weight rows."""
    row, chunk = np.arange(columns), SHARERS * run
    return row // chunk * chunk + row % 8 // 2 * run + row % chunk // 8 * 2 + row % 2


def _bits(low: int, high: int) -> list[int]:
    """Powers of two from `low` up to, not including, `high`."""
    return [1 << i for i in range(low.bit_length() - 1, high.bit_length() - 1)]


def spread_layout(t: GluonTile, run: int = RUN) -> str:
    """The layout of the accumulators with their columns in channel order, as Gluon source."""
    registers = [[0, c] for c in (*_bits(1, run), *_bits(SHARERS * run, t.columns))]
    registers += [[8, 0], *([r, 0] for r in _bits(16 * t.warps, t.rows))]
    lanes = [[0, run], [0, 2 * run], [1, 0], [2, 0], [4, 0]]
    warps = [[r, 0] for r in _bits(16, 16 * t.warps)]
    return f"gl.DistributedLinearLayout({registers}, {lanes}, {warps}, [], [{t.rows}, {t.columns}])"


def spread(t: GluonTile, acc: str, layout: str = "layout", run: int = RUN) -> str:
    """The accumulators in that layout, by its name: columns change names, nothing moves."""
    parts = [t.rows, t.columns // (SHARERS * run), run // 2, SHARERS, 2]
    turned = f"{acc}.reshape({parts}).permute([0, 1, 3, 2, 4])"
    block = f"{turned}.reshape([{t.rows}, {t.columns}])"
    return f"gl.convert_layout({block}, {layout}, assert_trivial=True)"
