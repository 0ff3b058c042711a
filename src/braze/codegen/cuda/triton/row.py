"""Products of one row, and convolutions of one pixel: every weight is read once, and memory is all
that they wait for.

A program computes a few columns. Their weights lie in lines along k, all of which it asks for at
once, before anything is computed with them, so that memory never runs out of requests. Weights are
constants that no launch writes: they are asked for before the launches in front have ended, and the
next launch may start at once, so that its weights follow. Each thread sums what it has read in
ascending k; Triton's tree adds the threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.product import index_type
from braze.codegen.cuda.triton.source import RELEASE, WAIT, Val
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile, ceil_div
from braze.core.dims import product
from braze.core.dtypes import BF16, F16, F32
from braze.fusion.kernel import AnchorKernel, Packing
from braze.ops.lowering import ConvSpec, MatmulSpec

LINE_BYTES = 16  # lines of a weight begin at multiples of it: one load of a thread


@dataclass(frozen=True, slots=True)
class RowTile:
    """columns of the output a program computes, in steps of `depth` elements along k."""

    columns: int
    depth: int
    warps: int


@dataclass(frozen=True, slots=True)
class Row:
    """out[c] = sum_d left[d * step] * weight[c][d], with `pitch` elements from column to column.

    turned: whether the weight is stored [depth, columns]; offset: elements in front of `left`.
    """

    columns: int
    depth: int
    step: int
    offset: int
    pitch: int
    turned: bool

    @property
    def packed(self) -> bool:
        """Whether the weight is laid out anew."""
        return self.turned or self.pitch != self.depth


def row_of(kernel: AnchorKernel) -> Row | None:
    """`kernel` in these terms; None where it is no product of one row with a constant matrix."""
    spec, element = kernel.spec, kernel.inputs[0].dtype
    if not isinstance(spec, (MatmulSpec, ConvSpec)) or 1 not in kernel.constant:
        return None
    if element not in (F16, BF16, F32) or kernel.inputs[1].dtype is not element:
        return None
    found = _of_matmul(kernel, spec) if isinstance(spec, MatmulSpec) else _of_conv(spec)
    if found is None or spec.acc is not F32:
        return None
    line = LINE_BYTES // element.itemsize
    return replace(found, pitch=-(-found.depth // line) * line)


def _of_matmul(kernel: AnchorKernel, spec: MatmulSpec) -> Row | None:
    n, k = spec.n, spec.k
    if product((*spec.batch, spec.m)) != 1 or not isinstance(n, int) or not isinstance(k, int):
        return None
    if (spec.lhs.slot, spec.rhs.slot) != (0, 1):
        return None
    stored, tail = kernel.inputs[1].shape, spec.rhs.strides[-2:]
    turned = stored == (k, n) and tail == (n, 1)
    if spec.rhs.offset != 0 or not (turned or (stored == (n, k) and tail == (1, k))):
        return None
    step, offset = spec.lhs.strides[-1], spec.lhs.offset
    if not isinstance(step, int) or not isinstance(offset, int) or spec.out.offset != 0:
        return None
    if n > 1 and spec.out.strides[-1] != 1:
        return None
    return Row(n, k, step, offset, k, turned)


def _of_conv(spec: ConvSpec) -> Row | None:
    """One pixel, as a block that weighs channels has it."""
    one = math.prod(spec.kernel) == 1 and product((spec.batch, *spec.out_spatial)) == 1
    if not one or spec.groups != 1 or any(spec.pads) or spec.pixels is None:
        return None
    if not isinstance(offset := spec.pixels[1], int):
        return None
    return Row(spec.out_channels, spec.in_channels, 1, offset, spec.in_channels, False)


def row_source(kernel: AnchorKernel, tile: RowTile) -> TritonSource:
    """Source of a product of one row."""
    row, spec = row_of(kernel), kernel.spec
    assert row is not None and isinstance(spec, (MatmulSpec, ConvSpec))
    w = AnchorWriter(kernel, [], spec.out_shape, waits=False)
    kind = index_type((*kernel.inputs, kernel.output))
    w.line(RELEASE)
    lanes = f"tl.program_id(0) * {tile.columns} + tl.arange(0, {tile.columns})"
    column = w.a.put(f"({lanes}).to(tl.{kind})", kind)
    in_columns = w.below(column, row.columns, tile.columns)
    w.line(f"depth = tl.arange(0, {tile.depth})")
    starts = range(0, row.depth, tile.depth)
    for i, start in enumerate(starts):
        _read_weights(w, row, tile, (f"weight{i}", start), (column, in_columns))
    w.line(WAIT)
    last, zero = len(spec.out_shape) - 1, w.a.of(0, kind)
    axes = dict.fromkeys(range(last), zero) | {last: column}
    scope = Scope(axes, in_columns)
    w.emit.ahead(kernel.epilogue, scope)  # read while the left operand is
    w.line(f"acc = tl.zeros([{tile.columns}, {tile.depth}], tl.float32)")
    for i, start in enumerate(starts):
        inside = None if start + tile.depth <= row.depth else f"depth < {row.depth - start}"
        w.read("left", 0, f"({row.offset + start * row.step} + depth * {row.step})", inside)
        w.line("left = tl.broadcast_to(left.to(tl.float32)[None, :], acc.shape)")
        w.line(f"acc = tl.fma(left, weight{i}.to(tl.float32), acc)")
    w.line("acc = tl.sum(acc, 1)")
    value = w.epilogue(w.a.put("acc", "float32"), scope)
    w.store(str(column), value, in_columns)
    launch = Tile(1, tile.columns, 0, tile.warps, 1)
    source = w.source("row", ceil_div(row.columns, tile.columns), launch)
    if not row.packed:
        return source
    how = (("pitch", row.pitch), ("turned", int(row.turned)))
    return replace(source, packings=((1, Packing("lines", kernel.inputs[1].dtype, how)),))


def _read_weights(
    w: AnchorWriter, row: Row, tile: RowTile, step: tuple[str, int], place: tuple[Val, Val | None]
) -> None:
    """Ask for one step (its name, where it starts) of the lines of this program's columns."""
    (name, start), (column, in_columns) = step, place
    masks = [] if in_columns is None else [f"{in_columns}[:, None]"]
    if start + tile.depth > row.pitch:
        masks.append(f"(depth < {row.pitch - start})[None, :]")
    tail = f", mask={' & '.join(masks)}, other=0" if masks else ""
    at = f"{column}[:, None] * {row.pitch} + ({start} + depth)[None, :]"
    w.line(f'{name} = tl.load(in1 + ({at}){tail}, eviction_policy="evict_first")')
