"""Rows of a convolution of few channels, where one tap is too short for the register tile's loop.

`LineRows` reads a whole line of the window at a time: kernel columns and channels lie next to
each other in the input. Only lines that leave the input are copied, with zeros. `PatchRows` copies
every window to scratch; it also serves dilated columns, groups and stored types that are not the
ones multiplied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

from llvmlite import ir

from braze.codegen.cpu.conv.taps import Window, each_pixel, steps, table_pointers
from braze.codegen.cpu.llvm.function import I1, POINTER, KernelFunction, i64
from braze.codegen.cpu.product.register_tile import TileShape
from braze.codegen.cpu.product.rows import ROW_PADDING, Spacing, copy_row, line, spaced
from braze.codegen.cpu.product.stored import Stored
from braze.ops.lowering import ConvSpec

_LONGEST_RUN = 32  # vectors that a copy is spelled out for; longer ones are a loop


def run_length(spec: ConvSpec) -> int:
    """Elements of one line of the window."""
    return spec.kernel[-1] * (spec.in_channels // spec.groups)


def lines_of(spec: ConvSpec) -> int:
    """Lines of the window."""
    return math.prod(spec.kernel[:-1])


def is_joined(spec: ConvSpec) -> bool:
    """Whether a line of the window is one run of memory."""
    return spec.dilations[-1] == 1 and spec.groups == 1


@dataclass(slots=True)
class Line:
    """One line of one pixel's window: its number, input line, and whether that exists."""

    number: ir.Value
    source: ir.Value
    left: ir.Value
    exists: ir.Value


def line_of(stored: Stored, spec: ConvSpec, window: Window, number: ir.Value) -> Line:
    """Line `number` of a window: of all axes but the last, in row-major order."""
    fn, b = stored.fn, stored.fn.builder
    *sizes, width = (fn.dim(size) for size in spec.in_spatial)
    taps, rest = [], number
    for size in reversed(spec.kernel[1:-1]):
        taps.append(b.srem(rest, i64(size)))
        rest = b.sdiv(rest, i64(size))
    taps.append(rest)
    flat, exists = i64(0), ir.Constant(I1, 1)
    for axis, tap in enumerate(reversed(taps)):
        at = b.add(window.starts[axis], b.mul(tap, i64(spec.dilations[axis])))
        flat = b.add(b.mul(flat, sizes[axis]), at) if axis else at
        inside = b.icmp_unsigned("<", at, sizes[axis])
        exists = b.and_(exists, inside) if axis else inside
    offset = b.mul(b.mul(flat, width), i64(spec.in_channels))
    return Line(number, stored.moved(window.image, offset), window.left, exists)


def columns_inside(fn: KernelFunction, spec: ConvSpec, window: Window) -> ir.Value:
    """Whether the window leaves the input neither to the left nor to the right."""
    return _axis_inside(fn, spec, window, len(spec.kernel) - 1)


def rows_inside(fn: KernelFunction, spec: ConvSpec, window: Window) -> ir.Value:
    """Whether all lines of the window lie in the input."""
    inside = [_axis_inside(fn, spec, window, axis) for axis in range(len(spec.kernel) - 1)]
    return reduce(fn.builder.and_, inside)


def _axis_inside(fn: KernelFunction, spec: ConvSpec, window: Window, axis: int) -> ir.Value:
    b, start = fn.builder, window.starts[axis]
    last = b.add(start, i64((spec.kernel[axis] - 1) * spec.dilations[axis]))
    starts = b.icmp_signed(">=", start, i64(0))
    return b.and_(starts, b.icmp_signed("<", last, fn.dim(spec.in_spatial[axis])))


@dataclass(slots=True)
class LineRows:
    """Pointers per line of the window; `table` holds kernel rows * capacity of them.

    edges: scratch for the lines that have to be copied, capacity * kernel rows * run_length.
    """

    fn: KernelFunction
    shape: TileShape
    spec: ConvSpec
    base: ir.Value
    table: ir.Value
    edges: ir.Value
    capacity: int
    _start: ir.Value | None = None

    @property
    def taps(self) -> int:
        return self.spec.kernel[0]

    @property
    def depth(self) -> int:
        return run_length(self.spec)

    def begin(self, start: ir.Value, stop: ir.Value) -> None:
        """Fill the table for one block."""
        fn, b, spec, element = self.fn, self.fn.builder, self.spec, self.shape.element
        self._start = start
        zeros = fn.zeros(self.depth * self.shape.itemsize)
        stored = Stored(fn, self.shape.dtype)
        with each_pixel(stored, spec, self.base, start, stop) as (pixel, window):
            local = b.sub(pixel, start)
            at = b.mul(window.left, i64(spec.in_channels))
            for number in steps(fn, spec.kernel[0]):
                line = line_of(stored, spec, window, number)
                direct = stored.moved(line.source, at)
                slot = fn.at(self.table, self._index(number, local), POINTER)
                b.store(b.select(line.exists, direct, zeros), slot, align=8)
            leaves = b.not_(columns_inside(fn, spec, window))
            with fn.if_(leaves, likely=False), fn.loop(0, spec.kernel[0]) as number:
                index = self._index(number, local)
                edge = fn.at(self.edges, b.mul(index, i64(self.depth)), element)
                line = line_of(stored, spec, window, number)
                copy_edge(stored, self.shape, spec, edge, line)
                b.store(edge, fn.at(self.table, index, POINTER), align=8)

    def _index(self, number: ir.Value, local: ir.Value) -> ir.Value:
        return self.fn.builder.add(self.fn.builder.mul(number, i64(self.capacity)), local)

    def pointers(
        self, tap: ir.Value, row: ir.Value, count: int, last: ir.Value | None = None
    ) -> list[ir.Value]:
        """See Rows."""
        line = self.fn.at(self.table, self.fn.builder.mul(tap, i64(self.capacity)), POINTER)
        return table_pointers(self.fn, line, (self._start, row, last), count)


