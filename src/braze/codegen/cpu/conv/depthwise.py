"""Depthwise convolutions, channels last: tactics and code.

A tile is `width` neighbouring output columns of one line times one or two vectors of channels. For
each row of the kernel window the weights sit in registers and every input pixel is loaded once
and used by all the outputs it reaches. Taps are summed in ascending order, one sum per output and
block of whole lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from llvmlite import ir

from braze.codegen.cpu.conv.lift import planar
from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.llvm.object import elf
from braze.codegen.cpu.product.dot import element_type, multiply_add
from braze.codegen.cpu.product.epilogue import Epilogue
from braze.codegen.cpu.product.register_tile import Tile, TileShape, zero_tile
from braze.codegen.cpu.product.store import TileSink, pieces
from braze.codegen.cpu.product.stored import Stored
from braze.codegen.cpu.product.tactics import accumulators, choose_lanes
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import Effort
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Packing, Tactic
from braze.ops.lowering import ConvSpec

TEMPLATE = "depthwise"
WEIGHT_SLOT = 1
_TILE_CYCLES = 4  # addresses and stores of a tile, per row of the window
_UNITS_PER_WORKER = 8  # below this many lines per worker channels are split too


@dataclass(frozen=True, slots=True)
class Span:
    """Tiles first, first+width .. of a line that read the same window columns.

    count: outputs per tile; columns: which columns of the tile's window lie inside the input.
    """

    first: int
    tiles: int
    count: int
    columns: tuple[bool, ...]


def is_depthwise(spec: ConvSpec) -> bool:
    """Whether each output channel reads one input channel, its own."""
    return spec.groups == spec.in_channels == spec.out_channels and spec.groups > 1


def depthwise_tactics(
    kernel: AnchorKernel, target: CpuTarget, effort: Effort
) -> tuple[Tactic, ...]:
    """Tactics for a depthwise convolution that `conv_support` takes, best estimate first."""
    spec = planar(kernel.spec)
    lanes = choose_lanes(target, spec.acc, spec.out_channels)
    out_w = spec.out_spatial[1]
    limit = accumulators(target) * 2 // 3
    choices = []
    for vectors in (1, 2) if effort.estimate else (1,):
        for width in range(1, 9) if effort.estimate else range(4, 0, -1):
            fits = width * vectors <= limit and (vectors - 1) * lanes < spec.out_channels
            if fits and (not isinstance(out_w, int) or width <= max(1, out_w)):
                choices.append((_cost(spec, width, vectors), width, vectors))
    found = []
    ranked = sorted(choices) if effort.estimate else choices  # else the widest of four that fits
    for _, width, vectors in ranked[: effort.tactics]:
        values = (("width", width), ("vectors", vectors), ("lanes", lanes))
        found.append(Tactic(TEMPLATE, (*values, ("groups", _channel_groups(spec, target)))))
    return tuple(found)


def _cost(spec: ConvSpec, width: int, vectors: int) -> float:
    """Loads and multiplies per output of one row of the window, tails included."""
    out_w = spec.out_spatial[1] if isinstance(spec.out_spatial[1], int) else 8 * width
    taps, step = spec.kernel[1], spec.strides[1]
    total = 0.0
    for count, tiles in ((width, out_w // width), (out_w % width, 1)):
        if count:
            loads = (count - 1) * step + taps + taps
            total += tiles * (max(loads, count * taps, 4 * taps / vectors) + _TILE_CYCLES)
    return total


def _channel_groups(spec: ConvSpec, target: CpuTarget) -> int:
    if target.threads == 1 or not isinstance(spec.out_spatial[0], int):
        return 1
    lines = spec.out_spatial[0] * (spec.batch if isinstance(spec.batch, int) else 1)
    return max(1, min(4, -(-_UNITS_PER_WORKER * target.threads // max(1, lines))))


def spans(spec: ConvSpec, width: int) -> tuple[Span, ...]:
    """How the tiles of a line of static length read the input, in order."""
    in_w, out_w = spec.in_spatial[1], spec.out_spatial[1]
    assert isinstance(in_w, int) and isinstance(out_w, int)
    found: list[Span] = []
    for first in range(0, out_w, width):
        count = min(width, out_w - first)
        left = first * spec.strides[1] - spec.pads[1]
        reach = (count - 1) * spec.strides[1] + (spec.kernel[1] - 1) * spec.dilations[1] + 1
        columns = tuple(0 <= left + j < in_w for j in range(reach))
        if found and (found[-1].count, found[-1].columns) == (count, columns):
            last = found.pop()
            found.append(Span(last.first, last.tiles + 1, count, columns))
        else:
            found.append(Span(first, 1, count, columns))
    return tuple(found)


def compile_depthwise(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for one depthwise convolution; `tactic` is one of `depthwise_tactics`."""
    fn = KernelFunction(TEMPLATE, target, len(kernel.inputs) + 1)
    width, vectors, lanes = (int(tactic[key]) for key in ("width", "vectors", "lanes"))
    element = element_type(kernel.inputs[WEIGHT_SLOT].dtype)
    shape = TileShape(width, vectors, lanes, element, planar(kernel.spec).acc)
    _Lines(fn, kernel, planar(kernel.spec), shape, int(tactic["groups"])).run()
    code, params = fn.finish(speed=1, unroll=False)
    packing = Packing("depthwise_taps", shape.dtype)
    object_ = elf(TEMPLATE, target, code)
    return CompiledKernel(object_, params, HostLaunch(True), ((WEIGHT_SLOT, packing),))


