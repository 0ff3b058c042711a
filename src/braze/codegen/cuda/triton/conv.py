"""Convolutions as implicit products: rows are output pixels, columns output channels, depth is
kernel taps times input channels. Channels last in memory, any number of spatial axes, groups.

A step multiplies one tap's block of channels: where a row reads is an address, computed once, plus
a distance that all rows share, and which taps of a row lie inside the image is a bit field an axis.
Taps along the last axis lie side by side in memory, and count as channels where no padding cuts
them off. The weight is packed to [group][output channel][tap][input channel]. With few input
channels taps and channels are walked as one axis, so that no lane of a tile is wasted on padding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.product import begin, index_type, read_ahead, steps, summed
from braze.codegen.cuda.triton.source import Val
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile, ceil_div, dot
from braze.core.dims import product
from braze.fusion.kernel import AnchorKernel, Packing
from braze.ops.lowering import ConvSpec

FEW_CHANNELS = 12
FIELD_BITS = 31  # taps along an axis that a bit field holds
ALIGNED = 8  # elements of a weight that lie together start at a multiple of this


@dataclass(frozen=True, slots=True)
class Depth:
    """How a convolution walks its sum. kernel: taps along each axis, 1 along the last where they
    count as channels; channels: input channels of a group by those taps; flat: as one axis; blocks:
    steps a tap (all steps if flat); stored: channels of a tap in the packed weight; length:
    elements of an output channel there."""

    kernel: tuple[int, ...]
    channels: int
    flat: bool
    blocks: int
    stored: int
    length: int

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def steps(self) -> int:
        return self.blocks if self.flat else self.taps * self.blocks


def depth_of(spec: ConvSpec, block: int) -> Depth:
    """The walk in steps of `block`."""
    kernel, channels = spec.kernel, spec.in_channels // spec.groups
    last = len(kernel) - 1
    is_run = spec.dilations[last] == 1 and pixels_of(spec)[0] == channels
    if spec.groups == 1 and is_run and _is_inside(spec, last):
        kernel, channels = (*kernel[:-1], 1), channels * kernel[-1]
    taps = math.prod(kernel)
    if taps > 1 and channels < FEW_CHANNELS:
        blocks = -(-taps * channels // block)
        return Depth(kernel, channels, True, blocks, channels, blocks * block)
    stored = -(-channels // ALIGNED) * ALIGNED
    return Depth(kernel, channels, False, -(-channels // block), stored, taps * stored)


def conv_source(kernel: AnchorKernel, tile: Tile) -> TritonSource:
    """Source of a convolution kernel. A split needs known sizes."""
    spec = kernel.spec
    assert isinstance(spec, ConvSpec)
    sizes = (spec.batch, *spec.out_spatial)
    w = AnchorWriter(kernel, [*spec.in_spatial], (*sizes, spec.out_channels))
    group_out = spec.out_channels // spec.groups
    kind = index_type((*kernel.inputs, kernel.output))
    column_tiles = ceil_div(group_out, tile.columns)
    tiles = ceil_div(product(sizes), tile.rows) * column_tiles * spec.groups
    begin(w, tile, tiles)
    w.line(f"column_tile = place % {column_tiles}")
    w.line(f"group = place // {column_tiles} % {spec.groups}" if spec.groups > 1 else "group = 0")
    w.line(f"row_tile = place // {column_tiles * spec.groups}")
    row_text = f"(row_tile * {tile.rows} + tl.arange(0, {tile.rows}))[:, None]"
    row = w.a.put(f"{row_text}.to(tl.{kind})", kind)
    column_text = f"(column_tile * {tile.columns} + tl.arange(0, {tile.columns}))[None, :]"
    column = w.a.put(column_text, "int32")
    in_rows: Val | None = None
    total = product(sizes)
    if not isinstance(total, int) or total % tile.rows:
        in_rows = w.a.put(f"{row} < {' * '.join(w.text(d) for d in sizes)}", "int1")
    in_columns = w.below(column, group_out, tile.columns)
    axes = w.unravel(row, sizes)
    walk = depth_of(spec, tile.depth)
    channel = w.a.put(f"group * {group_out} + {column}", "int32")
    last = len(axes)
    mask = w.both(in_rows, in_columns)
    parts = ((frozenset(range(last)), in_rows), (frozenset({last}), in_columns))
    scope = Scope(dict(enumerate((*axes, channel))), mask, parts=parts)
    read_ahead(w, tile, scope)
    _accumulate(w, spec, tile, walk, _Rows(kind, row, axes, in_rows), column, in_columns)
    with summed(w, tile):
        value = w.epilogue(Val("acc", spec.acc.name), scope)
        at = w.a.put(f"{row} * {spec.out_channels} + {channel}", kind)
        w.store(at.text, value, mask)
    packing = Packing("taps", kernel.inputs[1].dtype, layout_of(spec, walk))
    return replace(w.source("conv", tiles, tile, spec.acc), packings=((1, packing),))


def layout_of(spec: ConvSpec, walk: Depth) -> tuple[tuple[str, int], ...]:
    """The parameters of the packed weight, see `pack_taps`."""
    return (("taps", walk.taps), ("channels", walk.stored), ("length", walk.length))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a tile: their type, number, index along each output axis, and which exist."""

    kind: str
    number: Val
    axes: list[Val]
    exist: Val | None


