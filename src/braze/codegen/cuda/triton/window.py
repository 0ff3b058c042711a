"""Depthwise convolutions: a window slides over each channel on its own, and nothing is a product.

A program takes a block of channels of some runs of outputs that lie side by side along the last
spatial axis; what a line of the window reads for a run is loaded once and used by every output of
it. The weight is packed to [tap][channel]. Sums are float32, taps in ascending order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from braze.codegen.cuda.triton.conv import pixels_of
from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.product import index_type
from braze.codegen.cuda.triton.source import Val
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile, ceil_div
from braze.core.dims import Dim, product
from braze.fusion.kernel import AnchorKernel, Packing
from braze.ops.lowering import ConvSpec


@dataclass(frozen=True, slots=True)
class WindowTile:
    """runs x channels a program, `run` outputs a run; whole: all lines of the window are written
    out, so that their loads do not wait for one another."""

    runs: int
    channels: int
    run: int
    warps: int
    whole: bool = False


def is_depthwise(spec: ConvSpec) -> bool:
    """Whether every output channel sees the input channel of the same number alone."""
    return 1 < spec.groups == spec.in_channels == spec.out_channels


def window_source(kernel: AnchorKernel, tile: WindowTile) -> TritonSource:
    """Source of a depthwise convolution."""
    spec = kernel.spec
    assert isinstance(spec, ConvSpec) and is_depthwise(spec)
    out: Dim = spec.out_spatial[-1]
    runs_a_line = ceil_div(out, tile.run)
    lines = (spec.batch, *spec.out_spatial[:-1])
    sizes = (*lines, out)
    w = AnchorWriter(kernel, [*spec.in_spatial, runs_a_line], (*sizes, spec.out_channels))
    kind = index_type((*kernel.inputs, kernel.output))
    column_tiles = -(-spec.out_channels // tile.channels)
    w.line("pid = tl.program_id(0)")
    row_text = f"(pid // {column_tiles} * {tile.runs} + tl.arange(0, {tile.runs}))[:, None]"
    row = w.a.put(f"{row_text}.to(tl.{kind})", kind)
    column_text = f"(pid % {column_tiles} * {tile.channels} + tl.arange(0, {tile.channels}))"
    column = w.a.put(f"{column_text}[None, :]", "int32")
    runs = product((*lines, runs_a_line))
    in_rows: Val | None = None
    if not isinstance(runs, int) or runs % tile.runs:
        count = " * ".join(w.text(d) for d in (*lines, runs_a_line))
        in_rows = w.a.put(f"{row} < {count}", "int1")
    in_columns = w.below(column, spec.out_channels, tile.channels)
    axes = w.unravel(row, (*lines, runs_a_line))
    axes[-1] = w.a.put(f"{axes[-1]} * {tile.run}", kind)
    masks = w.both(in_rows, in_columns)
    for u in range(tile.run):
        w.line(f"acc{u} = tl.zeros([{tile.runs}, {tile.channels}], tl.float32)")
    _lines(w, spec, tile, axes, column, (masks, in_columns))
    for u in range(tile.run):
        _finish(w, spec, tile, u, (axes, column), (in_rows, in_columns))
    grid = ceil_div(runs, tile.runs) * column_tiles
    launch = Tile(tile.runs, tile.channels, 0, tile.warps, 1)
    packing = Packing("window", kernel.inputs[1].dtype)
    return replace(w.source("window", grid, launch), packings=((1, packing),))


def _lines(
    w: AnchorWriter, spec: ConvSpec, tile: WindowTile, axes: list[Val], column: Val,
    masks: tuple[Val | None, Val | None],
) -> None:  # fmt: skip
    """The loop over the lines of the window; along a line everything is written out."""
    taps, kind = spec.kernel[-1], axes[0].type
    lines, (pitch, offset) = math.prod(spec.kernel[:-1]), pixels_of(spec)
    stride, step, pad = spec.strides[-1], spec.dilations[-1], spec.pads[len(spec.kernel) - 1]
    span = "tl.static_range" if tile.whole else "range"
    with w.src.block(f"for line in {span}(0, {lines})"):
        at, inside = axes[0].text, []
        for i in range(len(spec.kernel) - 1):
            after = math.prod(spec.kernel[i + 1 : -1])
            tap = f"(line // {after} % {spec.kernel[i]})"
            start = f"{axes[1 + i]} * {spec.strides[i]} - {spec.pads[i]}"
            here = w.a.put(f"{start} + {tap} * {spec.dilations[i]}", kind).text
            size = w.text(spec.in_spatial[i])
            inside.append(f"({here} >= 0) & ({here} < {size})")
            at = f"({at} * {size} + {here})"
        size = w.text(spec.in_spatial[-1])
        first = w.a.put(f"{axes[-1]} * {stride} - {pad}", kind)
        pixel = f"({at} * {size} + {first}) * {pitch}"
        at = w.a.put(f"{pixel} + {offset} + {column}", kind).text
        for t in range(taps):
            weight = f"(line * {taps * spec.in_channels} + {t * spec.in_channels} + {column})"
            w.read(f"weight{t}", 1, weight, masks[1])
            w.line(f"weight{t} = weight{t}.to(tl.float32)")
        # positions that any output of the run reads, each with the outputs and taps that do
        reads: dict[int, list[tuple[int, int]]] = {}
        for u in range(tile.run):
            for t in range(taps):
                reads.setdefault(u * stride + t * step, []).append((u, t))
        for place in sorted(reads):
            here = f"({first} + {place})"
            in_line = f"({here} >= 0) & ({here} < {size})"
            w.read("x", 0, f"({at} + {place * pitch})", masks[0], *inside, in_line)
            w.line("x = x.to(tl.float32)")
            for u, t in reads[place]:
                w.line(f"acc{u} = tl.fma(x, tl.broadcast_to(weight{t}, x.shape), acc{u})")


def _finish(
    w: AnchorWriter, spec: ConvSpec, tile: WindowTile, u: int, place: tuple[list[Val], Val],
    masks: tuple[Val | None, Val | None],
) -> None:  # fmt: skip
    """Epilogue and store of output u of each run."""
    axes, column = list(place[0]), place[1]
    axes[-1] = w.a.put(f"{axes[-1]} + {u}", axes[-1].type)
    out = spec.out_spatial[-1]
    in_rows = w.both(masks[0], w.below(axes[-1], out, tile.run))
    mask = w.both(in_rows, masks[1])
    last = len(axes)
    parts = ((frozenset(range(last)), in_rows), (frozenset({last}), masks[1]))
    scope = Scope(dict(enumerate((*axes, column))), mask, parts=parts)
    value = w.epilogue(Val(f"acc{u}", "float32"), scope)
    at = axes[0].text
    for axis, size in zip(axes[1:], spec.out_spatial, strict=True):
        at = f"({at} * {w.text(size)} + {axis})"
    w.store(f"({at} * {spec.out_channels} + {column})", value, mask)
