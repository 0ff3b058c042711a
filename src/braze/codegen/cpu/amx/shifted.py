"""Convolutions whose input is copied once, with its padding, instead of once for every tap.

In a padded image the pixels under one tap lie as far from each other as the outputs do, if outputs
are counted as the padded image's lines are long: output (y, x) is row y * width + x of a product,
and its elements under a tap are those of pixel (y, x) moved by a constant. So a tile of rows is
read in place, tap by tap, and only the rows at the end of each line, which are no outputs, are
computed for nothing. Strides cut the image into planes first, of every s-th line and column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from llvmlite import ir

from braze.codegen.cpu.amx.registers import ROW_BYTES
from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.product.register_tile import TileShape, broadcast
from braze.codegen.cpu.product.rows import copy_row, line
from braze.codegen.cpu.product.stored import Stored
from braze.ops.lowering import ConvSpec

_MOST_WASTE: Final = 1.4  # rows over outputs
_MOST_STRIDE: Final = 2


@dataclass(frozen=True)
class Planes:
    """The padded image of a planar convolution; sizes: lines and columns of the input, outputs: of
    the output."""

    spec: ConvSpec
    sizes: tuple[int, int]
    outputs: tuple[int, int]

    @cached_property
    def width(self) -> int:
        """Columns of a plane, and rows of the product for each line of the output."""
        columns = self.sizes[1] + self.spec.pads[1] + self.spec.pads[3]
        return -(-columns // self.spec.strides[1])

    @property
    def rows(self) -> int:
        """Rows of the product."""
        return self.outputs[0] * self.width

    @cached_property
    def taps(self) -> list[tuple[tuple[int, int], int, int]]:
        """(plane, lines, columns) by which each tap is moved, in the order of the sums."""
        s, d = self.spec.strides, self.spec.dilations
        places = [
            (y * d[0], x * d[1])
            for y in range(self.spec.kernel[0])
            for x in range(self.spec.kernel[1])
        ]
        return [((y % s[0], x % s[1]), y // s[0], x // s[1]) for y, x in places]

    @cached_property
    def used(self) -> list[tuple[int, int]]:
        """The planes that any tap reads."""
        return sorted({plane for plane, _, _ in self.taps})

    @property
    def below(self) -> int:
        """Lines of a plane that outputs of one line read beyond it."""
        return max(lines for _, lines, _ in self.taps)

    def lines(self, rows: int) -> int:
        """Lines that `rows` neighbouring rows read, wherever they begin."""
        most = self.outputs[0]
        return min((rows - 1) // self.width + 2, most) + self.below

    def size(self, rows: int) -> int:
        """Elements of what a plane holds for `rows` rows."""
        beyond = max(columns for _, _, columns in self.taps)
        return (self.lines(rows) * self.width + beyond) * self.spec.in_channels

    def offsets(self, rows: int) -> list[int]:
        """Elements by which each tap is moved."""
        channels, size = self.spec.in_channels, self.size(rows)
        return [
            self.used.index(plane) * size + (lines * self.width + columns) * channels
            for plane, lines, columns in self.taps
        ]


def planes_of(spec: ConvSpec, itemsize: int) -> Planes | None:
    """The planes of a planar convolution, where tiles can be read in them and it pays."""
    sizes = [size for size in (*spec.in_spatial, *spec.out_spatial) if isinstance(size, int)]
    if spec.groups != 1 or len(spec.kernel) != 2 or len(sizes) < 4:
        return None
    if spec.in_channels * itemsize % ROW_BYTES or max(spec.strides) > _MOST_STRIDE:
        return None
    height, width, lines, columns = sizes
    planes = Planes(spec, (height, width), (lines, columns))
    return planes if 0 < planes.rows <= _MOST_WASTE * lines * columns else None


@dataclass(slots=True)
class ShiftedRows:
    """Rows in planes that are copied to `scratch`, `capacity` rows at a time. base: the image."""

    fn: KernelFunction
    shape: TileShape
    stored: Stored
    planes: Planes
    base: ir.Value
    scratch: ir.Value
    capacity: int
    taps: int = 1
    _first: ir.Value | None = None  # line of a plane

    @property
    def depth(self) -> int:
        return self.planes.spec.in_channels

    def begin(self, start: ir.Value, stop: ir.Value) -> None:
        """Copy what rows start .. stop-1 read."""
        fn, b, planes = self.fn, self.fn.builder, self.planes
        width, channels = planes.width, planes.spec.in_channels
        self._first = b.sdiv(start, i64(width))
        last = b.sdiv(b.sub(stop, i64(1)), i64(width))
        with fn.loop(self._first, b.add(last, i64(1 + planes.below))) as y:
            local = b.mul(b.sub(y, self._first), i64(width * channels))
            for k, plane in enumerate(planes.used):
                at = b.add(local, i64(k * planes.size(self.capacity)))
                self._line(plane, y, fn.at(self.scratch, at, self.shape.element))

    def _line(self, plane: tuple[int, int], y: ir.Value, target: ir.Value) -> None:
        """Line `y` of a plane."""
        fn, b, spec, width = self.fn, self.fn.builder, self.planes.spec, self.planes.width
        (height, columns), channels = self.planes.sizes, spec.in_channels
        step, before = spec.strides[1], spec.pads[1] - plane[1]
        low = max(0, -(-before // step))
        high = max(low, min(width, (columns - 1 + before) // step + 1))
        above = b.add(b.mul(y, i64(spec.strides[0])), i64(plane[0] - spec.pads[0]))
        inside = b.icmp_unsigned("<", above, i64(height))
        with fn.if_else(inside) as (yes, no):
            with yes:
                row = b.mul(above, i64(columns * channels))
                self._fill(target, 0, low)
                self._copy(target, self.stored.at(self.base, row), (low, high), step, before)
                self._fill(target, high, width)
            with no:
                self._fill(target, 0, width)

    def _copy(
        self, target: ir.Value, source: ir.Value, part: tuple[int, int], step: int, before: int
    ) -> None:
        """Columns part[0] .. part[1]-1 of a line: column x is pixel x * step - before."""
        fn, b, channels = self.fn, self.fn.builder, self.planes.spec.in_channels
        low, high = part
        if high == low:
            return
        if step == 1:
            to = fn.at(target, low * channels, self.shape.element)
            pixel = self.stored.at(source, (low - before) * channels)
            copy_row(self.stored, self.shape, to, pixel, (high - low) * channels)
            return
        with fn.loop(low, high) as x:
            to = fn.at(target, b.mul(x, i64(channels)), self.shape.element)
            column = b.sub(b.mul(x, i64(step)), i64(before))
            pixel = self.stored.at(source, b.mul(column, i64(channels)))
            copy_row(self.stored, self.shape, to, pixel, channels)

    def _fill(self, target: ir.Value, low: int, high: int) -> None:
        """Padding in columns low .. high-1."""
        if high <= low:
            return
        fn, spec, element, lanes = self.fn, self.planes.spec, self.shape.element, self.shape.lanes
        padding = broadcast(fn, ir.Constant(element, spec.fill), lanes)
        with fn.loop(low * spec.in_channels, high * spec.in_channels, lanes) as i:
            fn.store(padding, fn.at(target, i, element))

    def line(self, row: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where `row` starts under the first tap, and bytes to the next."""
        b = self.fn.builder
        local = b.sub(row, b.mul(self._first, i64(self.planes.width)))
        return line(self.fn, self.shape, self.scratch, local, self.planes.spec.in_channels)
