"""Convolutions as implicit products: rows are output pixels, columns output channels, depth is
kernel taps times input channels. Channels last in memory, any number of spatial axes, groups.

The weight is packed to [group][tap][input channel][output channel]. With few input channels
(a stem) taps and channels are walked as one axis, so that no lane of a tile is wasted on padding.
"""

from __future__ import annotations

import math
from dataclasses import replace

from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.source import Val
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile, ceil_div, dot
from braze.core.dims import Dim, product
from braze.fusion.kernel import AnchorKernel, Packing
from braze.ops.lowering import ConvSpec

FEW_CHANNELS = 32


def conv_source(kernel: AnchorKernel, tile: Tile) -> TritonSource:
    """Source of a convolution kernel whose slot 1 is packed by `pack_taps`."""
    spec = kernel.spec
    assert isinstance(spec, ConvSpec)
    logical = (spec.batch, *spec.out_spatial, spec.out_channels)
    w = AnchorWriter(kernel, [*spec.in_spatial], logical)
    group_out = spec.out_channels // spec.groups
    kind = _index_type(kernel, spec)
    rows = product((spec.batch, *spec.out_spatial))
    w.line(f"column_tiles = {ceil_div(group_out, tile.columns)}")
    w.line("pid = tl.program_id(0)")
    w.line("column_tile = pid % column_tiles")
    w.line(f"group = (pid // column_tiles) % {spec.groups}")
    w.line(f"row_tile = (pid // column_tiles) // {spec.groups}")
    row = w.a.put(
        f"(row_tile * {tile.rows} + tl.arange(0, {tile.rows}))[:, None].to(tl.{kind})", kind
    )
    column = w.a.put(
        f"(column_tile * {tile.columns} + tl.arange(0, {tile.columns}))[None, :]", "int32"
    )
    total = " * ".join(f"{w.text(d)}" for d in (spec.batch, *spec.out_spatial))
    in_rows = w.a.put(f"{row} < {total}", "int1")
    axes = w.unravel(row, (spec.batch, *spec.out_spatial))
    _accumulate(w, spec, tile, axes, in_rows, column)
    channel = w.a.put(f"group * {group_out} + {column}", "int32")
    axes.append(channel)
    mask = w.a.put(f"{in_rows} & ({column} < {group_out})", "int1")
    value = w.epilogue(Val("acc", spec.acc.name), Scope(dict(enumerate(axes)), mask))
    at = w.a.put(f"{row} * {spec.out_channels} + {channel}", kind)
    w.store(at.text, value, mask)
    grid: Dim = ceil_div(rows, tile.rows) * ceil_div(group_out, tile.columns) * spec.groups
    packing = Packing("taps", kernel.inputs[1].dtype, (("groups", spec.groups),))
    return replace(w.source("conv", grid, tile), packings=((1, packing),))


def _index_type(kernel: AnchorKernel, spec: ConvSpec) -> str:
    """32 bits when no tensor can be larger."""
    counts = [product(kernel.inputs[0].shape), product(kernel.output.shape)]
    return "int32" if all(isinstance(c, int) and c < 2**31 for c in counts) else "int64"


def _accumulate(
    w: AnchorWriter, spec: ConvSpec, tile: Tile, axes: list[Val], in_rows: Val, column: Val
) -> None:
    """The loop over taps and input channels."""
    taps = math.prod(spec.kernel)
    group_in = spec.in_channels // spec.groups
    group_out = spec.out_channels // spec.groups
    element = w.kernel.inputs[0].dtype
    flat = group_in < FEW_CHANNELS
    blocks = -(-group_in // tile.depth)
    steps = -(-taps * group_in // tile.depth) if flat else taps * blocks
    w.line(f"acc = tl.zeros([{tile.rows}, {tile.columns}], tl.{spec.acc.name})")
    w.line(f"lane = tl.arange(0, {tile.depth})")
    with w.src.block(f"for step in range(0, {steps})"):
        if flat:
            w.line(f"depth = step * {tile.depth} + lane")
            w.line(f"tap = (depth // {group_in})[None, :]")
            w.line(f"channel = depth % {group_in}")
            w.line(f"exists = depth < {taps * group_in}")
        else:
            w.line(f"tap = step // {blocks}")
            w.line(f"channel = (step % {blocks}) * {tile.depth} + lane")
            w.line(f"depth = tap * {group_in} + channel")
            w.line(f"exists = channel < {group_in}")
        w.line(f"reads = {in_rows} & exists[None, :]")
        w.line(f"at = {axes[0]}")
        for i, size in enumerate(spec.in_spatial):
            after = math.prod(spec.kernel[i + 1 :])
            tap = f"((tap // {after}) % {spec.kernel[i]})" if taps > 1 else "0"
            moved = f"{tap} * {spec.dilations[i]} - {spec.pads[i]}"
            w.line(f"here = {axes[1 + i]} * {spec.strides[i]} + {moved}")
            w.line(f"reads = reads & (here >= 0) & (here < {w.text(size)})")
            w.line(f"at = at * {w.text(size)} + here")
        w.line(f"at = at * {spec.in_channels} + group * {group_in} + channel[None, :]")
        w.read("left", 0, "at", "reads")
        w.line(f"weight = (group * {taps * group_in} + depth)[:, None] * {group_out} + {column}")
        w.read("right", 1, "weight", f"exists[:, None] & ({column} < {group_out})")
        w.line(f"acc = {dot(element, spec.acc, 'left', 'right', 'acc', tile.precision)}")
