"""Where a tile's rows come from: A in place, or a copy of a block of A in scratch.

The register tile wants one pointer per row with unit steps along k. `StridedRows` points into the
operand; `CopiedRows` first copies a block of rows to scratch, for operands whose k is not unit
stride, for row strides that map all rows of a tile to the same cache sets, and for stored types
that are not the ones multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from llvmlite import ir

from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.product.dot import WORD
from braze.codegen.cpu.product.register_tile import TileShape, vector_type, zero
from braze.codegen.cpu.product.stored import Stored
from braze.core.dims import Dim, ceildiv

ROW_PADDING = 16  # elements between copied rows: keeps them off each other's cache sets


class Rows(Protocol):
    """Rows of A as the tile loops see them: `taps` segments of `depth` elements each."""

    base: ir.Value

    @property
    def taps(self) -> int: ...

    @property
    def depth(self) -> Dim | ir.Value: ...

    def begin(self, start: ir.Value, stop: ir.Value) -> None:
        """Prepare rows start .. stop-1; they are the only ones asked for until the next call."""

    def pointers(
        self, tap: ir.Value, row: ir.Value, count: int, last: ir.Value | None = None
    ) -> list[ir.Value]:
        """Where segment `tap` of rows row .. row+count-1 starts; rows after `last` repeat it."""


@dataclass(frozen=True, slots=True)
class Spacing:
    """How copied rows lie: each holds `held` elements, zeros behind what is copied, and they are
    `pitch` elements apart. zeros: how many, at the end, are cleared before a row is copied."""

    held: int
    pitch: int
    zeros: int

    def clear(self, fn: KernelFunction, row: ir.Value, element: ir.Type) -> None:
        """Zeros at the end of the row that is copied to `row` next."""
        if self.zeros:
            kind = vector_type(element, self.zeros)
            fn.store(zero(kind), fn.at(row, self.held - self.zeros, element))


@dataclass(slots=True)
class StridedRows:
    """Rows read in place. base: pointer to row 0; row_stride: elements between rows."""

    fn: KernelFunction
    shape: TileShape
    base: ir.Value
    row_stride: Dim
    depth: Dim | ir.Value
    taps: int = 1

    def begin(self, start: ir.Value, stop: ir.Value) -> None:
        """Nothing to prepare."""

    def pointers(
        self, tap: ir.Value, row: ir.Value, count: int, last: ir.Value | None = None
    ) -> list[ir.Value]:
        """See Rows."""
        return spaced(self.fn, self.shape, self.base, row, self.row_stride, count, last)

    def line(self, row: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where `row` starts, and bytes to the next."""
        return line(self.fn, self.shape, self.base, row, self.row_stride)


