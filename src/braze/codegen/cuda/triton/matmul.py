"""Matrix products: one program a tile of one matrix of the batch, epilogue on the accumulators."""

from __future__ import annotations

from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.source import Val
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile, ceil_div, dot
from braze.core.dims import Dim, product
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import MatmulSpec

# row tiles whose programs run together and share the column tiles they read through the cache
GROUP = 8


def matmul_source(kernel: AnchorKernel, tile: Tile) -> TritonSource:
    """Source of a product kernel; programs are numbered batch-major."""
    spec = kernel.spec
    assert isinstance(spec, MatmulSpec)
    operands = (spec.lhs, spec.rhs, spec.out)
    strides = [d for o in operands for d in (*o.strides, o.offset)]
    w = AnchorWriter(kernel, [spec.k, *strides], (*spec.batch, spec.m, spec.n))
    m, n = w.text(spec.m), w.text(spec.n)
    _place(w, spec, tile)
    down = w.a.put("row[:, None]", "int64")
    right = w.a.put("column[None, :]", "int64")
    batch = _batch(w, spec.batch)
    _accumulate(w, spec, tile, batch)
    axes = dict(enumerate((*batch, down, right)))
    mask = w.a.put(f"({down} < {m}) & ({right} < {n})", "int1")
    value = w.epilogue(Val("acc", spec.acc.name), Scope(axes, mask))
    begin = w.begin(spec.out, [str(i) for i in batch])
    w.store(w.matrix(spec.out, begin, str(down), str(right)), value, mask)
    tiles = ceil_div(spec.m, tile.rows) * ceil_div(spec.n, tile.columns)
    return w.source("matmul", product(spec.batch) * tiles, tile)


def _place(w: AnchorWriter, spec: MatmulSpec, tile: Tile) -> None:
    """The rows and columns of this program, and the number of its matrix."""
    w.line(f"row_tiles = ({w.text(spec.m)} + {tile.rows - 1}) // {tile.rows}")
    w.line(f"column_tiles = ({w.text(spec.n)} + {tile.columns - 1}) // {tile.columns}")
    w.line("matrix = tl.program_id(0) // (row_tiles * column_tiles)")
    w.line("place = tl.program_id(0) % (row_tiles * column_tiles)")
    w.line(f"first = place // ({GROUP} * column_tiles) * {GROUP}")
    w.line(f"together = tl.minimum(row_tiles - first, {GROUP})")
    w.line(f"inside = place % ({GROUP} * column_tiles)")
    w.line(f"row = (first + inside % together) * {tile.rows} + tl.arange(0, {tile.rows})")
    w.line(f"column = inside // together * {tile.columns} + tl.arange(0, {tile.columns})")
    w.line("row, column = row.to(tl.int64), column.to(tl.int64)")


def _accumulate(w: AnchorWriter, spec: MatmulSpec, tile: Tile, batch: list[Val]) -> None:
    """The loop over k: acc += left @ right."""
    m, n, k = (w.text(d) for d in (spec.m, spec.n, spec.k))
    lead = [str(i) for i in batch]
    element = w.kernel.inputs[spec.lhs.slot].dtype
    w.line(f"depth = tl.arange(0, {tile.depth}).to(tl.int64)")
    left = w.matrix(spec.lhs, w.begin(spec.lhs, lead), "row[:, None]", "depth[None, :]")
    right = w.matrix(spec.rhs, w.begin(spec.rhs, lead), "depth[:, None]", "column[None, :]")
    w.line(f"left_at = {left}")
    w.line(f"right_at = {right}")
    w.line(f"acc = tl.zeros([{tile.rows}, {tile.columns}], tl.{spec.acc.name})")
    with w.src.block(f"for step in range(0, {k}, {tile.depth})"):
        exists = f"depth < {k} - step"
        left_mask = f"(row[:, None] < {m}) & ({exists})[None, :]"
        right_mask = f"({exists})[:, None] & (column[None, :] < {n})"
        w.read("left", spec.lhs.slot, "left_at", left_mask)
        w.read("right", spec.rhs.slot, "right_at", right_mask)
        w.line(f"acc = {dot(element, spec.acc, 'left', 'right', 'acc', tile.precision)}")
        w.line(f"left_at += {tile.depth} * {w.text(spec.lhs.strides[-1])}")
        w.line(f"right_at += {tile.depth} * {w.text(spec.rhs.strides[-2])}")


def _batch(w: AnchorWriter, sizes: tuple[Dim, ...]) -> list[Val]:
    """The batch axes of this program, from the number of its matrix."""
    found: list[Val] = []
    rest = w.a.put("matrix.to(tl.int64)", "int64")
    for d in reversed(sizes[1:]):
        found.insert(0, w.a.put(f"{rest} % {w.text(d)}", "int64"))
        rest = w.a.put(f"{rest} // {w.text(d)}", "int64")
    return [rest, *found] if sizes else []
