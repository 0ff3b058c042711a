"""Outputs of one tile without transforms, where those would spread what is in a patch."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from braze.codegen.cpu.conv.winograd.matrices import tap_places
from braze.codegen.cpu.llvm.function import I64, POINTER, KernelFunction, i64
from braze.codegen.cpu.product.dot import dot
from braze.codegen.cpu.product.register_tile import TileShape, add, broadcast, zero
from braze.codegen.cpu.product.stored import Stored
from braze.ops.lowering import ConvSpec

TAPS = 9  # of a window
AT_ONCE = 4  # outputs: more take long to compile for tiles that are seldom summed so


@dataclass(frozen=True, slots=True)
class DirectSums:
    """size: outputs of a tile along each axis; pointers: to the pixels of its patch; weights: their
    first panel, where `tap_places` counts from; columns: of a panel; panels: of a tap."""

    fn: KernelFunction
    spec: ConvSpec
    size: int
    pixels: Stored
    pointers: ir.Value
    weights: ir.Value
    columns: int
    panels: int

    @property
    def rows(self) -> int:
        """Rows of a tile that are summed at once."""
        return max(1, AT_ONCE // self.size)

    def at(self, shape: TileShape, channel: ir.Value, row: ir.Value) -> list[ir.Value]:
        """The sums of one vector of output channels for the `rows` rows of a tile that begin with
        `row`.

        They are those of the direct template bit by bit: taps and channels ascending, block by
        block (see product/blocks.py).
        """
        fn, b, spec = self.fn, self.fn.builder, self.spec
        depth = i64(spec.in_channels)
        terms = TAPS * spec.in_channels
        empty = [zero(shape.vector)] * (self.rows * self.size)
        with fn.carry_loop(0, terms, spec.block, empty) as block:
            end = fn.minimum(b.add(block.index, i64(spec.block)), i64(terms))
            first = b.sdiv(block.index, depth)
            stop = b.sdiv(b.add(end, i64(spec.in_channels - 1)), depth)
            with fn.carry_loop(first, stop, 1, empty) as tap:
                before = b.mul(tap.index, depth)
                skip = b.sub(block.index, before)
                skip = b.select(b.icmp_signed("<", skip, i64(0)), i64(0), skip)
                last = fn.minimum(b.sub(end, before), depth)
                place = (row, tap.index)
                tap.next = self._tap(shape, channel, place, (skip, last), tap.values)
            block.next = [add(fn, x, y) for x, y in zip(block.values, tap.results, strict=True)]
        return block.results

    def _tap(
        self,
        shape: TileShape,
        channel: ir.Value,
        place: tuple[ir.Value, ir.Value],
        channels: tuple[ir.Value, ir.Value],
        sums: list[ir.Value],
    ) -> list[ir.Value]:
        """`sums` plus the products of some input channels; place: their first row, and the tap."""
        row, tap = place
        fn, b, spec, size = self.fn, self.fn.builder, self.spec, self.size
        instruction = dot(fn.target, shape.types)
        columns, three = i64(self.columns), i64(3)
        line = b.add(row, b.sdiv(tap, three))
        corner = b.add(b.mul(line, i64(size + 2)), b.srem(tap, three))
        sources = []
        for k in (i * (size + 2) + j for i in range(self.rows) for j in range(size)):
            slot = fn.at(self.pointers, b.add(corner, i64(k)), POINTER)
            sources.append(b.load(slot, typ=POINTER, align=8))
        numbers, factors = zip(*tap_places(size), strict=True)
        factor = b.sitofp(self._entry(factors, tap), shape.element)
        panel = b.mul(self._entry(numbers, tap), i64(self.panels))
        panel = b.add(panel, b.sdiv(channel, columns))
        first = b.add(b.mul(panel, i64(spec.in_channels * self.columns)), b.srem(channel, columns))
        with fn.carry_loop(*channels, 1, sums) as it:
            where = fn.at(self.weights, b.add(first, b.mul(it.index, columns)), shape.element)
            weight = b.fmul(fn.load(where, shape.vector), broadcast(fn, factor, shape.lanes))
            it.next = []
            for source, total in zip(sources, it.values, strict=True):
                value = self.pixels.load(self.pixels.at(source, it.index))
                x = broadcast(fn, value, shape.lanes)
                it.next.append(instruction.emit(fn, x, weight, total))
        return it.results

    def _entry(self, values: tuple[int, ...], index: ir.Value) -> ir.Value:
        """An element of a table."""
        return self.fn.load(self.fn.at(self.fn.words(values), index, I64), I64)
