"""Matrix products: one program a tile of one matrix of the batch, or a part of its sum, with the
epilogue on the accumulators."""

from __future__ import annotations

from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.product import begin, index_type, read_ahead, steps, summed
from braze.codegen.cuda.triton.source import Val
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile, ceil_div, dot
from braze.core.dims import product
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import MatmulSpec

# row tiles whose programs run together and share the column tiles they read through the cache
GROUP = 8


def matmul_source(kernel: AnchorKernel, tile: Tile) -> TritonSource:
    """Source of a product kernel; tiles are numbered batch-major. A split needs known sizes."""
    spec = kernel.spec
    assert isinstance(spec, MatmulSpec)
    operands = (spec.lhs, spec.rhs, spec.out)
    strides = [d for o in operands for d in (*o.strides, o.offset)]
    w = AnchorWriter(kernel, [spec.k, *strides], (*spec.batch, spec.m, spec.n))
    tiles = product(spec.batch) * ceil_div(spec.m, tile.rows) * ceil_div(spec.n, tile.columns)
    kind = index_type((*kernel.inputs, kernel.output))
    begin(w, tile, tiles)
    batch = _place(w, spec, tile, kind)
    down, right = Val("row[:, None]", kind), Val("column[None, :]", kind)
    in_rows = w.below(down, spec.m, tile.rows)
    in_columns = w.below(right, spec.n, tile.columns)
    axes = (*batch, w.a.put(str(down), kind), w.a.put(str(right), kind))
    last = len(axes) - 1
    mask = w.both(in_rows, in_columns)
    parts = ((frozenset(range(last)), in_rows), (frozenset({last}), in_columns))
    scope = Scope(dict(enumerate(axes)), mask, parts=parts)
    read_ahead(w, tile, scope)
    _accumulate(w, spec, tile, [str(i) for i in batch], (in_rows, in_columns))
    with summed(w, tile):
        value = w.epilogue(Val("acc", spec.acc.name), scope)
        begins = w.begin(spec.out, [str(i) for i in batch], kind)
        w.store(w.matrix(spec.out, begins, str(axes[-2]), str(axes[-1])), value, mask)
    return w.source("matmul", tiles, tile, spec.acc)


def _place(w: AnchorWriter, spec: MatmulSpec, tile: Tile, kind: str) -> list[Val]:
    """The rows and columns of this program; the result is the place of its matrix in the batch."""
    w.line(f"row_tiles = ({w.text(spec.m)} + {tile.rows - 1}) // {tile.rows}")
    w.line(f"column_tiles = ({w.text(spec.n)} + {tile.columns - 1}) // {tile.columns}")
    w.line("matrix = place // (row_tiles * column_tiles)")
    w.line("inside = place % (row_tiles * column_tiles)")
    w.line(f"first = inside // ({GROUP} * column_tiles) * {GROUP}")
    w.line(f"together = tl.minimum(row_tiles - first, {GROUP})")
    w.line(f"inside = inside % ({GROUP} * column_tiles)")
    w.line(f"row = (first + inside % together) * {tile.rows} + tl.arange(0, {tile.rows})")
    w.line(f"column = inside // together * {tile.columns} + tl.arange(0, {tile.columns})")
    w.line(f"row, column = row.to(tl.{kind}), column.to(tl.{kind})")
    if not spec.batch:
        return []
    return w.unravel(w.a.put(f"matrix.to(tl.{kind})", kind), spec.batch)


def _accumulate(
    w: AnchorWriter,
    spec: MatmulSpec,
    tile: Tile,
    lead: list[str],
    masks: tuple[Val | None, Val | None],
) -> None:
    """The loop over k: acc += left @ right."""
    k, kind = w.text(spec.k), index_type((*w.kernel.inputs, w.kernel.output))
    element = w.kernel.inputs[spec.lhs.slot].dtype
    w.line(f"depth = tl.arange(0, {tile.depth}).to(tl.{kind})")
    begins = [w.begin(o, lead, kind) for o in (spec.lhs, spec.rhs)]
    left = w.matrix(spec.lhs, begins[0], "row[:, None]", "depth[None, :]")
    right = w.matrix(spec.rhs, begins[1], "depth[:, None]", "column[None, :]")
    w.line(f"left_at = {left}")
    w.line(f"right_at = {right}")
    w.line(f"acc = tl.zeros([{tile.rows}, {tile.columns}], tl.{spec.acc.name})")
    walk = steps(w, tile, f"(({k} + {tile.depth - 1}) // {tile.depth})")
    whole = isinstance(spec.k, int) and spec.k % tile.depth == 0
    with w.src.block(f"for step in {walk}"):
        w.line(f"done = {'step' if kind == 'int32' else 'tl.cast(step, tl.int64)'} * {tile.depth}")
        exists = None if whole else f"depth < {k} - done"
        left_at = f"(left_at + done * {w.text(spec.lhs.strides[-1])})"
        right_at = f"(right_at + done * {w.text(spec.rhs.strides[-2])})"
        w.read("left", spec.lhs.slot, left_at, masks[0], exists and f"({exists})[None, :]")
        w.read("right", spec.rhs.slot, right_at, masks[1], exists and f"({exists})[:, None]")
        w.line(f"acc = {dot(element, spec.acc, 'left', 'right', 'acc', tile.precision)}")
