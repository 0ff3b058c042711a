"""Rows of a convolution: each output pixel is a row whose k runs over taps and channels.

`PixelRows` keeps, per tap and row of the current block, a pointer to the input pixel under that
tap, or to a row of zeros where the tap lies in the padding; the register tile reads channels from
there (implicit GEMM: nothing is copied).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from braze.codegen.cpu.llvm.function import I1, I64, POINTER, KernelFunction, i64
from braze.codegen.cpu.product.register_tile import TileShape, moved
from braze.codegen.cpu.product.rows import clamped
from braze.codegen.cpu.product.stored import Stored
from braze.core.dims import Dim, product
from braze.ops.lowering import ConvSpec

_UNROLLED_LINES = 8
_UNROLLED_TAPS = 64


@dataclass(slots=True)
class Window:
    """Where the kernel window of the current output pixel lies: image base, first input places.

    starts: one for each spatial axis; they may lie in the padding.
    """

    image: ir.Value
    starts: tuple[ir.Value, ...]

    @property
    def left(self) -> ir.Value:
        """The first column of a window."""
        return self.starts[-1]


@contextmanager
def each_pixel(
    stored: Stored, spec: ConvSpec, base: ir.Value, start: ir.Value, stop: ir.Value
) -> Iterator[tuple[ir.Value, Window]]:
    """Loop over output pixels start .. stop-1 (flat over batch and space)."""
    fn, b = stored.fn, stored.fn.builder
    sizes = [fn.dim(size) for size in spec.out_spatial]
    image = fn.dim(product(spec.in_spatial) * spec.in_channels)
    place: list[ir.Value] = []
    rest = start
    for size in reversed(sizes):
        place.insert(0, b.srem(rest, size))
        rest = b.sdiv(rest, size)
    with fn.carry_loop(start, stop, 1, [rest, *place]) as it:
        n, *digits = it.values
        starts = tuple(
            b.sub(b.mul(digit, i64(stride)), i64(pad))
            for digit, stride, pad in zip(digits, spec.strides, spec.pads, strict=False)
        )
        yield it.index, Window(stored.at(base, b.mul(n, image)), starts)
        carried: ir.Value = i64(1)
        for axis in reversed(range(len(sizes))):
            digits[axis], carried = _counted(fn, b.add(digits[axis], carried), sizes[axis])
        it.next = [b.add(n, carried), *digits]


def _counted(fn: KernelFunction, value: ir.Value, size: ir.Value) -> tuple[ir.Value, ir.Value]:
    """A digit that wraps at `size`, and its carry (0 or 1)."""
    b = fn.builder
    wraps = b.icmp_signed("==", value, size)
    return b.select(wraps, i64(0), value), b.zext(wraps, I64)


def steps(fn: KernelFunction, count: int, spelled_out: bool = True) -> Iterator[ir.Value]:
    """0 .. count-1: a copy of the code each when they are few (and `spelled_out`), else a loop."""
    if spelled_out and count <= _UNROLLED_LINES:
        yield from (i64(k) for k in range(count))
        return
    with fn.loop(0, count) as index:
        yield index


@dataclass(frozen=True, slots=True)
class _Tap:
    """A tap (of the axes so far): its number, the flat input pixel under it, is that inside."""

    number: ir.Value
    pixel: ir.Value
    inside: ir.Value


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
        return math.prod(self.spec.kernel)

    @property
    def depth(self) -> Dim:
        return self.spec.in_channels // self.spec.groups

    def begin(self, start: ir.Value, stop: ir.Value) -> None:
        """Fill the table for one block."""
        self._start = start
        stored = Stored(self.fn, self.shape.dtype)
        with each_pixel(stored, self.spec, self.base, start, stop) as (pixel, window):
            place = _Tap(i64(0), i64(0), ir.Constant(I1, 1))
            self._fill(0, window, place, self.fn.builder.sub(pixel, start))

    def _fill(self, axis: int, window: Window, place: _Tap, local: ir.Value) -> None:
        """Pointers of all taps from spatial `axis` on, those before it standing at `place`."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        if axis == len(spec.kernel):
            offset = b.mul(place.pixel, i64(spec.in_channels))
            where = moved(fn, window.image, offset, self.shape.element)
            if self.zeros is not None:
                where = b.select(place.inside, where, self.zeros)
            slot = b.add(b.mul(place.number, i64(self.capacity)), local)
            b.store(where, fn.at(self.table, slot, POINTER), align=8)
            return
        size = fn.dim(spec.in_spatial[axis])
        spelled_out = math.prod(spec.kernel[axis:]) <= _UNROLLED_TAPS
        for k in steps(fn, spec.kernel[axis], spelled_out):
            at = b.add(window.starts[axis], b.mul(k, i64(spec.dilations[axis])))
            inner = _Tap(
                b.add(b.mul(place.number, i64(spec.kernel[axis])), k),
                b.add(b.mul(place.pixel, size), at),
                b.and_(place.inside, b.icmp_unsigned("<", at, size)),
            )
            self._fill(axis + 1, window, inner, local)

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
