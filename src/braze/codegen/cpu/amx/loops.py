"""The loops around AMX's tiles: rows and panels as elsewhere, sums in tile registers.

A product's tile is `heights` tiles of 16 rows by `widths` tiles of 16 columns. Each step of k loads
a tile of every 16 rows, in place, and one of every 16 columns of a panel, and multiplies all pairs.
Finished sums go through the stack tile to the epilogue, which runs while the next tile's are made.
Rows that are no multiple of 16 are tiles of fewer rows, so that nothing is read past the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from llvmlite import ir

from braze.codegen.cpu.amx.registers import REGISTERS, ROW_BYTES, ROWS, TileFile
from braze.codegen.cpu.llvm.function import I8, I64, KernelFunction, i64
from braze.codegen.cpu.product.ahead import fetch_line
from braze.codegen.cpu.product.blocks import TileLoops
from braze.codegen.cpu.product.panels import Panel
from braze.codegen.cpu.product.register_tile import TileShape, moved
from braze.core.dims import Dim

# tiles of rows, rows of the last where they are others than usual, and when that is so (None: ever)
Case = tuple[int, "ir.Value | int | None", "ir.Value | None"]
_MOST_FETCHED: Final = 8  # lines per step: more would keep the tiles' own loads waiting


@dataclass(frozen=True, slots=True)
class Layout:
    """Which register holds what: sums first, then columns, then rows.

    With one tile of rows its registers of columns are used in turn; with several, those of rows
    are, the last tile of rows (which may have fewer) having one of its own.
    """

    heights: int
    widths: int

    def sums(self, height: int, width: int) -> int:
        """The sums of a pair."""
        return height * self.widths + width

    def left(self, height: int, heights: int) -> int:
        """Tile `height` of `heights` tiles of rows."""
        if self.heights == 1:
            return self.widths
        spare = REGISTERS - self.heights * self.widths - self.widths
        if height == heights - 1:
            return REGISTERS - 1
        return REGISTERS - spare + height % (spare - 1)

    def right(self, width: int) -> int:
        """Tile `width` of a panel."""
        first = self.heights * self.widths
        if self.heights == 1:
            return first + 1 + width % (REGISTERS - first - 1)
        return first + width

    def last(self, heights: int) -> tuple[int, ...]:
        """The registers of the last of `heights` tiles of rows."""
        sums = [self.sums(heights - 1, w) for w in range(self.widths)]
        return *sums, self.left(heights - 1, heights)

    def tile_file(self, fn: KernelFunction, shape: TileShape, m: Dim) -> TileFile:
        """The registers for full tiles of `shape`, or of the only one where `m` is less."""
        lefts = {self.left(h, n) for n in range(1, self.heights + 1) for h in range(n)}
        rights = {self.right(w) for w in range(self.widths)}
        sums = {self.sums(h, w) for h in range(self.heights) for w in range(self.widths)}
        row_bytes = dict.fromkeys(sums | rights, ROW_BYTES)
        row_bytes |= dict.fromkeys(lefts, shape.chunk * shape.itemsize)
        rows = dict.fromkeys(sums | lefts, ROWS) | dict.fromkeys(rights, shape.chunk)
        if isinstance(m, int) and 0 < m < shape.rows:
            heights = -(-m // ROWS)
            rows |= dict.fromkeys(self.last(heights), m - (heights - 1) * ROWS)
        return TileFile(fn, row_bytes, rows)


class Waiting:
    """Which rows of the stack tile are not finished yet: the first one's number, how many, and the
    column of their first sum; none at first."""

    def __init__(self, fn: KernelFunction) -> None:
        self._fn = fn
        self._slots = [fn.alloca(I64) for _ in range(3)]
        self.put(i64(0), i64(0), i64(0))

    def put(self, *values: ir.Value) -> None:
        """These are waiting now."""
        for slot, value in zip(self._slots, values, strict=True):
            self._fn.store(value, slot)

    def take(self) -> list[ir.Value]:
        """What was waiting; none is any more."""
        values = [self._fn.load(slot, I64) for slot in self._slots]
        self._fn.store(i64(0), self._slots[1])
        return values


@dataclass(slots=True)
class UnitLoops(TileLoops):
    """TileLoops whose sums are in tile registers.

    name: the instruction that multiplies; words: of a row; line(row): where a row starts, and bytes
    to the next one. taps: bytes from there to each of the parts that a row has, of equal size.
    width, outputs: where they are not 0, of each `width` rows the first `outputs` are outputs.
    """

    words: int = field(kw_only=True)
    line: Callable[[ir.Value], tuple[ir.Value, ir.Value]] = field(kw_only=True)
    tiles: TileFile = field(kw_only=True)
    layout: Layout = field(kw_only=True)
    name: str = field(kw_only=True)
    taps: Sequence[int] = (0,)
    width: int = 0
    outputs: int = 0
    _start: ir.Value | None = None
    _waiting: Waiting | None = None

    def block(self, start: ir.Value, end: ir.Value, first: ir.Value, stop: ir.Value) -> None:
        """See TileLoops."""
        self._waiting = Waiting(self.fn)
        TileLoops.block(self, start, end, first, stop)
        self._finish()

    def column(
        self, start: ir.Value, end: ir.Value, at: ir.Value, width: int | ir.Value, panel: Panel
    ) -> None:
        """See TileLoops."""
        fn, b, rows = self.fn, self.fn.builder, self.shape.rows
        assert isinstance(width, int) and self._waiting is not None
        widths = -(-width // ROWS)
        self._start = start
        if self.m == 0:
            return
        whole = width == self.shape.columns
        if not whole:  # the last panel, whose tiles do not wait: their epilogue is another one
            self._finish()
        with fn.loop(start, end, rows) as row:
            left = fn.minimum(b.sub(end, row), i64(rows))
            self._tiles(row, left, widths, panel)
            if whole:
                self._waiting.put(row, left, at)
            else:
                self._drain(row, left, at, width)

    def _tiles(self, row: ir.Value, left: ir.Value, widths: int, panel: Panel) -> None:
        """The sums of `left` rows to the stack tile. What waits there is finished while tiles are
        multiplied: other units do that, and its loads need not wait for the stores of its sums."""
        cases = self._cases(left)
        for heights, last, chosen in cases:
            with self._where(chosen):
                if last is not None:
                    self.tiles.reshape(last, self.layout.last(heights))
                self._multiply(row, heights, widths, panel)
        self._finish()
        for heights, last, chosen in cases:
            with self._where(chosen):
                self._keep(heights, widths)
                if last is not None:
                    self.tiles.configure()

    def _cases(self, left: ir.Value) -> list[Case]:
        """What tiles of `left` rows may be."""
        b, rows, most = self.fn.builder, self.shape.rows, self.layout.heights
        if isinstance(self.m, int) and self.m < rows:
            return [(-(-self.m // ROWS), None, None)]
        if isinstance(self.m, int) and self.m % rows == 0:
            return [(most, None, None)]
        full = b.icmp_signed("==", left, i64(rows))
        cases: list[Case] = [(most, None, full)]
        if isinstance(self.m, int):
            heights = -(-(self.m % rows) // ROWS)
            return [*cases, (heights, self.m % rows - (heights - 1) * ROWS, b.not_(full))]
        for heights in range(1, most + 1):
            last = b.sub(left, i64((heights - 1) * ROWS))
            above = b.icmp_signed(">", last, i64(0))
            here = b.and_(above, b.icmp_signed("<=", last, i64(ROWS)))
            cases.append((heights, last, b.and_(here, b.not_(full))))
        return cases

    def _where(self, chosen: ir.Value | None) -> AbstractContextManager[None]:
        return nullcontext() if chosen is None else self.fn.if_(chosen)

    def _finish(self) -> None:
        """What waits in the stack tile to the output; then nothing does."""
        assert self._waiting is not None
        row, count, column = self._waiting.take()
        self._drain(row, count, column, self.shape.columns)

    def _drain(self, row: ir.Value, count: ir.Value, column: ir.Value, width: int) -> None:
        """The stack tile, of `count` rows from `row` on, to the output."""
        if not self.width:
            self.sink.drain(row, count, column, width)
            return
        fn, b, line = self.fn, self.fn.builder, i64(self.width)
        end = b.add(row, count)
        last = b.sdiv(b.add(end, i64(self.width - 1)), line)
        with fn.loop(b.sdiv(row, line), last) as y:
            at = b.mul(y, line)
            first = fn.maximum(row, at)
            stop = fn.minimum(end, b.add(at, i64(self.outputs)))
            # a row of the output is as many lines before one of the product as it is in
            place = b.sub(row, b.mul(y, i64(self.width - self.outputs)))
            self.sink.drain(place, b.sub(stop, row), column, width, b.sub(first, row))

    def _multiply(self, row: ir.Value, heights: int, widths: int, panel: Panel) -> None:
        """Tiles of rows from `row` on by tiles of a panel."""
        fn, b, shape, layout, tiles = self.fn, self.fn.builder, self.shape, self.layout, self.tiles
        for h in range(heights):
            for w in range(widths):
                tiles.clear(layout.sums(h, w))
        first, apart = self.line(row)
        line = first
        pointer, pitch = panel
        assert isinstance(pitch, int)
        across, panel_step = i64(pitch * shape.itemsize), shape.chunk * pitch * shape.itemsize
        chunks = -(-self.words // shape.chunk)
        each = chunks // len(self.taps)
        with fn.loop(0, len(self.taps)) as tap:
            if len(self.taps) > 1:
                moved_by = fn.load(fn.at(fn.words(self.taps), tap, I64), I64)
                line = fn.at(first, moved_by, I8)
            with fn.loop(0, each) as k:
                step = b.add(b.mul(tap, i64(each)), k)
                columns = fn.at(pointer, b.mul(step, i64(panel_step)), I8)
                self._fetch_ahead(row, moved(fn, columns, i64(chunks * panel_step), I8), panel_step)
                here = fn.at(line, b.mul(k, i64(shape.chunk * shape.itemsize)), I8)
                self._step((heights, widths), here, apart, columns, across)

    def _step(
        self, size: tuple[int, int], here: ir.Value, apart: ir.Value, columns: ir.Value,
        across: ir.Value,
    ) -> None:  # fmt: skip
        """Multiply size[0] tiles of rows, `apart` bytes from row to row, by size[1] of columns."""
        fn, b, layout, tiles = self.fn, self.fn.builder, self.layout, self.tiles
        heights, widths = size
        if layout.heights > 1:
            for w in range(widths):
                tiles.load(layout.right(w), fn.at(columns, w * ROW_BYTES, I8), across)
        for h in range(heights):
            source = fn.at(here, b.mul(apart, i64(h * ROWS)), I8) if h else here
            tiles.load(layout.left(h, heights), source, apart)
            for w in range(widths):
                if layout.heights == 1:
                    tiles.load(layout.right(w), fn.at(columns, w * ROW_BYTES, I8), across)
                left, right = layout.left(h, heights), layout.right(w)
                tiles.multiply(self.name, layout.sums(h, w), left, right)

    def _keep(self, heights: int, widths: int) -> None:
        """Sums to the stack tile."""
        shape = self.shape
        for h in range(heights):
            for w in range(widths):
                at = h * ROWS * shape.columns + w * ROWS
                target = self.fn.at(self.sink.stack_tile, at, shape.sum)
                self.tiles.store(self.layout.sums(h, w), target, 4 * shape.columns)

    def _fetch_ahead(self, row: ir.Value, following: ir.Value, size: int) -> None:
        """This tile's share of a step of the next panel, where panels come from memory: so much
        that the tiles of a panel, if they are several, fetch all of the next one."""
        fn, b, shape = self.fn, self.fn.builder, self.shape
        assert isinstance(self.n, int) and self._start is not None
        held = self.n * self.words * shape.itemsize
        if held <= fn.target.l2_bytes or not isinstance(self.m, int):
            return
        tiles = min(self.blocking.block_tiles, -(-self.m // shape.rows))
        share = -(-size // ROW_BYTES // tiles)
        if share > _MOST_FETCHED:
            return
        tile = b.sdiv(b.sub(row, self._start), i64(shape.rows))
        first = moved(fn, following, b.mul(tile, i64(share * ROW_BYTES)), I8)
        for line in range(share):
            fetch_line(fn, moved(fn, first, i64(line * ROW_BYTES), I8), level=2)
