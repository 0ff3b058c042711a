"""Positions of the first elements in sorted order, by counting who stands before whom.

A program takes a block of one row's elements and walks the row: the rank of an element is the
number of elements before it, and elements of a rank below `count` store their position there.
Quadratic work in the row, all of it parallel and with one order of equal elements on every run.
"""

from __future__ import annotations

from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile, ceil_div
from braze.core.dims import product
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import SelectSpec


def select_source(kernel: AnchorKernel, tile: Tile) -> TritonSource:
    """tile.rows elements a program, compared with tile.columns a step."""
    spec = kernel.spec
    assert isinstance(spec, SelectSpec)
    n = spec.shape[spec.axis]
    w = AnchorWriter(kernel, [n, spec.count, spec.inner], spec.out_shape)
    size, count, inner = w.text(n), w.text(spec.count), w.text(spec.inner)
    w.line(f"blocks = ({size} + {tile.rows - 1}) // {tile.rows}")
    w.line("line = (tl.program_id(0) // blocks).to(tl.int64)")
    w.line("block = (tl.program_id(0) % blocks).to(tl.int64)")
    w.line(f"begin = line // {inner} * {size} * {inner} + line % {inner}")
    w.line(f"mine = (block * {tile.rows} + tl.arange(0, {tile.rows}))[:, None]")
    w.read("x", 0, f"begin + mine * {inner}", f"mine < {size}")
    w.line("x_nan = x != x")
    w.line(f"before = tl.zeros([{tile.rows}, {tile.columns}], tl.int64)")
    with w.src.block(f"for step in range(0, {size}, {tile.columns})"):
        w.line(f"other = (step + tl.arange(0, {tile.columns})).to(tl.int64)[None, :]")
        w.read("y", 0, f"begin + other * {inner}", f"other < {size}")
        w.line("y_nan = y != y")
        w.line("equal = (x == y) | (x_nan & y_nan)")
        if spec.largest:
            w.line("ahead = (y_nan & (x_nan == 0)) | ((x_nan == 0) & (y > x))")
        else:
            w.line("ahead = (x_nan & (y_nan == 0)) | ((y_nan == 0) & (y < x))")
        w.line("ahead = tl.where(equal, other < mine, ahead)")
        w.line(f"before += (ahead & (other < {size})).to(tl.int64)")
    w.line("rank = tl.sum(before, 1)[:, None]")
    w.line(f"at = line // {inner} * {count} * {inner} + rank * {inner} + line % {inner}")
    w.line(f"tl.store(in1 + at, mine, mask=(mine < {size}) & (rank < {count}))")
    lines = product((spec.outer, spec.inner))
    return w.source("select", lines * ceil_div(n, tile.rows), tile)