def _accumulate(
    w: AnchorWriter, spec: ConvSpec, tile: Tile, walk: Depth, rows: _Rows, column: Val,
    in_columns: Val | None,
) -> None:  # fmt: skip
    """The loop over taps and input channels."""
    element = w.kernel.inputs[0].dtype
    group_out = spec.out_channels // spec.groups
    w.line(f"lane = tl.arange(0, {tile.depth})")
    group_in = spec.in_channels // spec.groups
    w.line(f"left_at = {_start(w, spec, rows)} + group * {group_in}")
    fields = _fields(w, spec, rows)
    w.line(f"right_at = (group * {group_out} + {column}) * {walk.length} + lane[:, None]")
    w.line(f"acc = tl.zeros([{tile.rows}, {tile.columns}], tl.{spec.acc.name})")
    span = steps(w, tile, str(walk.steps))
    with w.src.block(f"for step in {span}"):
        in_left: str | None = None
        in_right: str | None = None
        if walk.flat:
            w.line(f"depth = step * {tile.depth} + lane")
            w.line(f"tap = (depth // {walk.channels})[None, :]")
            w.line(f"channel = (depth % {walk.channels})[None, :]")
            if walk.taps * walk.channels < walk.length:
                in_left = f"(depth < {walk.taps * walk.channels})[None, :]"
            w.line(f"weight = right_at + step * {tile.depth}")
        else:
            w.line(f"tap = step // {walk.blocks}" if walk.taps > 1 else "tap = 0")
            w.line(f"start = step % {walk.blocks} * {tile.depth}")
            w.line("channel = start + lane[None, :]")
            if walk.channels % tile.depth:
                in_left = f"channel < {walk.channels}"
                in_right = f"(start + lane < {walk.stored})[:, None]"
            w.line(f"weight = right_at + (tap * {walk.stored} + start)")
        inside = _tap(w, spec, walk, fields, rows)
        w.read("left", 0, "(left_at + away + channel)", rows.exist, *inside, in_left)
        w.read("right", 1, "weight", in_columns, in_right)
        w.line(f"acc = {dot(element, spec.acc, 'left', 'right', 'acc', tile.precision)}")


def _start(w: AnchorWriter, spec: ConvSpec, rows: _Rows) -> str:
    """Where the first tap of each row reads, for channel 0 of group 0; it may lie outside."""
    plain = math.prod(spec.kernel) == 1 and not any(spec.pads)
    pitch, offset = pixels_of(spec)
    if plain and all(s == 1 for s in spec.strides):
        return f"{rows.number} * {pitch} + {offset}"
    at = rows.axes[0].text
    for i, size in enumerate(spec.in_spatial):
        first = f"{rows.axes[1 + i]} * {spec.strides[i]} - {spec.pads[i]}"
        at = w.a.put(f"{at} * {w.text(size)} + ({first})", rows.kind).text
    return f"{at} * {pitch} + {offset}"


def pixels_of(spec: ConvSpec) -> tuple[int, int]:
    """`ConvSpec.pixels` of what the backend takes."""
    found = spec.pixels
    assert found is not None, spec
    return found


def _is_inside(spec: ConvSpec, i: int) -> bool:
    """Whether every tap of every output lies inside the input along spatial axis i."""
    size, out = spec.in_spatial[i], spec.out_spatial[i]
    after = spec.pads[len(spec.kernel) + i]
    if spec.pads[i] > 0:
        return False
    if isinstance(size, int) and isinstance(out, int):
        reach = spec.dilations[i] * (spec.kernel[i] - 1)
        return (out - 1) * spec.strides[i] - spec.pads[i] + reach < size
    return after <= 0


def _fields(w: AnchorWriter, spec: ConvSpec, rows: _Rows) -> list[Val | None]:
    """Along each axis a bit a tap: whether it lies inside; None where all do, or bits do not do."""
    found: list[Val | None] = []
    for i, size in enumerate(spec.in_spatial):
        if _is_inside(spec, i) or spec.kernel[i] > FIELD_BITS:
            found.append(None)
            continue
        first = w.a.put(f"{rows.axes[1 + i]} * {spec.strides[i]} - {spec.pads[i]}", rows.kind)
        bits = []
        for t in range(spec.kernel[i]):
            here = f"({first} + {t * spec.dilations[i]})"
            bits.append(f"((({here} >= 0) & ({here} < {w.text(size)})).to(tl.int32) << {t})")
        found.append(w.a.put(" | ".join(bits), "int32"))
    return found


def _tap(
    w: AnchorWriter, spec: ConvSpec, walk: Depth, fields: list[Val | None], rows: _Rows
) -> list[str]:
    """`away`: how far the tap lies behind the first; the result says where it is inside."""
    if walk.taps == 1:
        w.line("away = 0")
        indexes = ["0"] * len(walk.kernel)
    else:
        indexes = []
        for i, taps in enumerate(walk.kernel):
            after = math.prod(walk.kernel[i + 1 :])
            w.line(f"tap{i} = tap // {after} % {taps}")
            indexes.append(f"tap{i}")
        away = "0"
        for i, size in enumerate(spec.in_spatial):
            away = f"({away} * {w.text(size)} + tap{i} * {spec.dilations[i]})"
        w.line(f"away = {away} * {pixels_of(spec)[0]}")
    inside = []
    for i, (field, index) in enumerate(zip(fields, indexes, strict=True)):
        if field is not None:
            inside.append(f"(({field} >> {index}) & 1) != 0")
        elif not _is_inside(spec, i):
            first = f"{rows.axes[1 + i]} * {spec.strides[i]} - {spec.pads[i]}"
            here = f"({first} + {index} * {spec.dilations[i]})"
            inside.append(f"({here} >= 0) & ({here} < {w.text(spec.in_spatial[i])})")
    return inside
