"""Rows of a convolution: each output pixel is a row whose k runs over taps and channels.

`PixelRows` keeps, per tap and row of the current block, a pointer to the input pixel under that
tap, or to a row of zeros where the tap lies in the padding; the register tile reads channels from
there (implicit GEMM: nothing is copied).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from braze.codegen.cpu.llvm.function import I64, POINTER, KernelFunction, i64
from braze.codegen.cpu.product.register_tile import TileShape, moved
from braze.codegen.cpu.product.rows import clamped
from braze.codegen.cpu.product.stored import Stored
from braze.core.dims import Dim
from braze.ops.lowering import ConvSpec

_UNROLLED_LINES = 8


@dataclass(slots=True)
class Window:
    """Where the kernel window of the current output pixel lies: image base, first row, column."""

    image: ir.Value
    top: ir.Value
    left: ir.Value


@contextmanager
def each_pixel(
    stored: Stored, spec: ConvSpec, base: ir.Value, start: ir.Value, stop: ir.Value
) -> Iterator[tuple[ir.Value, Window]]:
    """Loop over output pixels start .. stop-1 (flat over batch and space)."""
    fn, b = stored.fn, stored.fn.builder
    out_h, out_w = (fn.dim(size) for size in spec.out_spatial)
    image = fn.dim(spec.in_spatial[0] * spec.in_spatial[1] * spec.in_channels)
    first = b.sdiv(start, out_w)
    place = [b.sdiv(first, out_h), b.srem(first, out_h), b.srem(start, out_w)]
    with fn.carry_loop(start, stop, 1, place) as it:
        n, oh, ow = it.values
        top = b.sub(b.mul(oh, i64(spec.strides[0])), i64(spec.pads[0]))
        left = b.sub(b.mul(ow, i64(spec.strides[1])), i64(spec.pads[1]))
        yield it.index, Window(stored.at(base, b.mul(n, image)), top, left)
        ow, carried = _counted(fn, b.add(ow, i64(1)), out_w)
        oh, carried = _counted(fn, b.add(oh, carried), out_h)
        it.next = [b.add(n, carried), oh, ow]


def _counted(fn: KernelFunction, value: ir.Value, size: ir.Value) -> tuple[ir.Value, ir.Value]:
    """A digit that wraps at `size`, and its carry (0 or 1)."""
    b = fn.builder
    wraps = b.icmp_signed("==", value, size)
    return b.select(wraps, i64(0), value), b.zext(wraps, I64)


def steps(fn: KernelFunction, count: int) -> Iterator[ir.Value]:
    """0 .. count-1: one copy of the code each when they are few, else a loop."""
    if count <= _UNROLLED_LINES:
        yield from (i64(k) for k in range(count))
        return
    with fn.loop(0, count) as index:
        yield index


@dataclass(slots=True)
class PixelRows:
    """Pointers per tap; `table` holds taps * capacity pointers.

    base: the input at the first channel of the current group; zeros: one row of zeros.
    """

    fn: KernelFunction
    shape: TileShape
    spec: ConvSpec
    base: ir.Value
    table: ir.Value
    capacity: int
    zeros: ir.Value | None
    _start: ir.Value | None = None

    @property
    def taps(self) -> int:
        return self.spec.kernel[0] * self.spec.kernel[1]

    @property
    def depth(self) -> Dim:
        return self.spec.in_channels // self.spec.groups

    def begin(self, start: ir.Value, stop: ir.Value) -> None:
        """Fill the table for one block."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        self._start = start
        width = fn.dim(spec.in_spatial[1])
        stored = Stored(fn, self.shape.dtype)
        with each_pixel(stored, spec, self.base, start, stop) as (pixel, window):
            local = b.sub(pixel, start)
            for kh in steps(fn, spec.kernel[0]):
                ih = b.add(window.top, b.mul(kh, i64(spec.dilations[0])))
                line = b.mul(ih, width)
                row_inside = self._inside(ih, spec.in_spatial[0])
                for kw in steps(fn, spec.kernel[1]):
                    iw = b.add(window.left, b.mul(kw, i64(spec.dilations[1])))
                    offset = b.mul(b.add(line, iw), i64(spec.in_channels))
                    where = moved(fn, window.image, offset, self.shape.element)
                    if self.zeros is not None:
                        inside = b.and_(row_inside, self._inside(iw, spec.in_spatial[1]))
                        where = b.select(inside, where, self.zeros)
                    tap = b.add(b.mul(kh, i64(spec.kernel[1])), kw)
                    slot = b.add(b.mul(tap, i64(self.capacity)), local)
                    b.store(where, fn.at(self.table, slot, POINTER), align=8)

    def _inside(self, index: ir.Value, size: Dim) -> ir.Value:
        return self.fn.builder.icmp_unsigned("<", index, self.fn.dim(size))

    def pointers(
        self, tap: ir.Value, row: ir.Value, count: int, last: ir.Value | None = None
    ) -> list[ir.Value]:
        """See Rows."""
        line = self.fn.at(self.table, self.fn.builder.mul(tap, i64(self.capacity)), POINTER)
        return table_pointers(self.fn, line, (self._start, row, last), count)


def table_pointers(
    fn: KernelFunction,
    line: ir.Value,
    place: tuple[ir.Value | None, ir.Value, ir.Value | None],
    count: int,
) -> list[ir.Value]:
    """`count` pointers of a table line; place: row of its first entry, row wanted, last row."""
    b, (start, row, last) = fn.builder, place
    if last is not None:
        rows = [b.sub(n, start) for n in clamped(fn, row, count, last)]
        slots = [fn.at(line, n, POINTER) for n in rows]
    else:
        first = fn.at(line, b.sub(row, start), POINTER)
        slots = [fn.at(first, r, POINTER) for r in range(count)]
    return [b.load(slot, typ=POINTER, align=8) for slot in slots]