@dataclass(slots=True)
class PatchRows:
    """Windows copied to `scratch`, one row of kernel * channels elements each; over any number of
    axes. spacing: how they lie there (None: `pitch` apart)."""

    fn: KernelFunction
    shape: TileShape
    stored: Stored
    spec: ConvSpec
    base: ir.Value
    scratch: ir.Value
    taps: int = 1
    spacing: Spacing | None = None
    _start: ir.Value | None = None

    @property
    def apart(self) -> int:
        """Elements from one window to the next."""
        return self.pitch(self.spec) if self.spacing is None else self.spacing.pitch

    @property
    def depth(self) -> int:
        return lines_of(self.spec) * run_length(self.spec)

    @staticmethod
    def pitch(spec: ConvSpec) -> int:
        """Elements from one window to the next."""
        depth = lines_of(spec) * run_length(spec)
        return -(-depth // ROW_PADDING) * ROW_PADDING + ROW_PADDING

    def begin(self, start: ir.Value, stop: ir.Value) -> None:
        """Copy the windows of one block."""
        fn, b, spec, element = self.fn, self.fn.builder, self.spec, self.shape.element
        self._start = start
        length, stored = run_length(spec), self.stored
        with each_pixel(stored, spec, self.base, start, stop) as (pixel, window):
            offset = b.mul(b.sub(pixel, start), i64(self.apart))
            patch = fn.at(self.scratch, offset, element)
            if self.spacing is not None:
                self.spacing.clear(fn, patch, element)
            inside = ir.Constant(I1, 0)
            if is_joined(spec):
                inside = columns_inside(fn, spec, window)
                inside = b.and_(inside, rows_inside(fn, spec, window))
            with fn.if_else(inside) as (yes, no):
                with yes:
                    at = b.mul(window.left, i64(spec.in_channels))
                    for number in steps(fn, lines_of(spec)):
                        line = line_of(stored, spec, window, number)
                        target = fn.at(patch, b.mul(number, i64(length)), element)
                        copy_run(stored, self.shape, target, stored.moved(line.source, at), length)
                with no, fn.loop(0, lines_of(spec)) as number:
                    line = line_of(stored, spec, window, number)
                    target = fn.at(patch, b.mul(number, i64(length)), element)
                    copy_edge(stored, self.shape, spec, target, line)

    def pointers(
        self, tap: ir.Value, row: ir.Value, count: int, last: ir.Value | None = None
    ) -> list[ir.Value]:
        """See Rows."""
        b = self.fn.builder
        local, pitch = b.sub(row, self._start), self.apart
        last = None if last is None else b.sub(last, self._start)
        return spaced(self.fn, self.shape, self.scratch, local, pitch, count, last)

    def line(self, row: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where window `row` starts, and bytes to the next."""
        local = self.fn.builder.sub(row, self._start)
        return line(self.fn, self.shape, self.scratch, local, self.apart)


def copy_edge(
    stored: Stored, shape: TileShape, spec: ConvSpec, target: ir.Value, line: Line
) -> None:
    """One line of a window, pixel by pixel, padding outside of the input."""
    fn, b, element = stored.fn, stored.fn.builder, shape.element
    channels = spec.in_channels // spec.groups
    width = fn.dim(spec.in_spatial[-1])
    with fn.loop(0, spec.kernel[-1]) as kw:
        iw = b.add(line.left, b.mul(kw, i64(spec.dilations[-1])))
        inside = b.and_(line.exists, b.icmp_unsigned("<", iw, width))
        out = fn.at(target, b.mul(kw, i64(channels)), element)
        with fn.if_else(inside) as (yes, no):
            with yes:
                pixel = stored.moved(line.source, b.mul(iw, i64(spec.in_channels)))
                copy_row(stored, shape, out, pixel, channels)
            with no, fn.loop(0, channels) as c:
                fn.store(_padding(element, spec), fn.at(out, c, element))


def _padding(element: ir.Type, spec: ConvSpec) -> ir.Constant:
    """What lies outside of the input."""
    return ir.Constant(element, spec.fill if isinstance(element, ir.IntType) else 0.0)


def copy_run(
    stored: Stored, shape: TileShape, target: ir.Value, source: ir.Value, count: int
) -> None:
    """A run of known length: as few loads as possible, the last one overlapping."""
    lanes, fn = shape.lanes, stored.fn
    if count > _LONGEST_RUN * lanes:
        copy_row(stored, shape, target, source, i64(count))
        return
    while lanes > count:
        lanes //= 2
    starts = [*range(0, count - lanes + 1, lanes)]
    if starts[-1] + lanes < count:
        starts.append(count - lanes)
    for at in starts:
        value = stored.load(stored.at(source, at), lanes)
        fn.store(value, fn.at(target, at, shape.element))
