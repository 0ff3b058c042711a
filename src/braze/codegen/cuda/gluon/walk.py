"""Products in Gluon whose programs keep one tile of columns and walk over tiles of rows.

With few steps along k a tile is done before what it waits for has travelled. So a program lives as
long as the launch: the weight of its columns is copied once and stays, and rows, with the codes of
a residual beside them, travel some tiles ahead into a ring. Several programs share a
multiprocessor, so that the epilogue of one runs under what others wait for.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from braze.codegen.cuda.gluon.job import Job
from braze.codegen.cuda.gluon.layout import SWIZZLES, GluonTile, run_of, spread
from braze.codegen.cuda.gluon.product import (
    function,
    is_ragged,
    job_of,
    layouts,
    rows_of,
    scope_of,
)
from braze.codegen.cuda.gluon.shapes import Rows, product_shape
from braze.codegen.cuda.gluon.tactics import BARRIERS, depths
from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.source import WAIT, Source, Val
from braze.core.config import Effort
from braze.core.dims import dmin, product
from braze.core.dtypes import I8
from braze.expr.fold import leaves
from braze.expr.index import axes
from braze.expr.scalar import Expr, load
from braze.fusion.kernel import AnchorKernel, Tactic, TensorMap

TEMPLATE: Final = "gluon_walk"
MULTIPROCESSORS: Final = 132
WARPS: Final = 4
MOST_STEPS: Final = 4


@dataclass(frozen=True, slots=True)
class WalkTile:
    """rows x columns at a time, `stages` tiles of rows on their way or in use, so many programs a
    multiprocessor; depth: bytes of a step along k."""

    rows: int
    columns: int
    stages: int
    programs: int
    depth: int = 128


# the fastest first, of 1x1 convolutions of 64 channels with a residual on an H200
TILES: Final = (
    WalkTile(64, 64, 3, 5), WalkTile(128, 64, 2, 4), WalkTile(128, 64, 3, 3),
    WalkTile(64, 128, 3, 3),
)  # fmt: skip


def walk_tactics(kernel: AnchorKernel, shared_bytes: int, effort: Effort) -> tuple[Tactic, ...]:
    """Tiles for products of bytes over few steps; none for what the template does not take."""
    if kernel.inputs[0].dtype is not I8 or is_ragged(kernel) or effort.tactics == 1:
        return ()
    (depth,) = depths(kernel)
    shape = product_shape(kernel, depth)
    if not isinstance(shape, Rows) or kernel.output.dtype is not I8:
        return ()
    if any(len(t.shape) > 1 for t in kernel.inputs[2:]) and residual_of(kernel) is None:
        return ()
    steps = -(-shape.depth // depth)
    found = []
    for t in TILES:
        room = t.columns * steps * depth + BARRIERS
        room += t.stages * t.rows * (steps * depth + t.columns * (residual_of(kernel) is not None))
        programs = min(t.programs, shared_bytes // room)
        if steps <= MOST_STEPS and programs > 1:
            found.append(WalkTile(t.rows, t.columns, t.stages, programs, depth))
    return tuple(walk_tactic(t) for t in dict.fromkeys(found))


def walk_tactic(t: WalkTile) -> Tactic:
    """A tile as a tactic."""
    return Tactic(TEMPLATE, tuple((f.name, getattr(t, f.name)) for f in fields(t)))


def walk_tile(tactic: Tactic) -> WalkTile:
    """The tile of a tactic."""
    return WalkTile(**{k: int(v) for k, v in tactic.parameters})


def residual_of(kernel: AnchorKernel) -> Expr | None:
    """The load of an epilogue's only tensor as large as the output, where it is bytes that lie as
    the output does; None for others."""
    here = axes(len(kernel.output.shape))
    large = [e for e in leaves(kernel.epilogue, "load") if len(kernel.inputs[e.slot].shape) > 1]
    if len(large) != 1 or large[0] != load(large[0].slot, here, I8):
        return None
    columns = kernel.output.shape[-1]
    even = isinstance(columns, int) and columns % 16 == 0  # rows of a tensor map
    return large[0] if even and kernel.inputs[large[0].slot].shape == kernel.output.shape else None


def walk_source(kernel: AnchorKernel, tile: WalkTile) -> TritonSource:
    """Source of a product that `walk_tactics` has a tile for."""
    sizes = (tile.rows, tile.columns, WARPS, tile.stages)
    job = job_of(kernel, GluonTile(*sizes, consumers=0, depth=tile.depth))
    assert len(job.parts) == 1, "one instruction has all columns of a tile"
    beside = residual_of(kernel)
    maps = [job.left.map(), job.weight_map(tile.columns)]
    boxes = "map0, left"
    if beside is not None:
        maps.append(_residual_map(job, beside))
        boxes += ", map2, beside"
    known = ", ".join([*(f"map{i}" for i in range(len(maps))), job.pointers])
    passed = f"{boxes}, full, row_tile, column_tile, slot, some"
    pieces = [
        function("copy_rows", passed, _copies(job, beside)),
        function("product", known, _program(job, boxes, beside)),
    ]
    across = max(1, MULTIPROCESSORS * tile.programs // job.column_tiles)
    return TritonSource(
        "product", "\n\n".join(pieces) + "\n", job.w.pointers(), tuple(job.w.params),
        dmin(job.left.count, across) * job.column_tiles, WARPS, waits=True, maps=tuple(maps),
        packings=((1, job.packing),),
    )  # fmt: skip


def _residual_map(job: Job, e: Expr) -> TensorMap:
    """How the codes beside a tile are copied."""
    box, shape = (job.tile.rows, job.tile.columns), job.w.kernel.output.shape
    whole = (product(shape[:-1]), job.left.columns)
    return TensorMap(e.slot, I8, whole, whole[1:], box, SWIZZLES[box[1]])


def _copies(job: Job, beside: Expr | None) -> list[str]:
    """Start to copy a tile of rows, all its steps, and what is beside it."""
    t, steps, out = job.tile, job.left.steps, Source()
    job.left.place(job.w, out)
    size = t.rows * (steps * t.depth + (t.columns if beside is not None else 0))
    out.line("bar = full.index(slot)")
    out.line(f"mbarrier.expect(bar, {size}, pred=some)")
    with out.block(f"for step in gl.static_range({steps})"):
        at = job.left.coordinates(out)
        out.line(f"copy_box(map0, [{at}], bar, left.index(slot * {steps} + step), pred=some)")
    if beside is not None:
        at = f"first_row, column_tile * {t.columns}"
        out.line(f"copy_box(map2, [{at}], bar, beside.index(slot), pred=some)")
    return out.lines


def _memory(job: Job, beside: Expr | None) -> None:
    """Layouts, the weight's steps, and a ring of tiles of rows with all of theirs."""
    w, t, steps = job.w, job.tile, job.left.steps
    for text in layouts(job):
        w.line(text)
    shapes = [("left", [t.stages * steps, t.rows, job.step], job.shared_layout(2))]
    shapes.append(("right", [steps, t.columns, job.step], job.shared_layout(2)))
    if beside is not None:
        layout = f"gl.NVMMASharedLayout({t.columns}, 8, 2)"
        shapes.append(("beside", [t.stages, t.rows, t.columns], layout))
    for name, shape, layout in shapes:
        w.line(f"{name} = gl.allocate_shared_memory(gl.int8, {shape}, {layout})")
    bars = "mbarrier.MBarrierLayout()"
    w.line(f"full = gl.allocate_shared_memory(gl.int64, [{t.stages + 1}, 1], {bars})")
    with w.src.block(f"for i in gl.static_range({t.stages + 1})"):
        w.line("mbarrier.init(full.index(i), count=1)")
    w.line("fence_async_shared()")