@dataclass(slots=True)
class CopiedRows:
    """Rows copied block by block to `scratch`, as the elements that are multiplied.

    spacing: how they lie there (None: `pitch` apart).
    """

    fn: KernelFunction
    shape: TileShape
    stored: Stored
    base: ir.Value
    row_stride: Dim
    depth_stride: Dim
    depth: Dim
    scratch: ir.Value
    taps: int = 1
    spacing: Spacing | None = None
    _start: ir.Value | None = None

    @property
    def apart(self) -> Dim:
        """Elements from one copied row to the next."""
        return self.pitch(self.depth) if self.spacing is None else self.spacing.pitch

    @staticmethod
    def pitch(depth: Dim) -> Dim:
        """Elements from one copied row to the next."""
        return ceildiv(depth, ROW_PADDING) * ROW_PADDING + ROW_PADDING

    def begin(self, start: ir.Value, stop: ir.Value) -> None:
        """Copy the block."""
        fn, b, element = self.fn, self.fn.builder, self.shape.element
        self._start = start
        pitch, step = fn.dim(self.apart), fn.dim(self.row_stride)
        with fn.loop(start, stop) as row:
            source = self.stored.at(self.base, b.mul(row, step))
            target = fn.at(self.scratch, b.mul(b.sub(row, start), pitch), element)
            if self.spacing is not None:
                self.spacing.clear(fn, target, element)
            copy_row(self.stored, self.shape, target, source, self.depth, self.depth_stride)

    def pointers(
        self, tap: ir.Value, row: ir.Value, count: int, last: ir.Value | None = None
    ) -> list[ir.Value]:
        """See Rows."""
        b = self.fn.builder
        local, pitch = b.sub(row, self._start), self.apart
        last = None if last is None else b.sub(last, self._start)
        return spaced(self.fn, self.shape, self.scratch, local, pitch, count, last)

    def line(self, row: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where `row` starts, and bytes to the next."""
        local = self.fn.builder.sub(row, self._start)
        return line(self.fn, self.shape, self.scratch, local, self.apart)


@dataclass(slots=True)
class WordRows:
    """Rows of bytes as rows of words of four (or of as many parts as `word` says). Where a row is
    no whole number of words, what follows it is read too (`bytes_` must own that) and meets zeros
    in the panel."""

    bytes_: Rows
    word: int = WORD

    @property
    def base(self) -> ir.Value:
        """The first byte of row 0."""
        return self.bytes_.base

    @base.setter
    def base(self, value: ir.Value) -> None:
        self.bytes_.base = value

    @property
    def taps(self) -> int:
        return self.bytes_.taps

    @property
    def depth(self) -> Dim | ir.Value:
        depth = self.bytes_.depth
        assert not isinstance(depth, ir.Value)
        return ceildiv(depth, self.word)

    def begin(self, start: ir.Value, stop: ir.Value) -> None:
        """See Rows."""
        self.bytes_.begin(start, stop)

    def pointers(
        self, tap: ir.Value, row: ir.Value, count: int, last: ir.Value | None = None
    ) -> list[ir.Value]:
        """See Rows."""
        return self.bytes_.pointers(tap, row, count, last)


def line(
    fn: KernelFunction, shape: TileShape, base: ir.Value, row: ir.Value, row_stride: Dim
) -> tuple[ir.Value, ir.Value]:
    """Where `row` starts, of rows `row_stride` elements apart, and bytes to the next."""
    step = fn.dim(row_stride)
    first = fn.at(base, fn.builder.mul(row, step), shape.element)
    return first, fn.builder.mul(step, i64(shape.itemsize))


def spaced(
    fn: KernelFunction,
    shape: TileShape,
    base: ir.Value,
    row: ir.Value,
    row_stride: Dim,
    count: int,
    last: ir.Value | None,
) -> list[ir.Value]:
    """Pointers to `count` rows that are `row_stride` elements apart; rows after last repeat it."""
    b = fn.builder
    step = fn.dim(row_stride)
    if last is not None:
        numbers = clamped(fn, row, count, last)
        return [fn.at(base, b.mul(number, step), shape.element) for number in numbers]
    first = fn.at(base, b.mul(row, step), shape.element)
    return [fn.at(first, b.mul(i64(r), step), shape.element) for r in range(count)]


def clamped(fn: KernelFunction, row: ir.Value, count: int, last: ir.Value) -> list[ir.Value]:
    """Row numbers row .. row+count-1, none larger than `last`."""
    return [fn.minimum(fn.builder.add(row, i64(r)), last) for r in range(count)]


def copy_row(
    stored: Stored,
    shape: TileShape,
    target: ir.Value,
    source: ir.Value,
    count: Dim | ir.Value,
    step: Dim = 1,
) -> None:
    """target[i] = source[i * step] for i < count, as elements that are multiplied."""
    fn, b, element = stored.fn, stored.fn.builder, shape.element
    total = count if isinstance(count, ir.Value) else fn.dim(count)
    begin: ir.Value | int = 0
    if step == 1 and shape.lanes > 1:
        begin = b.sub(total, b.srem(total, i64(shape.lanes)))
        with fn.loop(0, begin, shape.lanes) as i:
            value = stored.load(stored.at(source, i), shape.lanes)
            fn.store(value, fn.at(target, i, element))
    with fn.loop(begin, total) as i:
        value = stored.load(stored.at(source, b.mul(i, fn.dim(step))))
        fn.store(value, fn.at(target, i, element))
