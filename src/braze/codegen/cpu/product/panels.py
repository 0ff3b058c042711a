"""Where a tile's columns come from: panels packed at build time, copied at run time, or in place.

A panel is `columns` columns of B for all k: element (k, j) at k * stride + j. The last panel may
be partial; it is padded with zeros wherever it is a copy, so that a tile may always read whole
vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from llvmlite import ir

from braze.codegen.cpu.llvm.function import I32, KernelFunction, i64
from braze.codegen.cpu.product.register_tile import TileShape, zero
from braze.codegen.cpu.product.stored import Stored
from braze.core.dims import Dim

Panel = tuple[ir.Value, Dim]  # pointer to element (0, 0), elements per step of k


class Panels(Protocol):
    """Columns of B as the tile loops see them.

    uniform: a partial panel is read like others; constant: panels lie one after another in what
    no run changes, so that most come from memory.
    """

    uniform: ClassVar[bool]
    constant: ClassVar[bool]

    def begin(self, first: ir.Value, stop: ir.Value) -> None:
        """Prepare panels first .. stop-1 (numbers may exceed the last panel)."""

    def full(self, index: ir.Value) -> Panel:
        """Panel `index`, all of whose columns exist."""

    def tail(self, index: ir.Value) -> Panel:
        """The last panel when it is partial; `index` is its number."""


@dataclass(slots=True)
class Source:
    """B where it lies: its type, pointer to element (0, 0), its strides and its sizes."""

    stored: Stored
    base: ir.Value
    depth_stride: Dim
    column_stride: Dim
    depth: Dim
    columns: Dim


@dataclass(slots=True)
class PackedPanels:
    """Panels stored one after another from source.base on, [panel][k][columns]."""

    uniform: ClassVar[bool] = True
    constant: ClassVar[bool] = True
    fn: KernelFunction
    shape: TileShape
    source: Source

    def begin(self, first: ir.Value, stop: ir.Value) -> None:
        """Nothing to prepare."""

    def full(self, index: ir.Value) -> Panel:
        """See Panels."""
        columns = self.shape.columns
        offset = self.fn.builder.mul(index, self.fn.dim(self.source.depth * columns))
        return self.fn.at(self.source.base, offset, self.shape.panel_element), columns

    def tail(self, index: ir.Value) -> Panel:
        """See Panels."""
        return self.full(index)


@dataclass(slots=True)
class DirectPanels:
    """Columns read in place (unit column stride); a partial last panel is copied to `scratch`."""

    uniform: ClassVar[bool] = False
    constant: ClassVar[bool] = False
    fn: KernelFunction
    shape: TileShape
    source: Source
    scratch: ir.Value | None

    def begin(self, first: ir.Value, stop: ir.Value) -> None:
        """Copy the partial panel when it is asked for."""
        if self.scratch is None:
            return
        b, columns = self.fn.builder, self.fn.dim(self.source.columns)
        width = i64(self.shape.columns)
        reaches = b.icmp_signed(">", b.mul(stop, width), columns)
        exists = b.icmp_signed("!=", b.srem(columns, width), i64(0))
        with self.fn.if_(b.and_(reaches, exists)):
            last = b.sdiv(columns, width)
            copy_panel(self.fn, self.shape, self.source, last, self.scratch)

    def full(self, index: ir.Value) -> Panel:
        """See Panels."""
        offset = self.fn.builder.mul(index, i64(self.shape.columns))
        where = self.fn.at(self.source.base, offset, self.shape.element)
        return where, self.source.depth_stride

    def tail(self, index: ir.Value) -> Panel:
        """See Panels."""
        assert self.scratch is not None
        return self.scratch, self.shape.columns


@dataclass(slots=True)
class CopiedPanels:
    """Panels copied group by group to `scratch`: [panel - first][k][columns]."""

    uniform: ClassVar[bool] = True
    constant: ClassVar[bool] = False
    fn: KernelFunction
    shape: TileShape
    source: Source
    scratch: ir.Value
    _first: ir.Value | None = None

    def begin(self, first: ir.Value, stop: ir.Value) -> None:
        """Copy the group."""
        fn, b = self.fn, self.fn.builder
        self._first = first
        width = i64(self.shape.columns)
        count = b.sdiv(b.add(fn.dim(self.source.columns), b.sub(width, i64(1))), width)
        with fn.loop(first, fn.minimum(stop, count)) as index:
            where, _ = self.full(index)
            copy_panel(fn, self.shape, self.source, index, where)

    def full(self, index: ir.Value) -> Panel:
        """See Panels."""
        fn, b, columns = self.fn, self.fn.builder, self.shape.columns
        size = fn.dim(self.source.depth * columns)
        offset = b.mul(b.sub(index, self._first), size)
        return fn.at(self.scratch, offset, self.shape.element), columns

    def tail(self, index: ir.Value) -> Panel:
        """See Panels."""
        return self.full(index)


def copy_panel(
    fn: KernelFunction, shape: TileShape, source: Source, index: ir.Value, target: ir.Value
) -> None:
    """Write panel `index` of `source` to `target` as [k][columns], zeros past the last column."""
    b = fn.builder
    first = b.mul(index, i64(shape.columns))
    left = fn.minimum(b.sub(fn.dim(source.columns), first), i64(shape.columns))
    base = source.stored.at(source.base, b.mul(first, fn.dim(source.column_stride)))
    whole = b.icmp_signed("==", left, i64(shape.columns))
    if source.column_stride != 1:
        with fn.if_(b.not_(whole)):
            _clear(fn, shape, source, target)
        _copy_transposed(fn, shape, source, base, target, left)
        return
    with fn.if_else(whole) as (yes, no):
        with yes:
            _copy_whole(fn, shape, source, base, target)
        with no:
            _clear(fn, shape, source, target)
            _copy_transposed(fn, shape, source, base, target, left)


def _copy_whole(
    fn: KernelFunction, shape: TileShape, source: Source, base: ir.Value, target: ir.Value
) -> None:
    b, stored, element = fn.builder, source.stored, shape.element
    with fn.loop(0, fn.dim(source.depth)) as k:
        row = stored.at(base, b.mul(k, fn.dim(source.depth_stride)))
        out = fn.at(target, b.mul(k, i64(shape.columns)), element)
        for at in range(0, shape.columns, shape.lanes):
            fn.store(stored.load(stored.at(row, at), shape.lanes), fn.at(out, at, element))


def _clear(fn: KernelFunction, shape: TileShape, source: Source, target: ir.Value) -> None:
    with fn.loop(0, fn.dim(source.depth * shape.columns), shape.lanes) as i:
        fn.store(zero(shape.vector), fn.at(target, i, shape.element))


def _copy_transposed(
    fn: KernelFunction,
    shape: TileShape,
    source: Source,
    base: ir.Value,
    target: ir.Value,
    columns: ir.Value,
) -> None:
    """Any strides, `columns` columns; blocks of lanes x lanes are turned in registers."""
    b = fn.builder
    depth = fn.dim(source.depth)
    done: ir.Value | int = 0
    turns = source.depth_stride == 1 and source.column_stride != 1
    square = shape.lanes if shape.lanes > 1 and turns else 0
    if square:
        done = b.sub(columns, b.srem(columns, i64(square)))
        with fn.loop(0, done, square) as j:
            _turn_columns(fn, shape, source, base, target, j)
    with fn.loop(done, columns) as j:
        _copy_elements(fn, shape, source, base, target, (j, i64(0), depth))


def _turn_columns(
    fn: KernelFunction,
    shape: TileShape,
    source: Source,
    base: ir.Value,
    target: ir.Value,
    j: ir.Value,
) -> None:
    """Columns j .. j+lanes-1, all k; the source has unit stride along k."""
    b, stored, lanes = fn.builder, source.stored, shape.lanes
    element = shape.element
    depth, step = fn.dim(source.depth), fn.dim(source.column_stride)
    whole = b.sub(depth, b.srem(depth, i64(lanes)))
    first = stored.at(base, b.mul(j, step))
    with fn.loop(0, whole, lanes) as k:
        block = [
            stored.load(stored.at(stored.at(first, b.mul(i64(i), step)), k), lanes)
            for i in range(lanes)
        ]
        out = fn.at(target, b.add(b.mul(k, i64(shape.columns)), j), element)
        for i, vector in enumerate(turn(fn, block)):
            fn.store(vector, fn.at(out, i * shape.columns, element))
    with fn.loop(0, lanes) as i:
        _copy_elements(fn, shape, source, base, target, (b.add(j, i), whole, depth))


def _copy_elements(
    fn: KernelFunction,
    shape: TileShape,
    source: Source,
    base: ir.Value,
    target: ir.Value,
    where: tuple[ir.Value, ir.Value, ir.Value],
) -> None:
    """Column where[0], k from where[1] to where[2], one by one."""
    b, stored = fn.builder, source.stored
    j, start, stop = where
    column = stored.at(base, b.mul(j, fn.dim(source.column_stride)))
    with fn.loop(start, stop) as k:
        value = stored.load(stored.at(column, b.mul(k, fn.dim(source.depth_stride))))
        fn.store(value, fn.at(target, b.add(b.mul(k, i64(shape.columns)), j), shape.element))


def turn(fn: KernelFunction, block: list[ir.Value]) -> list[ir.Value]:
    """Transpose a square block held as one vector per row, by swapping halves at every scale."""
    lanes = len(block)
    rows = list(block)
    scale = lanes // 2
    while scale:
        upper = [i if not i & scale else i - scale + lanes for i in range(lanes)]
        lower = [i + scale if not i & scale else i + lanes for i in range(lanes)]
        masks = [ir.Constant(ir.VectorType(I32, lanes), m) for m in (upper, lower)]
        for i in range(lanes):
            if not i & scale:
                pair = rows[i], rows[i + scale]
                rows[i], rows[i + scale] = (fn.builder.shuffle_vector(*pair, m) for m in masks)
        scale //= 2
    return rows
