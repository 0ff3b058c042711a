"""From accumulators to the output: the epilogue, column tails and strides.

Light epilogues run on the registers of a tile. Heavy ones (transcendentals would be emitted once
per register) spill the tile to the stack and run in one loop over its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Protocol

from llvmlite import ir

from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.product.register_tile import Tile, TileShape, part, vector_type
from braze.core.dims import Dim

SPARE_ROWS = 3


class Finish(Protocol):
    """What is done to a sum before it is stored (see Epilogue)."""

    @property
    def light(self) -> bool: ...

    @property
    def stored(self) -> ir.Type: ...

    def apply(self, value: ir.Value, lanes: int, row: ir.Value, column: ir.Value) -> ir.Value:
        """The stored values of `lanes` outputs of one row."""


@dataclass(frozen=True, slots=True)
class PlainFinish:
    """Stores sums as they are."""

    stored: ir.Type
    light: bool = True

    def apply(self, value: ir.Value, lanes: int, row: ir.Value, column: ir.Value) -> ir.Value:
        """The sums themselves."""
        return value


@dataclass(slots=True)
class TileSink:
    """Writes tiles of one product of `m` rows.

    base: pointer to the output element (row 0, column 0) of the current batch; row_flat and
    column_first: what row 0 and column 0 of the batch are to the epilogue (see Epilogue).
    together: rows that `drain` finishes side by side.
    """

    fn: KernelFunction
    shape: TileShape
    epilogue: Finish
    row_stride: Dim
    column_stride: Dim
    base: ir.Value | None = None
    row_flat: ir.Value = field(default_factory=lambda: i64(0))
    column_first: ir.Value = field(default_factory=lambda: i64(0))
    together: int = 1
    _spill: ir.Value | None = None

    @property
    def light(self) -> bool:
        """Whether tiles should be `put` rather than kept and drained."""
        return self.epilogue.light

    def put(self, tile: Tile, row: ir.Value, column: ir.Value, width: int) -> None:
        """Finish rows row.. and columns column .. column+width-1 from registers."""
        b, first = self.fn.builder, self._start(row)
        for r, line in enumerate(tile):
            start = self.fn.at(first, b.mul(i64(r), self.fn.dim(self.row_stride)), self._element)
            for at, lanes in pieces(width, self.shape.lanes):
                value = part(self.fn, line[at // self.shape.lanes], at % self.shape.lanes, lanes)
                self._piece(value, b.add(row, i64(r)), start, b.add(column, i64(at)), lanes)

    @property
    def stack_tile(self) -> ir.Value:
        """Where `drain` finds a tile: its rows, one after another."""
        if self._spill is None:
            # small tiles of a remainder may reach a few rows beyond the tile
            size = (self.shape.rows + SPARE_ROWS) * self.shape.columns
            self._spill = self.fn.alloca(self.shape.sum, size)
        return self._spill

    def keep(self, tile: Tile, at: ir.Value) -> None:
        """Spill a tile as rows at.. of the stack tile."""
        fn, b, shape = self.fn, self.fn.builder, self.shape
        for r, line in enumerate(tile):
            row = fn.at(self.stack_tile, b.mul(b.add(at, i64(r)), i64(shape.columns)), shape.sum)
            for v, value in enumerate(line):
                fn.store(value, fn.at(row, v * shape.lanes, shape.sum))

    def drain(
        self,
        row: ir.Value,
        count: ir.Value,
        column: ir.Value,
        width: int | ir.Value,
        done: ir.Value | int = 0,
    ) -> None:
        """Finish rows done .. count-1 of the stack tile; its row 0 would be `row`."""
        fn, b, group = self.fn, self.fn.builder, self.together
        if group > 1 and isinstance(width, int):
            first = i64(done) if isinstance(done, int) else done
            done = b.sub(count, b.srem(b.sub(count, first), i64(group)))
            with fn.loop(first, done, group) as r:
                places = [(row, b.add(r, i64(k)), column) for k in range(group)]
                cuts = list(pieces(width, self.shape.lanes))
                copies = [partial(self._drain_piece, *p, *cut) for cut in cuts for p in places]
                side_by_side(fn, copies)
        with fn.loop(done, count) as r:
            if isinstance(width, int):
                for at, lanes in pieces(width, self.shape.lanes):
                    self._drain_piece(row, r, column, at, lanes)
            else:
                source, place = self._stacked(r, i64(0)), b.add(row, r)
                self._drain_columns(source, place, self._start(place), column, width)

    def _drain_piece(
        self, row: ir.Value, r: ir.Value, column: ir.Value, at: int, lanes: int
    ) -> None:
        """Finish columns at .. at+lanes-1 of row `r` of the stack tile, whose row 0 is `row`."""
        fn, b, kind = self.fn, self.fn.builder, vector_type(self.shape.sum, lanes)
        value, place = fn.load(self._stacked(r, i64(at)), kind), b.add(row, r)
        self._piece(value, place, self._start(place), b.add(column, i64(at)), lanes)

    def _stacked(self, r: ir.Value, column: ir.Value) -> ir.Value:
        """Where a sum of the stack tile is."""
        b, shape = self.fn.builder, self.shape
        at = b.add(b.mul(r, i64(shape.columns)), column)
        return self.fn.at(self.stack_tile, at, shape.sum)

    def _drain_columns(
        self,
        source: ir.Value,
        row: ir.Value,
        start: ir.Value,
        column: ir.Value,
        width: ir.Value,
    ) -> None:
        fn, b, shape = self.fn, self.fn.builder, self.shape
        whole = b.sub(width, b.srem(width, i64(shape.lanes)))
        for first, stop, lanes in ((i64(0), whole, shape.lanes), (whole, width, 1)):
            with fn.loop(first, stop, lanes) as j:
                value = fn.load(fn.at(source, j, shape.sum), vector_type(shape.sum, lanes))
                self._piece(value, row, start, b.add(column, j), lanes)

    def piece(self, value: ir.Value, row: ir.Value, column: ir.Value, lanes: int) -> None:
        """Epilogue and store of `lanes` neighbouring columns of one row."""
        self._piece(value, row, self._start(row), column, lanes)

    @property
    def _element(self) -> ir.Type:
        return self.epilogue.stored

    def _start(self, row: ir.Value) -> ir.Value:
        """Address of column 0 of a row."""
        line = self.fn.builder.mul(row, self.fn.dim(self.row_stride))
        return self.fn.at(self.base, line, self._element)

    def _piece(
        self, value: ir.Value, row: ir.Value, start: ir.Value, column: ir.Value, lanes: int
    ) -> None:
        """See `piece`; the row begins at `start`."""
        fn, b = self.fn, self.fn.builder
        result = self.epilogue.apply(
            value, lanes, b.add(self.row_flat, row), b.add(self.column_first, column)
        )
        step = fn.dim(self.column_stride)
        if self.column_stride == 1 or lanes == 1:
            fn.store(result, fn.at(start, b.mul(column, step), self._element))
            return
        for i in range(lanes):
            at = b.mul(b.add(column, i64(i)), step)
            fn.store(part(fn, result, i, 1), fn.at(start, at, self._element))


def side_by_side(fn: KernelFunction, copies: Sequence[Callable[[], None]]) -> None:
    """The code of independent `copies`, an instruction of each in turn.

    A processor that waits for one copy's instructions then has the others' before it, also where
    it looks ahead over fewer instructions than a copy has. Copies with branches follow each other.
    """
    block, parts = fn.builder.block, []
    first = len(block.instructions)
    for copy in copies:
        start = len(block.instructions)
        copy()
        if fn.builder.block is not block:
            return
        parts.append(block.instructions[start:])
    block.instructions[first:] = [i for turn in zip_longest(*parts) for i in turn if i is not None]


def pieces(width: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Cut `width` columns into (start, vector length): whole vectors, then powers of two."""
    start = 0
    while lanes:
        while start + lanes <= width:
            yield start, lanes
            start += lanes
        lanes //= 2
