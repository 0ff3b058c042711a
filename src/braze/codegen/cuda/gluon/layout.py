"""Where a warp group's accumulators lie, and the order of weight rows that makes them neighbours.

A warp group multiplies 64 rows by `columns` columns. Its instruction leaves a thread with the
columns 8j + 2q + e, j = 0.., e = 0 and 1, q its number in four: never more than two neighbours.
With channel 8q + 2j + e of every 32 as row 8j + 2q + e of the weight the same registers hold eight
neighbouring channels, and the four threads 32: results are stored, and residuals read, 64 bytes
of a row at a time, without passing through shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from braze.core.dtypes import DType
from braze.fusion.kernel import Tactic

RUN, CHUNK = 8, 32  # neighbouring channels of a thread, and of the four that share a row
DEPTH_BYTES = 128  # of one step along k: the widest swizzle of shared memory


@dataclass(frozen=True, slots=True)
class GluonTile:
    """rows x columns of the output at a time, in steps of 128 bytes along k.

    warps: of a group that multiplies (4 or 8); stages: steps in flight; consumers: groups beside a
    warp that only loads, taking turns over tiles (1 or 2), or 0: every program computes one tile,
    and the warps that multiply load too. height, width: of the box of output pixels that the rows
    are, as many images of them as it takes; 1 and 1 for what has no pixels.
    """

    rows: int
    columns: int
    warps: int
    stages: int
    consumers: int
    height: int = 1
    width: int = 1


def depth_of(dtype: DType) -> int:
    """Elements of one step along k."""
    return DEPTH_BYTES // dtype.itemsize


def gluon_tactic(t: GluonTile) -> Tactic:
    """A tile as a tactic."""
    return Tactic(
        "gluon",
        (
            ("rows", t.rows), ("columns", t.columns), ("warps", t.warps), ("stages", t.stages),
            ("consumers", t.consumers), ("height", t.height), ("width", t.width),
        ),
    )  # fmt: skip


def gluon_tile(tactic: Tactic) -> GluonTile:
    """The tile of a tactic."""
    return GluonTile(**{k: int(v) for k, v in tactic.parameters})


def spread_order(columns: int) -> NDArray[np.intp]:
    """The channel that stands in each row of a block of `columns` weight rows."""
    row = np.arange(columns)
    return row // CHUNK * CHUNK + row % 8 // 2 * RUN + row % CHUNK // 8 * 2 + row % 2


def _bits(low: int, high: int) -> list[int]:
    """Powers of two from `low` up to, not including, `high`."""
    return [1 << i for i in range(low.bit_length() - 1, high.bit_length() - 1)]


def spread_layout(t: GluonTile) -> str:
    """The layout of the accumulators with their columns in channel order, as Gluon source."""
    registers = [[0, c] for c in (*_bits(1, RUN), *_bits(CHUNK, t.columns))]
    registers += [[8, 0], *([r, 0] for r in _bits(16 * t.warps, t.rows))]
    lanes = [[0, RUN], [0, 2 * RUN], [1, 0], [2, 0], [4, 0]]
    warps = [[r, 0] for r in _bits(16, 16 * t.warps)]
    return f"gl.DistributedLinearLayout({registers}, {lanes}, {warps}, [], [{t.rows}, {t.columns}])"


def spread(t: GluonTile, acc: str, layout: str = "layout") -> str:
    """The accumulators in that layout, by its name: columns change names, nothing moves."""
    parts = [t.rows, t.columns // CHUNK, 4, 4, 2]
    turned = f"{acc}.reshape({parts}).permute([0, 1, 3, 2, 4])"
    block = f"{turned}.reshape([{t.rows}, {t.columns}])"
    return f"gl.convert_layout({block}, {layout}, assert_trivial=True)"
