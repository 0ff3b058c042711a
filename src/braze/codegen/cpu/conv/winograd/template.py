"""3x3 convolutions of stride 1 by Winograd's algorithm, channels last.

A block of output tiles goes through three steps in scratch: input patches are transformed, one
product per element of the transformed tile runs on the register tile, and products are
transformed back, finished by the epilogue and stored. Tiles whose patch is spread (see spread.py),
and output channels whose weights are, are summed directly instead. Where a tile lies is fixed by
the output, and every sum is over ascending channels, so results do not depend on blocks or workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from braze.codegen.cpu.conv.taps import steps
from braze.codegen.cpu.conv.winograd.direct import DirectSums
from braze.codegen.cpu.conv.winograd.matrices import INPUT, OUTPUT, tap_places
from braze.codegen.cpu.conv.winograd.spread import DIRECT, Spread
from braze.codegen.cpu.conv.winograd.tactics import TEMPLATE
from braze.codegen.cpu.conv.winograd.transform import transform
from braze.codegen.cpu.llvm.function import I1, POINTER, KernelFunction, i64
from braze.codegen.cpu.llvm.object import elf
from braze.codegen.cpu.product.blocks import Blocking, TileLoops
from braze.codegen.cpu.product.dot import element_type
from braze.codegen.cpu.product.epilogue import Epilogue
from braze.codegen.cpu.product.panels import PackedPanels, Source
from braze.codegen.cpu.product.register_tile import TileShape, splat
from braze.codegen.cpu.product.rows import StridedRows
from braze.codegen.cpu.product.scratch import Scratch, scratch_base
from braze.codegen.cpu.product.store import PlainFinish, TileSink, pieces
from braze.codegen.cpu.product.stored import Stored
from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import ceildiv
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Packing, Tactic
from braze.ops.lowering import ConvSpec

WEIGHT_SLOT = 1
_ROW_PADDING = 16  # elements that keep rows of scratch off each other's cache sets


def compile_winograd(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for one convolution; `tactic` is one of `winograd_tactics`."""
    spec = kernel.spec
    assert isinstance(spec, ConvSpec)
    rows, vectors, lanes = (int(tactic[key]) for key in ("rows", "vectors", "lanes"))
    element = element_type(kernel.inputs[WEIGHT_SLOT].dtype)
    shape = TileShape(rows, vectors, lanes, element, spec.acc)
    plan = _Plan(int(tactic["size"]), int(tactic["block"]) * rows, int(tactic["group"]))
    template = _Winograd(kernel, spec, target, shape, plan)
    template.build()
    code, params = template.fn.finish(speed=0)
    parameters = (("columns", shape.columns), ("lanes", lanes), ("size", plan.size))
    packing = Packing("winograd_panels", shape.dtype, parameters)
    packings = ((WEIGHT_SLOT, packing),)
    launch = HostLaunch(True, template.scratch.used)
    return CompiledKernel(elf(TEMPLATE, target, code), params, launch, packings)


@dataclass(frozen=True, slots=True)
class _Plan:
    """size: outputs of a tile along each axis; block: tiles; group: panels of channels."""

    size: int
    block: int
    group: int

    @property
    def patch(self) -> int:
        """Inputs of a tile along each axis."""
        return self.size + 2

    @property
    def points(self) -> int:
        """Elements of a transformed tile: as many products."""
        return self.patch * self.patch


@dataclass(frozen=True, slots=True)
class _Place:
    """A tile's image number and the output row and column of its first element."""

    image: ir.Value
    row: ir.Value
    column: ir.Value


