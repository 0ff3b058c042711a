"""A product or convolution and the tile that computes it: what its source is written from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from braze.codegen.cuda.gluon.layout import SWIZZLES, GluonTile, run_of
from braze.codegen.cuda.gluon.tiles import Tiles
from braze.codegen.cuda.triton.tile import FLOAT8, AnchorWriter
from braze.core.dtypes import I8, DType
from braze.fusion.kernel import Packing, TensorMap

MOST_COLUMNS = 256  # of one instruction


@dataclass(frozen=True)
class Job:
    """One kernel and tile: what the pieces of its source are written from."""

    w: AnchorWriter
    left: Tiles
    tile: GluonTile
    dtype: DType
    turned: bool  # the weight is stored [depth, columns]
    joined: int = 1  # taps along the last axis that count as channels

    @property
    def step(self) -> int:
        """Elements of a step along k."""
        return self.tile.steps_of(self.dtype)

    @property
    def run(self) -> int:
        """Neighbouring columns of a thread."""
        return run_of(self.tile, self.w.kernel.output.dtype)

    @property
    def parts(self) -> list[tuple[int, GluonTile]]:
        """First column and tile of each of its powers of two, wide ones first; Triton multiplies
        bytes by fewer than 256 columns at a time."""
        found, rest, at = [], self.tile.columns, 0
        most = MOST_COLUMNS // 2 if self.dtype is I8 else MOST_COLUMNS
        while rest:
            width = min(most, 1 << (rest.bit_length() - 1))
            found.append((at, replace(self.tile, columns=width)))
            at, rest = at + width, rest - width
        return found

    @property
    def sums(self) -> str:
        """The type of sums."""
        return self.w.kernel.spec.acc.name

    @property
    def element(self) -> str:
        """The type of the operands in Gluon's words."""
        return FLOAT8.get(self.dtype, self.dtype.name)

    @property
    def lift(self) -> int:
        """After how many steps the sum of a tensor core is added to one in float32; 0: never."""
        if self.dtype not in FLOAT8:
            return 0
        return math.gcd(self.tile.lift, self.left.steps) if self.tile.lift else self.left.steps

    @property
    def totals(self) -> list[str]:
        """The names of the sums."""
        return [f"acc{i}" for i in range(len(self.parts))]

    @property
    def partial(self) -> list[str]:
        """Those of few steps, where these are lifted."""
        return [f"part{i}" for i in range(len(self.parts))]

    @property
    def rights(self) -> list[str]:
        """The names of the weight's parts in shared memory."""
        return [f"right{i}" for i in range(len(self.parts))]

    @property
    def maps(self) -> list[str]:
        """The arguments that copy boxes: of the left operand, and of the weight's parts."""
        return [f"map{i}" for i in range(1 + len(self.parts))]

    @property
    def shared(self) -> str:
        """What lies in shared memory, as arguments."""
        return ", ".join(["left", *self.rights, "full", "empty", "turn"])

    @property
    def column_tiles(self) -> int:
        return -(-self.left.columns // self.tile.columns)

    @property
    def bytes(self) -> int:
        """Of one step."""
        return (self.tile.rows + self.tile.columns) * self.tile.depth

    @property
    def tiles(self) -> str:
        """The number of tiles, in source text."""
        return f"({self.w.number(self.left.count)} * {self.column_tiles})"

    @property
    def sizes(self) -> str:
        """The sizes among the arguments."""
        return "".join(f", n{i}" for i in range(len(self.w.params)))

    @property
    def pointers(self) -> str:
        """The arguments that the epilogue needs."""
        tensors = range(len(self.w.kernel.inputs) + 1)
        return ", ".join([*(f"in{i}" for i in tensors), "status"]) + self.sizes

    @property
    def packing(self) -> Packing:
        """How the weight is laid out."""
        parameters = (
            ("block", self.tile.columns), ("depth", self.step), ("turned", int(self.turned)),
            ("run", self.run), ("joined", self.joined),
        )  # fmt: skip
        return Packing("rows", self.dtype, parameters)

    def weight_map(self, rows: int) -> TensorMap:
        """How so many rows of the packed weight are copied."""
        depth, columns = self.left.steps * self.step, self.column_tiles * self.tile.columns
        swizzle = SWIZZLES[self.tile.depth]
        return TensorMap(1, self.dtype, (columns, depth), (depth,), (rows, self.step), swizzle)

    def shared_layout(self, rank: int) -> str:
        """The layout of an operand in shared memory."""
        return f"gl.NVMMASharedLayout({self.tile.depth}, {self.dtype.bits}, {rank})"

    def matrix(self, slot: str) -> str:
        """The left operand in a slot; a box of pixels is taken for rows of a matrix."""
        if len(self.left.map().box) == 2:
            return slot
        shape = [self.tile.rows, self.step]
        return f"rows_of({slot}, {shape}, {self.shared_layout(2)})"

    def zeros(self, part: GluonTile) -> str:
        """The sums of a part at first."""
        instruction = [16, part.columns, 32 // self.dtype.itemsize]
        layout = f"gl.NVMMADistributedLayout([3, 0], [{part.warps}, 1], {instruction})"
        return f"gl.zeros([{part.rows}, {part.columns}], gl.{self.sums}, {layout})"
