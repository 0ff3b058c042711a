"""Where tiles of output rows lie, and how the left operand of one is copied: rows of a matrix, or
boxes of pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from braze.codegen.cuda.gluon.layout import SWIZZLES, GluonTile
from braze.codegen.cuda.gluon.shapes import Rows, Windows
from braze.codegen.cuda.triton.source import Source, Val
from braze.codegen.cuda.triton.tile import AnchorWriter, ceil_div
from braze.core.dims import Dim, product
from braze.core.dtypes import DType
from braze.fusion.kernel import TensorMap

Masked = tuple[list[Val], Val, Val | None]


class Tiles(Protocol):
    """The left operand of a product in tiles of output rows."""

    @property
    def columns(self) -> int:
        """Of the output."""

    @property
    def steps(self) -> int:
        """Steps along k."""

    @property
    def count(self) -> Dim:
        """Tiles of rows."""

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """Sizes that the code reads."""

    def map(self) -> TensorMap:
        """How the operand is copied, a step of a tile at a time."""

    def place(self, w: AnchorWriter, out: Source) -> None:
        """Write what the place of tile `row_tile` is called."""

    def coordinates(self, out: Source) -> str:
        """Where the box of step `step` of a placed tile begins."""

    def rows(self, w: AnchorWriter, kind: str, layout: str = "layout") -> Masked:
        """Of the rows of a placed tile: their axes, their numbers in the output, which exist."""


def lanes(count: int, layout: str = "layout") -> str:
    """The numbers below `count` down the rows of a layout, in source text."""
    return f"tl.arange(0, {count}, gl.SliceLayout(1, {layout}))[:, None]"


@dataclass(frozen=True)
class RowTiles:
    """Tiles of consecutive rows."""

    shape: Rows
    tile: GluonTile
    dtype: DType

    @property
    def columns(self) -> int:
        return self.shape.columns

    @property
    def steps(self) -> int:
        return -(-self.shape.depth // self.tile.steps_of(self.dtype))

    @property
    def count(self) -> Dim:
        return ceil_div(self.shape.count, self.tile.rows)

    @property
    def sizes(self) -> tuple[Dim, ...]:
        return (*self.shape.sizes, self.shape.count)

    def map(self) -> TensorMap:
        box = (self.tile.rows, self.tile.steps_of(self.dtype))
        whole = (self.shape.count, self.shape.offset + self.shape.depth)
        return TensorMap(0, self.dtype, whole, (self.shape.pitch,), box, SWIZZLES[self.tile.depth])

    def place(self, w: AnchorWriter, out: Source) -> None:
        out.line(f"first_row = row_tile * {self.tile.rows}")

    def coordinates(self, out: Source) -> str:
        return f"first_row, {self.shape.offset} + step * {self.tile.steps_of(self.dtype)}"

    def rows(self, w: AnchorWriter, kind: str, layout: str = "layout") -> Masked:
        row = w.a.put(f"(first_row + {lanes(self.tile.rows, layout)}).to(tl.{kind})", kind)
        mask = w.below(row, self.shape.count, self.tile.rows)
        return w.unravel(row, self.shape.sizes), row, mask


@dataclass(frozen=True)
class PixelTiles:
    """Tiles of `images` x `height` x `width` output pixels of a convolution.

    What lies outside of the image is zero as what lies outside of a tensor map. A stride of 2 looks
    at an axis as pairs: its map has half the size, and even and odd pixels apart.
    """

    shape: Windows
    tile: GluonTile
    dtype: DType

    @property
    def images(self) -> int:
        return self.tile.rows // (self.tile.height * self.tile.width)

    @property
    def columns(self) -> int:
        return self.shape.out_channels

    @property
    def blocks(self) -> int:
        """Steps of one tap."""
        return -(-self.shape.channels // self.tile.steps_of(self.dtype))

    @property
    def steps(self) -> int:
        return math.prod(self.shape.kernel) * self.blocks

    @property
    def grid(self) -> tuple[Dim, Dim, Dim]:
        """Tiles along images, height and width."""
        n, (p, q) = self.shape.batch, self.shape.out
        t = self.tile
        return ceil_div(n, self.images), ceil_div(p, t.height), ceil_div(q, t.width)

    @property
    def count(self) -> Dim:
        return product(self.grid)

    @property
    def sizes(self) -> tuple[Dim, ...]:
        return (self.shape.batch, *self.shape.out, *self.grid)

    def map(self) -> TensorMap:
        s, depth = self.shape, self.tile.steps_of(self.dtype)
        (h, w), pitch, end = s.size, s.pitch, s.offset + s.channels
        shape: tuple[Dim, ...] = (s.batch, h, w, end)
        strides: tuple[Dim, ...] = (h * s.line * pitch, s.line * pitch, pitch)
        box: tuple[int, ...] = (self.images, self.tile.height, self.tile.width, depth)
        if s.strides[1] == 2:
            assert isinstance(w, int)
            shape, strides = (s.batch, h, w // 2, pitch + end), (*strides[:2], 2 * pitch)
        if s.strides[0] == 2:
            assert isinstance(h, int)
            shape = (s.batch, h // 2, 2, *shape[2:])
            strides = (strides[0], 2 * s.line * pitch, *strides[1:])
            box = (self.images, self.tile.height, 1, self.tile.width, depth)
        return TensorMap(0, self.dtype, shape, strides, box, SWIZZLES[self.tile.depth])

    def place(self, w: AnchorWriter, out: Source) -> None:
        _, high, wide = self.grid
        down, across = w.number(high), w.number(wide)
        out.line(f"image = row_tile // ({down} * {across}) * {self.images}")
        out.line(f"top = row_tile // {across} % {down} * {self.tile.height}")
        out.line(f"side = row_tile % {across} * {self.tile.width}")

    def coordinates(self, out: Source) -> str:
        s, depth = self.shape, self.tile.steps_of(self.dtype)
        taps = math.prod(s.kernel)
        block = f"step % {self.blocks}" if taps > 1 else "step"
        channel = f"{s.offset} + {block} * {depth}"
        names = ("top", "side")
        places: list[str] = ["image"]
        for i in range(2):
            tap = f"step // {self.blocks}" + (
                f" // {s.kernel[1]}" if i == 0 else f" % {s.kernel[1]}"
            )
            moved = (
                f"{tap} * {s.dilations[i]} - {s.pads[i]}" if s.kernel[i] > 1 else str(-s.pads[i])
            )
            out.line(f"move{i} = {moved}")
            if s.strides[i] == 1:
                places.append(f"{names[i]} + move{i}")
                continue
            places.append(f"{names[i]} + (move{i} >> 1)")
            if i == 0:
                places.append("move0 & 1")
            else:
                channel = f"(move1 & 1) * {s.pitch} + {channel}"
        return ", ".join([*places, channel])

    def rows(self, w: AnchorWriter, kind: str, layout: str = "layout") -> Masked:
        s, t = self.shape, self.tile
        lane = w.a.put(lanes(t.rows, layout), "int32")
        axes: list[Val] = []
        mask: Val | None = None
        parts = (
            (f"image + {lane} // {t.height * t.width}", s.batch, self.images),
            (f"top + {lane} // {t.width} % {t.height}", s.out[0], t.height),
            (f"side + {lane} % {t.width}", s.out[1], t.width),
        )
        number: Val | None = None
        for text, size, step in parts:
            at = w.a.put(f"({text}).to(tl.{kind})", kind)
            axes.append(at)
            mask = w.both(mask, w.below(at, size, step))
            before = "" if number is None else f"{number} * {w.text(size)} + "
            number = w.a.put(f"{before}{at}", kind)
        assert number is not None
        return axes, number, mask
