"""Products in Gluon whose rows are copied once and multiplied by one tile of columns after another.

With few steps along k a tile is done before what it waits for has travelled: the copies of its rows
and of what its epilogue reads. So a program keeps all of its rows in shared memory and goes over
the columns. The weight of the tiles ahead travels meanwhile, and the residual of the next tile is
asked for before the epilogue of this one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from braze.codegen.cuda.gluon.job import Job
from braze.codegen.cuda.gluon.layout import GluonTile, gluon_tactic, run_of, spread
from braze.codegen.cuda.gluon.product import (
    function,
    is_ragged,
    job_of,
    layouts,
    rows_of,
    scope_of,
)
from braze.codegen.cuda.gluon.shapes import Rows, product_shape
from braze.codegen.cuda.gluon.tactics import BARRIERS, boxed, depths, row_tiles
from braze.codegen.cuda.gluon.tiles import Masked
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.source import WAIT, Source
from braze.core.config import Effort
from braze.expr.fold import leaves
from braze.fusion.kernel import AnchorKernel, Tactic

TEMPLATE: Final = "gluon_sweep"
# rows, columns, warps, stages
TILES: Final = (
    (128, 64, 4, 2), (128, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 3), (256, 64, 8, 3),
)  # fmt: skip
OFFERED: Final = 3  # of these: what has been the fastest on an H200, always without a residual
MOST_STEPS: Final = 4
WRITTEN_OUT: Final = (4, 2, 1)  # column tiles
MULTIPROCESSORS: Final = 132


def sweep_tactics(kernel: AnchorKernel, shared_bytes: int, effort: Effort) -> tuple[Tactic, ...]:
    """Tiles for products of bytes over few steps; none for what the template does not take."""
    if kernel.inputs[0].dtype.itemsize > 1 or is_ragged(kernel) or effort.tactics == 1:
        return ()
    if any(len(t.shape) > 1 for t in kernel.inputs[2:]):
        return ()
    found: list[tuple[float, int, GluonTile]] = []
    for depth in depths(kernel):
        shape = product_shape(kernel, depth)
        if isinstance(shape, str):
            continue
        for sizes in TILES[:OFFERED]:
            t = GluonTile(*sizes, consumers=0, depth=depth)
            t = t if isinstance(shape, Rows) else boxed(t, shape)
            channels = shape.depth if isinstance(shape, Rows) else shape.channels
            taps = 1 if isinstance(shape, Rows) else math.prod(shape.kernel)
            steps = taps * -(-channels // t.steps_of(kernel.inputs[0].dtype))
            columns = shape.columns if isinstance(shape, Rows) else shape.out_channels
            room = (t.rows + t.stages * t.columns) * steps * depth + BARRIERS
            if steps > MOST_STEPS or columns <= t.columns or room > shared_bytes:
                continue
            waves = math.ceil(row_tiles(t, shape) / (MULTIPROCESSORS * (shared_bytes // room)))
            found.append((waves * (t.rows + 32) / (shared_bytes // room), len(found), t))
    found.sort(key=lambda f: f[:2])
    return tuple(Tactic(TEMPLATE, gluon_tactic(t).parameters) for _, _, t in found)


def sweep_source(kernel: AnchorKernel, tile: GluonTile) -> TritonSource:
    """Source of a product that `sweep_tactics` has a tile for."""
    job = job_of(kernel, tile)
    w, left = job.w, job.left
    assert len(job.parts) == 1, "one instruction has all columns of a tile"
    weight = "copy_weight(map1, right, full, {}, {})"
    _memory(job)
    w.line("row_tile = tl.program_id(0)")
    left.place(w, w.src)
    with w.src.block(f"for i in gl.static_range({min(tile.stages - 1, job.column_tiles)})"):
        w.line(weight.format("i", "True"))
    w.line(WAIT)
    w.line("copy_left(map0, left, some_rows, row_tile" + job.sizes + ")")
    _tiles(job, weight)
    out = Source()
    left.place(w, out)
    out.line(f"mbarrier.expect(some_rows, {left.steps * tile.rows * tile.depth})")
    with out.block(f"for step in gl.static_range({left.steps})"):
        at = left.coordinates(out)
        out.line(f"copy_box(map0, [{at}], some_rows, left.index(step))")
    arguments = ", ".join([*job.maps, job.pointers])
    pieces = [
        function("copy_weight", "map1, right, full, column_tile, some", _copies(job)),
        function("copy_left", "map0, left, some_rows, row_tile" + job.sizes, out.lines),
        function("product", arguments, w.src.lines),
    ]
    return TritonSource(
        "product", "\n\n".join(pieces) + "\n", w.pointers(), tuple(w.params), left.count,
        tile.warps, waits=True, maps=(left.map(), job.weight_map(tile.columns)),
        packings=((1, job.packing),),
    )  # fmt: skip


def _memory(job: Job) -> None:
    """Layouts, all steps of the rows, and a ring of column tiles with all of theirs."""
    w, t, steps = job.w, job.tile, job.left.steps
    for text in layouts(job):
        w.line(text)
    for name, count, box in (
        ("left", steps, job.left.map().box),
        ("right", t.stages * steps, (t.columns, job.step)),
    ):
        shape, layout = [count, *box], job.shared_layout(len(box))
        w.line(f"{name} = gl.allocate_shared_memory(gl.{job.element}, {shape}, {layout})")
    bars = "mbarrier.MBarrierLayout()"
    w.line(f"full = gl.allocate_shared_memory(gl.int64, [{t.stages + 1}, 1], {bars})")
    with w.src.block(f"for i in gl.static_range({t.stages + 1})"):
        w.line("mbarrier.init(full.index(i), count=1)")
    w.line("fence_async_shared()")
    w.line(f"some_rows = full.index({t.stages})")


def _copies(job: Job) -> list[str]:
    """Start to copy the weight of a column tile, all its steps."""
    t, steps, out = job.tile, job.left.steps, Source()
    out.line(f"slot = column_tile % {t.stages}")
    out.line(f"some = some & (column_tile < {job.column_tiles})")
    size = steps * t.columns * t.depth
    out.line(f"mbarrier.expect(full.index(slot), {size}, pred=some)")
    with out.block(f"for step in gl.static_range({steps})"):
        at = f"column_tile * {t.columns}, step * {job.step}"
        to = f"right.index(slot * {steps} + step)"
        out.line(f"copy_box(map1, [{at}], full.index(slot), {to}, pred=some)")
    return out.lines


def _tiles(job: Job, weight: str) -> None:
    """All column tiles, some of them written out one after the other."""
    count = job.column_tiles
    together = next(n for n in WRITTEN_OUT if count % n == 0)
    rows = rows_of(job, "layout")
    if together == count:
        _written_out(job, weight, rows, [str(i) for i in range(count)])
        return
    with job.w.src.block(f"for chunk in range({count // together})"):
        names = [f"(chunk * {together} + {i})" for i in range(together)]
        _written_out(job, weight, rows, names)


def _written_out(job: Job, weight: str, rows: Masked, tiles: Sequence[str]) -> None:
    """What the epilogue reads of each row is read a tile ahead, so that it travels under the
    epilogue before. (Bytes that a loop carried to its next turn would be one to a register.)"""
    w, t = job.w, job.tile
    last = len(rows[0])
    loads = list(dict.fromkeys(leaves(w.kernel.epilogue, "load")))
    of_rows = frozenset(
        e for e in loads if {a.number for x in e.args for a in leaves(x, "axis")} - {last}
    )
    scopes = [scope_of(job, 0, "layout", rows, tile) for tile in tiles]
    w.emit.ahead(w.kernel.epilogue, scopes[0], of_rows)
    for i, (tile, scope) in enumerate(zip(tiles, scopes, strict=True)):
        w.emit.ahead(w.kernel.epilogue, scope, frozenset(loads) - of_rows)
        _multiply(job, tile)
        w.line(weight.format(f"{tile} + {t.stages - 1}", "True"))
        if i + 1 < len(tiles):
            w.emit.ahead(w.kernel.epilogue, scopes[i + 1], of_rows)
        run = run_of(t, w.kernel.output.dtype)
        total = w.a.put(spread(t, "acc0", "layout", run), job.sums)
        value = w.epilogue(total, scope)
        column = scope.axes[last]
        at = w.a.put(f"{rows[1]} * {job.left.columns} + {column}", rows[1].type)
        w.store(at.text, value, scope.mask)


def _multiply(job: Job, tile: str) -> None:
    """acc0 = the products of a column tile."""
    w, t, steps = job.w, job.tile, job.left.steps
    w.line(f"slot = {tile} % {t.stages}")
    w.line(f"mbarrier.wait(full.index(slot), ({tile} // {t.stages}) & 1)")
    w.line("mbarrier.wait(some_rows, 0)")
    w.line(f"acc0 = {job.zeros(t)}")
    with w.src.block(f"for step in gl.static_range({steps})"):
        right = f"right.index(slot * {steps} + step).permute((1, 0))"
        left = job.matrix("left.index(step)")
        w.line(f"acc0 = warpgroup_mma({left}, {right}, acc0, is_async=True)")
    w.line("acc0 = warpgroup_mma_wait(0, deps=[acc0])")
