"""The loops around the register tile: workers, blocks of rows, panels, tiles and remainders.

Work is a grid of units that each worker takes a contiguous range of. In order "rows" a unit is
one panel of one block of rows and a worker walks panels inside blocks (a block of A stays in
cache); in order "panels" a unit is one tile of rows of one group of panels and a worker walks
tiles inside groups (a group of B stays in cache). Neither changes any result bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.product.ahead import Ahead, ahead
from braze.codegen.cpu.product.panels import Panel, Panels
from braze.codegen.cpu.product.register_tile import Tile, TileShape, accumulate, add, zero_tile
from braze.codegen.cpu.product.rows import Rows
from braze.codegen.cpu.product.store import TileSink
from braze.core.dims import Dim, ceildiv

# (rows, panel, first k, how many, tile): what a tile is made of where panels hold no elements
Inner = Callable[[Sequence[ir.Value], ir.Value, ir.Value, ir.Value, Tile], Tile]
UNBOUNDED = 1 << 62  # terms of a block where the order of a sum does not matter: integers
_SMALL_ROWS = 4  # rows of the tile that finishes a symbolic number of rows


@dataclass(frozen=True, slots=True)
class Blocking:
    """block_tiles: tiles of rows in a block; group_panels: panels in a group; order: see above."""

    block_tiles: int
    group_panels: int
    order: str


@dataclass(slots=True)
class TileLoops:
    """One product of `m` rows and `n` columns, as a grid of tiles.

    k_block: terms of a block of the sums (see ops/operands.py).
    `bind(batch)` is called with the flat batch number before its units run; it moves the bases of
    rows, panels and sink. small: rows of the tile that finishes a symbolic number of rows; inner:
    what multiplies instead of the register tile's own loop.
    """

    fn: KernelFunction
    shape: TileShape
    blocking: Blocking
    k_block: int
    m: Dim
    n: Dim
    rows: Rows
    panels: Panels
    sink: TileSink
    bind: Callable[[ir.Value], None]
    small: int = _SMALL_ROWS
    inner: Inner | None = None
    _next: Ahead | None = None

    def run(self, batches: Dim) -> None:
        """Emit the whole product for this worker."""
        fn, b, shape = self.fn, self.fn.builder, self.shape
        tiles, panels = ceildiv(self.m, shape.rows), ceildiv(self.n, shape.columns)
        by_rows = self.blocking.order == "rows"
        if by_rows:
            outer, inner = ceildiv(tiles, self.blocking.block_tiles), panels
        else:
            outer, inner = ceildiv(panels, self.blocking.group_panels), tiles
        width = fn.dim(inner)
        begin, end = fn.split(fn.dim(batches * outer * inner))
        with fn.if_(b.icmp_signed("<", begin, end)):
            first = b.sdiv(begin, width)
            stop = b.sdiv(b.add(end, b.sub(width, i64(1))), width)
            with fn.loop(first, stop) as at:
                skipped = b.mul(at, width)
                low = self._clamp(b.sub(begin, skipped), width)
                high = self._clamp(b.sub(end, skipped), width)
                count = fn.dim(outer)
                batch = i64(0) if batches == 1 else b.sdiv(at, count)
                self.bind(batch)
                self._part(b.srem(at, count), low, high, by_rows)

    def _clamp(self, value: ir.Value, top: ir.Value) -> ir.Value:
        b = self.fn.builder
        low = b.select(b.icmp_signed("<", value, i64(0)), i64(0), value)
        return self.fn.minimum(low, top)

    def _part(self, outer: ir.Value, low: ir.Value, high: ir.Value, by_rows: bool) -> None:
        """Units low .. high-1 of outer block `outer`."""
        fn, b = self.fn, self.fn.builder
        m, tile = fn.dim(self.m), i64(self.shape.rows)
        block = i64(self.blocking.block_tiles * self.shape.rows)
        if by_rows:
            start = b.mul(outer, block)
            self.panels.begin(low, high)
            self.block(start, fn.minimum(b.add(start, block), m), low, high)
            return
        group = i64(self.blocking.group_panels)
        first = b.mul(outer, group)
        stop = b.add(first, group)
        self.panels.begin(first, stop)
        last = fn.minimum(b.mul(high, tile), m)
        with fn.loop(b.mul(low, tile), last, block) as start:
            self.block(start, fn.minimum(b.add(start, block), last), first, stop)

    def block(self, start: ir.Value, end: ir.Value, first: ir.Value, stop: ir.Value) -> None:
        """Rows start .. end-1 times panels first .. stop-1."""
        fn, b, columns = self.fn, self.fn.builder, self.shape.columns
        self.rows.begin(start, end)
        whole, left = fn.dim(self.n // columns), self.n % columns
        if not isinstance(left, int) and self.panels.uniform:
            with fn.loop(first, fn.minimum(stop, fn.dim(ceildiv(self.n, columns)))) as index:
                at = b.mul(index, i64(columns))
                width = fn.minimum(b.sub(fn.dim(self.n), at), i64(columns))
                self.column(start, end, at, width, self.panels.full(index))
            return
        if not (isinstance(self.n, int) and self.n < columns):
            with fn.loop(first, fn.minimum(stop, whole)) as index:
                at = b.mul(index, i64(columns))
                self.column(start, end, at, columns, self.panels.full(index))
        if left == 0:
            return
        present = b.icmp_signed(">", stop, whole)
        if not isinstance(left, int):
            present = b.and_(present, b.icmp_signed(">", fn.dim(left), i64(0)))
        with fn.if_(present):
            at = b.mul(whole, i64(columns))
            width = left if isinstance(left, int) else fn.dim(left)
            self.column(start, end, at, width, self.panels.tail(whole))

    def column(
        self, start: ir.Value, end: ir.Value, at: ir.Value, width: int | ir.Value, panel: Panel
    ) -> None:
        """Rows start .. end-1 times one panel of `width` columns that starts at column `at`."""
        fn, b, rows = self.fn, self.fn.builder, self.shape.rows
        self._next = self._following(start, panel)
        full = not (isinstance(self.m, int) and self.m < rows)
        partial = self.m % rows != 0
        if self.m == 0:
            return
        if not self.sink.light or not isinstance(width, int):
            # one copy of the epilogue for whole and partial tiles
            with fn.loop(start, end, rows) as row:
                left = fn.minimum(b.sub(end, row), i64(rows))
                with fn.if_else(b.icmp_signed("==", left, i64(rows))) as (yes, no):
                    with yes:
                        if full:
                            self.sink.keep(self._tile(row, rows, width, panel), i64(0))
                    with no:
                        if partial:
                            self._keep_partial(row, left, width, panel)
                self.sink.drain(row, left, at, width)
            return
        whole = b.sub(end, b.srem(b.sub(end, start), i64(rows)))
        if full:
            with fn.loop(start, whole, rows) as row:
                self.sink.put(self._tile(row, rows, width, panel), row, at, width)
        if partial:
            with fn.if_(b.icmp_signed("<", whole, end)):
                left = b.sub(end, whole)
                if isinstance(self.m, int):
                    tile = self._tile(whole, self.m % rows, width, panel)
                    self.sink.put(tile, whole, at, width)
                else:
                    self._keep_partial(whole, left, width, panel)
                    self.sink.drain(whole, left, at, width)

    def _following(self, start: ir.Value, panel: Panel) -> Ahead | None:
        """What is fetched while the tiles of a panel are computed, if panels are constants."""
        if not self.panels.constant:
            return None
        rows, skip = self.m, self.blocking.group_panels
        if self.blocking.order == "rows":
            block = self.blocking.block_tiles * self.shape.rows
            rows, skip = min(rows, block) if isinstance(rows, int) else rows, 1
        else:
            start = i64(0)
        return ahead(self.shape, panel[0], start, rows, self._depth, skip)

    def fetch(self, row: ir.Value, k: ir.Value) -> Callable[[ir.Value], None] | None:
        """What the tile at `row` does for the caches, per step from step `k` on."""
        if self._next is None:
            return None
        return partial(self._next.fetch, self.fn, self._next.share(self.fn, row, k))

    @property
    def _depth(self) -> Dim | ir.Value:
        """Terms of each sum."""
        rows = self.rows
        return rows.depth if rows.taps == 1 else rows.depth * rows.taps

    def _keep_partial(
        self, row: ir.Value, left: ir.Value, width: int | ir.Value, panel: Panel
    ) -> None:
        """The last `left` < rows rows: exact for a static size, else by small tiles.

        A small tile repeats the last row rather than read past it; what it computes for rows that
        do not exist is never stored.
        """
        if isinstance(self.m, int):
            self.sink.keep(self._tile(row, self.m % self.shape.rows, width, panel), i64(0))
            return
        fn, b, small = self.fn, self.fn.builder, min(self.small, self.shape.rows)
        last = b.add(row, b.sub(left, i64(1)))
        with fn.loop(0, left, small) as done:
            tile = self._tile(b.add(row, done), small, width, panel, last)
            self.sink.keep(tile, done)

    def _tile(
        self,
        row: ir.Value,
        count: int,
        width: int | ir.Value,
        panel: Panel,
        last: ir.Value | None = None,
    ) -> Tile:
        """Sums of `count` rows from `row` on (none after `last`) over all of k.

        Block by block in ascending order: a block is summed in registers from zero and added to
        the sum of the blocks before it.
        """
        fn, shape = self.fn, self.shape
        vectors = -(-width // shape.lanes) if isinstance(width, int) else shape.vectors
        lines = _Lines(self, row, count, panel, last)
        empty = zero_tile(shape, count, vectors)
        k, block = self._depth, self.k_block
        if isinstance(k, int) and k <= block:
            return lines.add(i64(0), i64(k), empty)
        whole = not isinstance(k, ir.Value) and k % block == 0
        total = k if isinstance(k, ir.Value) else fn.dim(k)
        flat = [value for line in empty for value in line]
        with fn.carry_loop(0, total, block, flat) as it:
            end: ir.Value = fn.builder.add(it.index, i64(block))
            if not whole:
                end = fn.minimum(end, total)
            part = [value for line in lines.add(it.index, end, empty) for value in line]
            it.next = [add(fn, x, y) for x, y in zip(it.values, part, strict=True)]
        return [it.results[r * vectors : (r + 1) * vectors] for r in range(count)]


@dataclass(slots=True)
class _Lines:
    """`count` rows from `row` on (none after `last`) against one panel."""

    loops: TileLoops
    row: ir.Value
    count: int
    panel: Panel
    last: ir.Value | None

    def add(self, start: ir.Value, end: ir.Value, tile: Tile) -> Tile:
        """`tile` plus the products of k = start .. end-1."""
        fn, b, rows = self.loops.fn, self.loops.fn.builder, self.loops.rows
        if rows.taps == 1:
            return self._segment(i64(0), start, b.sub(end, start), start, tile)
        depth, vectors = fn.dim(rows.depth), len(tile[0])
        first = b.sdiv(start, depth)
        stop = b.sdiv(b.add(end, b.sub(depth, i64(1))), depth)
        aligned = isinstance(rows.depth, int) and self.loops.k_block % rows.depth == 0
        flat = [value for line in tile for value in line]
        with fn.carry_loop(first, stop, 1, flat) as it:
            tap = b.mul(it.index, depth)
            skip, length = i64(0), depth
            if not aligned:
                skip = b.sub(start, tap)
                skip = b.select(b.icmp_signed("<", skip, i64(0)), i64(0), skip)
                length = b.sub(fn.minimum(b.sub(end, tap), depth), skip)
            lines = [list(it.values[r : r + vectors]) for r in range(0, len(flat), vectors)]
            done = self._segment(it.index, skip, length, b.add(tap, skip), lines)
            it.next = [value for line in done for value in line]
        return [it.results[r * vectors : (r + 1) * vectors] for r in range(self.count)]

    def _segment(
        self, tap: ir.Value, skip: ir.Value, length: ir.Value, k: ir.Value, tile: Tile
    ) -> Tile:
        """`tile` plus the products of `length` elements of one tap from `skip` on."""
        fn, shape = self.loops.fn, self.loops.shape
        pointer, stride = self.panel
        sources = self.loops.rows.pointers(tap, self.row, self.count, self.last)
        if not (isinstance(skip, ir.Constant) and skip.constant == 0):
            sources = [fn.at(source, skip, shape.element) for source in sources]
        if self.loops.inner is not None:
            return self.loops.inner(sources, pointer, k, length, tile)
        where = fn.at(pointer, fn.builder.mul(k, fn.dim(stride)), shape.panel_element)
        fetch = self.loops.fetch(self.row, k)
        return accumulate(fn, shape, sources, where, fn.dim(stride), length, tile, fetch)
