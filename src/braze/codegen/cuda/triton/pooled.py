"""Convolutions with a pool behind them, plainly: for where the form for Hopper does not compile.

A program takes a block of pooled pixels and a block of channels, goes over the places of their
windows, and adds up every sum product by product. That repeats what windows share and uses no
tensor core; it is here so that no network hangs on one template, and shows whether that is right.
"""

from __future__ import annotations

import math
from typing import Final

from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.source import Val
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile
from braze.core.dims import static, static_size
from braze.fusion.kernel import AnchorKernel, Tactic
from braze.ops.lowering import PooledSpec

PLAIN: Final = "pooled"
PIXELS, CHANNELS, WARPS = 32, 64, 4
LOWEST: Final = -(2**31)


def plain_tactic() -> Tactic:
    """The only one."""
    return Tactic(PLAIN)


def plain_source(kernel: AnchorKernel) -> TritonSource:
    """The launch, for sums of bytes of known sizes."""
    spec = kernel.spec
    assert isinstance(spec, PooledSpec)
    sizes, columns = static((spec.conv.batch, *spec.out_spatial)), spec.conv.out_channels
    tiles, total = -(-columns // CHANNELS), static_size(sizes)
    w = AnchorWriter(kernel, [], spec.out_shape)
    w.line(f"row = tl.program_id(0) // {tiles} * {PIXELS} + tl.arange(0, {PIXELS})[:, None]")
    row = w.a.put("row", "int32")
    lane = f"tl.arange(0, {CHANNELS})[None, :]"
    column = w.a.put(f"tl.program_id(0) % {tiles} * {CHANNELS} + {lane}", "int32")
    rows, channels = w.below(row, total, PIXELS), w.below(column, columns, CHANNELS)
    axes = w.unravel(row, sizes)
    w.line(f"largest = tl.full([{PIXELS}, {CHANNELS}], {LOWEST}, tl.int32)")
    _window(w, spec, axes, column, (rows, channels))
    mask = w.both(rows, channels)
    parts = ((frozenset(range(3)), rows), (frozenset({3}), channels))
    scope = Scope(dict(enumerate((*axes, column))), mask, parts=parts)
    value = w.epilogue(Val("largest", "int32"), scope)
    w.store(f"({row} * {columns} + {column})", value, mask)
    grid = -(-total // PIXELS) * tiles
    return w.source(PLAIN, grid, Tile(PIXELS, CHANNELS, 0, WARPS, 1))


def _window(
    w: AnchorWriter, spec: PooledSpec, axes: list[Val], column: Val,
    masks: tuple[Val | None, Val | None],
) -> None:  # fmt: skip
    """largest = the largest sum of each window."""
    conv = spec.conv
    data, _ = conv.operands["data"]
    of_image, of_line, of_pixel, of_channel = data.strides
    wide, taps = conv.kernel[1], math.prod(conv.kernel)
    depth = conv.in_channels * taps
    with w.src.block(f"for place in range({math.prod(spec.window)})"):
        for name, axis, step, pad, of, size in zip(
            "yx", axes[1:], spec.steps, spec.pads, ("//", "%"), conv.out_spatial, strict=True
        ):
            w.line(f"{name} = {axis} * {step} - {pad} + place {of} {spec.window[1]}")
            w.line(f"has_{name} = ({name} >= 0) & ({name} < {size})")
        w.line(f"sums = tl.zeros([{PIXELS}, {CHANNELS}], tl.int32)")
        with w.src.block(f"for term in range({depth})"):
            w.line(f"tap = term % {taps}")
            for name, i, tap in (("y", 0, f"tap // {wide}"), ("x", 1, f"tap % {wide}")):
                w.line(f"{name}0 = {name} * {conv.strides[i]} - {conv.pads[i]} + {tap}")
            inside = f"(y0 >= 0) & (y0 < {conv.in_spatial[0]})"
            across = f"(x0 >= 0) & (x0 < {conv.in_spatial[1]})"
            at = f"({data.offset} + {axes[0]} * {of_image} + y0 * {of_line} + x0 * {of_pixel}"
            w.read("left", 0, f"{at} + term // {taps} * {of_channel})", masks[0], inside, across)
            w.read("right", 1, f"({column} * {depth} + term)", masks[1])
            w.line("sums += left.to(tl.int32) * right.to(tl.int32)")
        w.line(f"sums = tl.where(has_y & has_x, sums, {LOWEST})")
        w.line("largest = tl.maximum(largest, sums)")