@dataclass(slots=True)
class _Line:
    """One output line: input pointer of its image, first window row, flat first output pixel."""

    image: ir.Value
    top: ir.Value
    pixel: ir.Value
    first_tap: ir.Value
    last_tap: ir.Value


@dataclass(slots=True)
class _Lines:
    """Emits all lines of one kernel."""

    fn: KernelFunction
    kernel: AnchorKernel
    spec: ConvSpec
    shape: TileShape
    groups: int
    epilogue: Epilogue = field(init=False)
    pixels: Stored = field(init=False)
    weights: Stored = field(init=False)

    def __post_init__(self) -> None:
        self.pixels = Stored(self.fn, self.kernel.inputs[0].dtype)
        self.weights = Stored(self.fn, self.shape.dtype)
        self.epilogue = Epilogue(self.fn, self.kernel)

    def run(self) -> None:
        """Emit the loop over this worker's lines (times groups of channels)."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        begin, end = fn.split(fn.dim(spec.batch * spec.out_spatial[0] * self.groups))
        columns = self.shape.columns
        per_group = -(-(spec.out_channels // columns) // self.groups) * columns
        whole = i64(spec.out_channels // columns * columns)
        with fn.loop(begin, end) as unit:
            row, group = b.sdiv(unit, i64(self.groups)), b.srem(unit, i64(self.groups))
            line = self._line(row)
            first = b.mul(group, i64(per_group))
            stop = fn.minimum(b.add(first, i64(per_group)), whole)
            if self._static():
                for span in spans(spec, self.shape.rows):
                    self._span(line, span, first, stop, group)
            else:
                self._dynamic(line, first, stop, group)

    def _static(self) -> bool:
        return isinstance(self.spec.in_spatial[1], int) and isinstance(
            self.spec.out_spatial[1], int
        )

    def _line(self, row: ir.Value) -> _Line:
        """Line `row` (flat over the batch) and the taps that lie inside the input."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        out_h = fn.dim(spec.out_spatial[0])
        n, oh = b.sdiv(row, out_h), b.srem(row, out_h)
        top = b.sub(b.mul(oh, i64(spec.strides[0])), i64(spec.pads[0]))
        size = fn.dim(spec.in_spatial[0] * spec.in_spatial[1] * spec.in_channels)
        image = self.pixels.buffer(0, b.mul(n, size))
        step = i64(spec.dilations[0])
        above = b.sub(i64(0), top)
        zero = i64(0)
        first = b.sdiv(b.add(above, i64(spec.dilations[0] - 1)), step)
        first = b.select(b.icmp_signed(">", above, zero), first, zero)
        left = b.sub(fn.dim(spec.in_spatial[0]), top)
        last = b.sdiv(b.add(left, i64(spec.dilations[0] - 1)), step)
        last = b.select(b.icmp_signed(">", left, zero), last, zero)
        last = fn.minimum(last, i64(spec.kernel[0]))
        return _Line(image, top, b.mul(row, fn.dim(spec.out_spatial[1])), first, last)

    def _span(
        self, line: _Line, span: Span, first: ir.Value, stop: ir.Value, group: ir.Value
    ) -> None:
        fn, b = self.fn, self.fn.builder
        end = span.first + span.tiles * self.shape.rows
        with fn.loop(span.first, end, self.shape.rows) as ow:
            for shape, channel in self._channels(first, stop, group):
                tile = self._tile(shape, line, ow, channel, span.count, span.columns)
                self._finish(shape, tile, b.add(line.pixel, ow), i64(span.count), channel)

    def _dynamic(self, line: _Line, first: ir.Value, stop: ir.Value, group: ir.Value) -> None:
        """Lines of a length known at run time: tiles that touch an edge check every column."""
        fn, b, spec, width = self.fn, self.fn.builder, self.spec, self.shape.rows
        out_w, in_w = fn.dim(spec.out_spatial[1]), fn.dim(spec.in_spatial[1])
        reach = (width - 1) * spec.strides[1] + (spec.kernel[1] - 1) * spec.dilations[1] + 1
        with fn.loop(0, out_w, width) as ow:
            left = b.sub(b.mul(ow, i64(spec.strides[1])), i64(spec.pads[1]))
            count = fn.minimum(b.sub(out_w, ow), i64(width))
            inside = b.and_(
                b.icmp_signed(">=", left, i64(0)),
                b.icmp_signed("<=", b.add(left, i64(reach)), in_w),
            )
            inside = b.and_(inside, b.icmp_signed("==", count, i64(width)))
            with fn.if_else(inside) as branches:
                for branch, columns in zip(branches, ((True,) * reach, None), strict=True):
                    with branch:
                        for shape, channel in self._channels(first, stop, group):
                            tile = self._tile(shape, line, ow, channel, width, columns)
                            number = i64(width) if columns else count
                            self._finish(shape, tile, b.add(line.pixel, ow), number, channel)

    def _channels(
        self, first: ir.Value, stop: ir.Value, group: ir.Value
    ) -> Iterator[tuple[TileShape, ir.Value]]:
        """Loop over channels: whole vectors, then the static rest by shorter ones."""
        fn, shape = self.fn, self.shape
        channels = self.spec.out_channels
        if channels >= shape.columns:
            with fn.loop(first, stop, shape.columns) as channel:
                yield shape, channel
        start = channels // shape.columns * shape.columns
        if start == channels:
            return
        last = fn.builder.icmp_signed("==", group, i64(self.groups - 1))
        with fn.if_(last):
            for offset, lanes in pieces(channels - start, shape.lanes):
                yield replace(shape, vectors=1, lanes=lanes), i64(start + offset)

    def _finish(
        self, shape: TileShape, tile: Tile, pixel: ir.Value, count: ir.Value, channel: ir.Value
    ) -> None:
        """Epilogue and store of the first `count` outputs of a tile."""
        sink = TileSink(self.fn, shape, self.epilogue, self.spec.out_channels, 1)
        output = len(self.kernel.inputs)
        sink.base = self.fn.buffer(output, self.epilogue.stored)
        if sink.light and isinstance(count, ir.Constant):
            sink.put(tile, pixel, channel, shape.columns)
            return
        sink.keep(tile, i64(0))
        sink.drain(pixel, count, channel, shape.columns)

    def _tile(
        self,
        shape: TileShape,
        line: _Line,
        ow: ir.Value,
        channel: ir.Value,
        count: int,
        columns: tuple[bool, ...] | None,
    ) -> Tile:
        """Sums of `count` outputs from column `ow`; columns None: check at run time."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        flat = [value for row in zero_tile(shape, count, shape.vectors) for value in row]
        place = (ow, channel)
        lines = spec.block // spec.kernel[1]
        if spec.kernel[0] <= lines:
            sums = self._lines(shape, line, place, flat, columns, (line.first_tap, line.last_tap))
        else:
            with fn.carry_loop(0, spec.kernel[0], lines, flat) as it:
                first, last = it.index, b.add(it.index, i64(lines))
                first = b.select(b.icmp_signed("<", first, line.first_tap), line.first_tap, first)
                span = (first, fn.minimum(last, line.last_tap))
                part = self._lines(shape, line, place, flat, columns, span)
                it.next = [b.fadd(x, y) for x, y in zip(it.values, part, strict=True)]
            sums = it.results
        n = shape.vectors
        return [sums[r * n : (r + 1) * n] for r in range(count)]

    def _lines(
        self,
        shape: TileShape,
        line: _Line,
        place: tuple[ir.Value, ir.Value],
        sums: list[ir.Value],
        columns: tuple[bool, ...] | None,
        taps: tuple[ir.Value, ir.Value],
    ) -> list[ir.Value]:
        """`sums` at (column, channel) `place` plus the window's lines taps[0] .. taps[1]-1."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        ow, channel = place
        left = b.sub(b.mul(ow, i64(spec.strides[1])), i64(spec.pads[1]))
        width = fn.dim(spec.in_spatial[1])
        with fn.carry_loop(*taps, 1, sums) as it:
            ih = b.add(line.top, b.mul(it.index, i64(spec.dilations[0])))
            pixel = b.add(b.mul(ih, width), left)
            at = b.add(b.mul(pixel, i64(spec.in_channels)), channel)
            source = self.pixels.moved(line.image, at)
            tap = b.mul(it.index, i64(spec.kernel[1] * spec.out_channels))
            weights = self.weights.buffer(WEIGHT_SLOT, b.add(tap, channel))
            it.next = self._row(shape, source, weights, list(it.values), columns, left)
        return it.results

    def _row(
        self,
        shape: TileShape,
        source: ir.Value,
        weights: ir.Value,
        acc: list[ir.Value],
        columns: tuple[bool, ...] | None,
        left: ir.Value,
    ) -> list[ir.Value]:
        """Add one row of the window to all sums of a tile, input columns in order."""
        fn, spec = self.fn, self.spec
        taps, vectors = spec.kernel[1], shape.vectors
        count = len(acc) // vectors
        held = [
            [
                self._load(self.weights, shape, weights, kw * spec.out_channels, v)
                for v in range(vectors)
            ]
            for kw in range(taps)
        ]
        reach = (count - 1) * spec.strides[1] + (taps - 1) * spec.dilations[1] + 1
        for j in range(reach):
            users = [
                (t, kw)
                for t in range(count)
                for kw in range(taps)
                if t * spec.strides[1] + kw * spec.dilations[1] == j
            ]
            if not users or (columns is not None and not columns[j]):
                continue
            where = self.pixels.moved(source, i64(j * spec.in_channels))
            if columns is None:
                where = self._checked(where, left, j)
            for v in range(vectors):
                value = self._load(self.pixels, shape, where, 0, v)
                for t, kw in users:
                    i = t * vectors + v
                    acc[i] = multiply_add(fn, value, held[kw][v], acc[i])
        return acc

    def _checked(self, where: ir.Value, left: ir.Value, j: int) -> ir.Value:
        """`where`, or zeros when window column j lies outside of the input."""
        fn, b = self.fn, self.fn.builder
        column = b.add(left, i64(j))
        inside = b.icmp_unsigned("<", column, fn.dim(self.spec.in_spatial[1]))
        return b.select(inside, where, fn.zeros(self.shape.columns * self.pixels.dtype.itemsize))

    @staticmethod
    def _load(
        stored: Stored, shape: TileShape, pointer: ir.Value, offset: int, v: int
    ) -> ir.Value:
        return stored.load(stored.at(pointer, offset + v * shape.lanes), shape.lanes)