class _Winograd:
    """Builds one kernel."""

    def __init__(
        self,
        kernel: AnchorKernel,
        spec: ConvSpec,
        target: CpuTarget,
        shape: TileShape,
        plan: _Plan,
    ) -> None:
        self.kernel, self.spec, self.shape, self.plan = kernel, spec, shape, plan
        self.scratch = Scratch(shape.dtype.itemsize)
        self.panels = -(-spec.out_channels // shape.columns)
        self.in_pitch = spec.in_channels + _ROW_PADDING
        self.out_pitch = self.panels * shape.columns + _ROW_PADDING
        inputs_at = self.scratch.take(plan.points * plan.block * self.in_pitch)
        sums_at = self.scratch.take(plan.points * plan.block * self.out_pitch)
        count = len(kernel.inputs) + 1
        self.fn = fn = KernelFunction(TEMPLATE, target, count + 1)
        base = scratch_base(fn, count, self.scratch.used)
        byte = ir.IntType(8)
        self.patches = fn.at(base, fn.dim(inputs_at), byte)
        self.sums = fn.at(base, fn.dim(sums_at), byte)
        self.pointers = fn.alloca(POINTER, plan.points)
        self.finished = fn.alloca(shape.element, plan.size * plan.size * shape.lanes)
        self.marks = fn.alloca(shape.element, plan.block)  # of the block's patches
        self.pixels, self.weights = Stored(fn, kernel.inputs[0].dtype), Stored(fn, shape.dtype)
        self.spread = Spread(fn, shape, plan.size)
        first = self.weights.buffer(WEIGHT_SLOT)
        self.direct = DirectSums(
            fn, spec, plan.size, self.pixels, self.pointers, first, shape.columns, self.panels
        )
        # marks of the output channels lie behind the last panel (see `_winograd_panels`)
        matrices = 1 + max(number for number, _ in tap_places(plan.size))
        behind = matrices * self.panels * shape.columns * spec.in_channels
        self.weight_marks = fn.at(first, behind, shape.element)
        self.epilogue = Epilogue(fn, kernel)
        self.high, self.wide = (ceildiv(size, plan.size) for size in spec.out_spatial)

    def build(self) -> None:
        """Emit the loop over this worker's blocks of tiles and groups of channels."""
        fn, b = self.fn, self.fn.builder
        tiles = self.spec.batch * self.high * self.wide
        blocks = ceildiv(tiles, self.plan.block)
        groups = i64(-(-self.panels // self.plan.group))
        begin, end = fn.split(b.mul(fn.dim(blocks), groups))
        with fn.if_(b.icmp_signed("<", begin, end)):
            first = b.sdiv(begin, groups)
            stop = b.sdiv(b.add(end, b.sub(groups, i64(1))), groups)
            with fn.loop(first, stop) as block:
                skipped = b.mul(block, groups)
                low, high = b.sub(begin, skipped), fn.minimum(b.sub(end, skipped), groups)
                low = b.select(b.icmp_signed("<", low, i64(0)), i64(0), low)
                start = b.mul(block, i64(self.plan.block))
                count = fn.minimum(b.sub(fn.dim(tiles), start), i64(self.plan.block))
                with fn.loop(0, count) as tile:
                    self._transform_patch(tile, self._place(b.add(start, tile)))
                with fn.loop(low, high) as group:
                    self._products(count, group)
                    with fn.loop(0, count) as tile:
                        self._finish(tile, self._place(b.add(start, tile)), group)

    def _place(self, tile: ir.Value) -> _Place:
        fn, b, size = self.fn, self.fn.builder, i64(self.plan.size)
        wide, high = fn.dim(self.wide), fn.dim(self.high)
        line = b.sdiv(tile, wide)
        column, row = b.srem(tile, wide), b.srem(line, high)
        return _Place(b.sdiv(line, high), b.mul(row, size), b.mul(column, size))

    def _transform_patch(self, tile: ir.Value, place: _Place) -> None:
        """Scratch row `tile` of every point, from the input under one output tile; its mark."""
        fn, b, patch = self.fn, self.fn.builder, self.plan.patch
        self._point_at(place)
        self.spread.begin()
        for shape, channel in self._channels():
            lines = []
            for i in range(patch):
                line = []
                for j in range(patch):
                    slot = fn.at(self.pointers, i * patch + j, POINTER)
                    source = b.load(slot, typ=POINTER, align=8)
                    line.append(self.pixels.load(self.pixels.at(source, channel), shape.lanes))
                lines.append(line)
            self.spread.see(lines, shape)
            turned = transform(fn, INPUT[self.plan.size], lines)
            at = b.add(b.mul(tile, i64(self.in_pitch)), channel)
            where = fn.at(self.patches, at, shape.element)
            step = self.plan.block * self.in_pitch
            for point, value in enumerate(v for line in turned for v in line):
                fn.store(value, fn.at(where, point * step, shape.element))
        self._mark(tile, place)

    def _channels(self) -> Iterator[tuple[TileShape, ir.Value]]:
        """Loop over all input channels by vectors."""
        return self._vectors(self.spec.in_channels, i64(0), None)

    def _mark(self, tile: ir.Value, place: _Place) -> None:
        """The mark of the patch that was seen last (see spread.py)."""
        fn, b, element = self.fn, self.fn.builder, self.shape.element
        rows, columns = self._existing(place)
        where = fn.at(self.marks, tile, element)
        mark, unclear = self.spread.loudness(rows, columns)
        fn.store(mark, where)
        with fn.if_(unclear, likely=False):
            spread = self.spread.found(self.pixels, self.pointers, self._channels, rows, columns)
            fn.store(b.select(spread, splat(element, DIRECT), mark), where)

    def _point_at(self, place: _Place, spelled_out: bool = True) -> None:
        """Pointers to the pixels of a patch; zeros where it leaves the input."""
        fn, b, spec, patch = self.fn, self.fn.builder, self.spec, self.plan.patch
        height, width = (fn.dim(size) for size in spec.in_spatial)
        image = fn.dim(spec.in_spatial[0] * spec.in_spatial[1] * spec.in_channels)
        base = self.pixels.buffer(0, b.mul(place.image, image))
        zeros = fn.zeros(spec.in_channels * self.pixels.dtype.itemsize)
        top = b.sub(place.row, i64(spec.pads[0]))
        left = b.sub(place.column, i64(spec.pads[1]))
        for i in steps(fn, patch, spelled_out):
            row = b.add(top, i)
            row_inside = b.icmp_unsigned("<", row, height)
            for j in steps(fn, patch, spelled_out):
                column = b.add(left, j)
                inside = b.and_(row_inside, b.icmp_unsigned("<", column, width))
                pixel = b.add(b.mul(row, width), column)
                where = self.pixels.moved(base, b.mul(pixel, i64(spec.in_channels)))
                slot = fn.at(self.pointers, b.add(b.mul(i, i64(patch)), j), POINTER)
                b.store(b.select(inside, where, zeros), slot, align=8)

    def _vectors(
        self, channels: int, first: ir.Value, stop: ir.Value | None
    ) -> Iterator[tuple[TileShape, ir.Value]]:
        """Loop over channels first .. stop-1 (None: all) by vectors, the rest by shorter ones."""
        fn, b, lanes = self.fn, self.fn.builder, self.shape.lanes
        whole = channels - channels % lanes
        end = i64(whole) if stop is None else fn.minimum(stop, i64(whole))
        with fn.loop(first, end, lanes) as channel:
            yield replace(self.shape, rows=1, vectors=1), channel
        if whole == channels:
            return
        reaches = ir.Constant(I1, 1)
        if stop is not None:
            reaches = b.icmp_signed(">", stop, i64(whole))
        with fn.if_(reaches):
            for offset, width in pieces(channels - whole, lanes):
                yield replace(self.shape, rows=1, vectors=1, lanes=width), i64(whole + offset)

    def _products(self, count: ir.Value, group: ir.Value) -> None:
        """One product per point: `count` rows of patches times the panels of one group."""
        fn, b, shape, plan = self.fn, self.fn.builder, self.shape, self.plan
        depth, element = self.spec.in_channels, shape.element
        rows = StridedRows(fn, shape, self.patches, self.in_pitch, depth)
        weights = self.weights
        first_weight = weights.buffer(WEIGHT_SLOT)
        source = Source(weights, first_weight, shape.columns, 1, depth, self.spec.out_channels)
        panels = PackedPanels(fn, shape, source)
        sink = TileSink(fn, shape, PlainFinish(element), self.out_pitch, 1)
        # whole tiles only: rows past `count` are never read back
        end = b.mul(b.sdiv(b.add(count, i64(shape.rows - 1)), i64(shape.rows)), i64(shape.rows))
        first = b.mul(group, i64(plan.group))
        stop = fn.minimum(b.add(first, i64(plan.group)), i64(self.panels))
        with fn.loop(0, plan.points) as point:
            patch_step = i64(plan.block * self.in_pitch)
            sum_step = i64(plan.block * self.out_pitch)
            weight_step = i64(self.panels * shape.columns * depth)
            rows.base = fn.at(self.patches, b.mul(point, patch_step), element)
            source.base = weights.buffer(WEIGHT_SLOT, b.mul(point, weight_step))
            sink.base = fn.at(self.sums, b.mul(point, sum_step), element)
            loops = TileLoops(
                fn,
                shape,
                Blocking(1, 1, "rows"),
                self.spec.block,
                plan.block,
                self.spec.out_channels,
                rows,
                panels,
                sink,
                _unbound,
            )
            loops.block(i64(0), end, first, stop)

    def _finish(self, tile: ir.Value, place: _Place, group: ir.Value) -> None:
        """Outputs of one tile and group of channels."""
        fn, b, plan = self.fn, self.fn.builder, self.plan
        columns = i64(plan.group * self.shape.columns)
        first = b.mul(group, columns)
        channels = self.spec.out_channels
        element = self.shape.element
        mark = fn.load(fn.at(self.marks, tile, element), element)
        for shape, channel in self._vectors(channels, first, b.add(first, columns)):
            both = b.fadd(mark, fn.load(fn.at(self.weight_marks, channel, element), element))
            suits = b.fcmp_ordered("<", both, splat(element, DIRECT))
            with fn.if_else(suits) as (yes, no):
                with yes:
                    self._transform_sums(shape, tile, channel)
                with no:
                    self._point_at(place, spelled_out=False)
                    with fn.loop(0, plan.size, self.direct.rows) as row:
                        self._keep(shape, self.direct.at(shape, channel, row), row)
            self._store(shape, place, channel)

    def _transform_sums(self, shape: TileShape, tile: ir.Value, channel: ir.Value) -> None:
        """A vector of channels of one tile, from the sums of all points."""
        fn, b, plan, patch = self.fn, self.fn.builder, self.plan, self.plan.patch
        at = b.add(b.mul(tile, i64(self.out_pitch)), channel)
        where = fn.at(self.sums, at, shape.element)
        step = plan.block * self.out_pitch
        lines = [
            [
                fn.load(fn.at(where, (i * patch + j) * step, shape.element), shape.vector)
                for j in range(patch)
            ]
            for i in range(patch)
        ]
        done = transform(fn, OUTPUT[plan.size], lines)
        self._keep(shape, [value for line in done for value in line], i64(0))

    def _keep(self, shape: TileShape, values: Sequence[ir.Value], row: ir.Value) -> None:
        """The sums of a tile from its row `row` on, for `_store`."""
        fn = self.fn
        line = fn.builder.mul(row, i64(self.plan.size * shape.lanes))
        where = fn.at(self.finished, line, shape.element)
        for i, value in enumerate(values):
            fn.store(value, fn.at(where, i * shape.lanes, shape.element))

    def _existing(self, place: _Place) -> tuple[ir.Value, ir.Value]:
        """How many rows and columns of a tile's outputs exist."""
        fn, size = self.fn, i64(self.plan.size)
        height, width = (fn.dim(n) for n in self.spec.out_spatial)
        rows = fn.minimum(fn.builder.sub(height, place.row), size)
        return rows, fn.minimum(fn.builder.sub(width, place.column), size)

    def _store(self, shape: TileShape, place: _Place, channel: ir.Value) -> None:
        """The outputs of a tile that exist, through the epilogue."""
        fn, b, spec, size = self.fn, self.fn.builder, self.spec, self.plan.size
        sink = TileSink(fn, shape, self.epilogue, spec.out_channels, 1)
        sink.base = fn.buffer(len(self.kernel.inputs), self.epilogue.stored)
        height, width = (fn.dim(n) for n in spec.out_spatial)
        rows, columns = self._existing(place)
        with fn.loop(0, rows) as i:
            line = b.add(b.mul(place.image, height), b.add(place.row, i))
            start = b.add(b.mul(line, width), place.column)
            with fn.loop(0, columns) as j:
                at = b.mul(b.add(b.mul(i, i64(size)), j), i64(shape.lanes))
                value = fn.load(fn.at(self.finished, at, shape.element), shape.vector)
                sink.piece(value, b.add(start, j), channel, shape.lanes)


def _unbound(batch: ir.Value) -> None:
    """Bases are set per point before the loops are emitted."""