def _program(job: Job, boxes: str, beside: Expr | None) -> list[str]:
    """The weight of a program's columns, then its tiles of rows."""
    w, t, steps = job.w, job.tile, job.left.steps
    _memory(job, beside)
    w.line(f"column_tile = tl.program_id(0) % {job.column_tiles}")
    w.line(f"first = tl.program_id(0) // {job.column_tiles}")
    w.line(f"pace = tl.num_programs(0) // {job.column_tiles}")
    w.line(f"whole = full.index({t.stages})")
    w.line(f"mbarrier.expect(whole, {steps * t.columns * t.depth})")
    with w.src.block(f"for step in gl.static_range({steps})"):
        at = f"column_tile * {t.columns}, step * {job.step}"
        w.line(f"copy_box(map1, [{at}], whole, right.index(step))")
    w.line(WAIT)
    count = w.number(job.left.count)
    copy = f"copy_rows({boxes}, full, {{0}}, column_tile, {{1}}, {{0}} < {count})"
    with w.src.block(f"for i in gl.static_range({t.stages})"):
        w.line(copy.format("first + i * pace", "i"))
    loaded = _of_columns(job)
    w.line("mbarrier.wait(whole, 0)")
    w.line(f"count = ({count} - first + pace - 1) // pace")
    with w.src.block("for at in range(count)"):
        w.line("row_tile = first + at * pace")
        scope, row = _multiply(job, beside)
        scope.loaded.update(loaded)
        w.line("all_threads()  # have read the slot")
        w.line(copy.format(f"row_tile + {t.stages} * pace", "slot"))
        run = run_of(t, w.kernel.output.dtype)
        value = w.epilogue(w.a.put(spread(t, "acc0", "layout", run), job.sums), scope)
        column = scope.axes[len(scope.axes) - 1]
        place = w.a.put(f"{row} * {job.left.columns} + {column}", row.type)
        w.store(place.text, value, scope.mask)
    return w.src.lines


def _of_columns(job: Job) -> dict[Expr, Val]:
    """What the epilogue reads of columns, which stay."""
    epilogue, last = job.w.kernel.epilogue, len(job.w.kernel.output.shape) - 1
    nowhere = Val("0", "int32")
    scope = scope_of(job, 0, "layout", ([nowhere] * last, nowhere, None))
    loads = leaves(epilogue, "load")
    kept = [e for e in loads if {a.number for x in e.args for a in leaves(x, "axis")} <= {last}]
    job.w.emit.ahead(epilogue, scope, frozenset(kept))
    return scope.loaded


def _multiply(job: Job, beside: Expr | None) -> tuple[Scope, Val]:
    """acc0 = the products of tile `row_tile`, and what is beside them from shared memory. Returns
    what the epilogue's leaves are, and the numbers of the rows."""
    w, t, steps = job.w, job.tile, job.left.steps
    w.line(f"slot = at % {t.stages}")
    w.line(f"mbarrier.wait(full.index(slot), (at // {t.stages}) & 1)")
    w.line(f"acc0 = {job.zeros(t)}")
    with w.src.block(f"for step in gl.static_range({steps})"):
        left = f"left.index(slot * {steps} + step)"
        right = "right.index(step).permute((1, 0))"
        w.line(f"acc0 = warpgroup_mma({left}, {right}, acc0, is_async=True)")
    job.left.place(w, w.src)
    rows = rows_of(job, "layout")
    scope = scope_of(job, 0, "layout", rows)
    if beside is not None:
        scope.loaded[beside] = w.a.put("beside.index(slot).load(layout)", "int8")
    w.line("acc0 = warpgroup_mma_wait(0, deps=[acc0])")
    return scope, rows[1]
