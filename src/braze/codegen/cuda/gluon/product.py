"""Products in Gluon for Hopper: tensor maps copy both operands into shared memory, warp groups
multiply them there, and the epilogue works on the accumulators where they lie.

The residual, and all else the epilogue loads, is read before the products and travels meanwhile.
Without consumers of their own (`GluonTile.consumers` 0) the warps that multiply also start the
copies, and several such programs share a multiprocessor. With consumers a warp starts the copies of
one tile after the other, and two groups take turns: one's epilogue runs under the other's products.
The groups hand the turn on by a barrier, since waiting for a step's copies by parity only tells
neighbouring rounds of the ring apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from braze.codegen.cuda.gluon.job import Job
from braze.codegen.cuda.gluon.layout import GluonTile, spread, spread_layout
from braze.codegen.cuda.gluon.shapes import Rows, product_shape
from braze.codegen.cuda.gluon.tiles import Masked, PixelTiles, RowTiles, Tiles
from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.source import WAIT, Source, Val
from braze.codegen.cuda.triton.tile import AnchorWriter
from braze.core.dims import Dim, dmin, product
from braze.fusion.kernel import AnchorKernel

MULTIPROCESSORS = 132  # programs that walk over tiles; a card with fewer runs them in turns
CACHED = 24 << 20  # bytes of a weight that a card's cache keeps beside all else


def job_of(kernel: AnchorKernel, tile: GluonTile) -> Job:
    """A product or convolution that the template takes, in tiles."""
    shape, dtype = product_shape(kernel, tile.depth), kernel.inputs[0].dtype
    assert not isinstance(shape, str), shape
    left: Tiles
    turned, joined = False, 1
    if isinstance(shape, Rows):
        left, turned = RowTiles(shape, tile, dtype), shape.turned
    else:
        left, joined = PixelTiles(shape, tile, dtype), shape.joined
    sizes = [*left.sizes, left.count]
    w = AnchorWriter(kernel, sizes, kernel.spec.out_shape, waits=False)
    return Job(w, left, tile, dtype, turned, joined)


def gluon_source(kernel: AnchorKernel, tile: GluonTile) -> TritonSource:
    """Source of a product or convolution whose slot 1 is packed by `pack_rows`."""
    job = job_of(kernel, tile)
    w, left = job.w, job.left
    pieces = _specialized(job) if tile.consumers else _alone(job)
    tiles = left.count * job.column_tiles
    grid: Dim = dmin(tiles, MULTIPROCESSORS) if tile.consumers else tiles
    return TritonSource(
        "product",
        "\n\n".join(pieces) + "\n",
        w.pointers(),
        tuple(w.params),
        grid,
        tile.warps,
        waits=True,
        maps=(left.map(), *(job.weight_map(part.columns) for _, part in job.parts)),
        packings=((1, job.packing),),
    )


def function(name: str, arguments: str, lines: Sequence[str]) -> str:
    return "\n".join([f"@gluon.jit\ndef {name}({arguments}):", *lines])


def _memory(job: Job) -> list[str]:
    """Shared memory: a ring of steps, with barriers that say when a step is full and when empty."""
    t, out = job.tile, Source()
    bars = "mbarrier.MBarrierLayout()"
    boxes: list[tuple[str, tuple[int, ...]]] = [("left", job.left.map().box)]
    for name, (_, part) in zip(job.rights, job.parts, strict=True):
        boxes.append((name, (part.columns, job.step)))
    for name, box in boxes:
        shape, layout = [t.stages, *box], job.shared_layout(len(box))
        out.line(f"{name} = gl.allocate_shared_memory(gl.{job.element}, {shape}, {layout})")
    rings = (("full", t.stages), ("empty", t.stages), ("turn", 2)) if t.consumers else (
        ("full", t.stages),
    )  # fmt: skip
    for name, count in rings:
        out.line(f"{name} = gl.allocate_shared_memory(gl.int64, [{count}, 1], {bars})")
        with out.block(f"for i in gl.static_range({count})"):
            out.line(f"mbarrier.init({name}.index(i), count=1)")
    out.line("fence_async_shared()")
    return out.lines


def _copy_weight(job: Job, out: Source, pred: str) -> None:
    """Tell slot `slot` of the ring of all of step `step`, and start to copy the weight's part."""
    out.line("bar = full.index(slot)")
    out.line(f"mbarrier.expect(bar, {job.bytes}{pred})")
    for i, (name, (first, _)) in enumerate(zip(job.rights, job.parts, strict=True)):
        column = f"column_tile * {job.tile.columns}" + (f" + {first}" if first else "")
        at = f"{column}, step * {job.step}"
        out.line(f"copy_box(map{1 + i}, [{at}], bar, {name}.index(slot){pred})")


def _copy_left(job: Job, out: Source, pred: str) -> None:
    """Start to copy the other part, that of a placed tile."""
    at = job.left.coordinates(out)
    out.line(f"copy_box(map0, [{at}], full.index(slot), left.index(slot){pred})")


def _place(job: Job, out: Source, rows: bool = True) -> None:
    """Write where tile `tile` lies; rows: among the rows too. Tiles that run together share what is
    larger: rows of the left operand, or columns of a weight that no cache holds."""
    count = job.w.number(job.left.count)
    by_columns = job.left.steps * job.tile.depth * job.left.columns > CACHED
    out.line(f"column_tile = tile {f'// {count}' if by_columns else f'% {job.column_tiles}'}")
    if rows:
        out.line(f"row_tile = tile {f'% {count}' if by_columns else f'// {job.column_tiles}'}")
        job.left.place(job.w, out)


def rows_of(job: Job, layout: str) -> Masked:
    """The axes of the rows of a placed tile, their numbers in the output, and which exist."""
    count = product(job.w.kernel.output.shape)
    kind = "int32" if isinstance(count, int) and count < 2**31 else "int64"
    return job.left.rows(job.w, kind, layout)


def scope_of(
    job: Job, part: int, layout: str, rows: Masked, column_tile: str = "column_tile"
) -> Scope:
    """What the epilogue's leaves are in a part of a placed tile."""
    w, (first, t) = job.w, job.parts[part]
    axes, _, some_rows = rows
    lanes = f"tl.arange(0, {t.columns}, gl.SliceLayout(0, {layout}))[None, :]"
    begin = f"{column_tile} * {job.tile.columns}" + (f" + {first}" if first else "")
    column = w.a.put(f"{begin} + {lanes}", "int32")
    whole = first + t.columns == job.tile.columns and first == 0
    some_columns = w.below(column, job.left.columns, t.columns if whole else job.tile.columns)
    mask = w.both(some_rows, some_columns)
    last = len(axes)
    parts = ((frozenset(range(last)), some_rows), (frozenset({last}), some_columns))
    return Scope(dict(enumerate([*axes, column])), mask, parts=parts)


def _scope(job: Job, part: int, layout: str) -> tuple[Scope, Val]:
    """That, and the numbers of the rows."""
    rows = rows_of(job, layout)
    return scope_of(job, part, layout, rows), rows[1]


def _scopes(job: Job) -> list[tuple[Scope, Val]]:
    """Those of all parts, with what their epilogues load on its way."""
    found = [_scope(job, i, _layout(i)) for i in range(len(job.parts))]
    for scope, _ in found:
        job.w.emit.ahead(job.w.kernel.epilogue, scope)
    return found


def _layout(part: int) -> str:
    return f"layout{part}" if part else "layout"


def _sum(job: Job, at: str, then: Callable[[], None]) -> None:
    """The loop over the steps of a tile. at: the place of step `step` in the ring, in source text;
    then: writes what follows when the step before it is multiplied."""
    if job.lift:
        _lifted_sum(job, at, then)
        return
    with job.w.src.block(f"for step in range({job.left.steps})"):
        _step(job, at, job.totals, "")
        then()


def _lifted_sum(job: Job, at: str, then: Callable[[], None]) -> None:
    """Tensor cores add products of 8-bit floats to sums of 14 bits. So these are summed over few
    steps at a time, and added up in float32. (To add them up while the next are multiplied takes
    a third of the registers more, and has not been faster.)"""
    w, names = job.w, ", ".join(job.partial)
    with w.src.block(f"for turn_of_steps in range({job.left.steps // job.lift})"):
        for i in range(job.lift):
            w.line(f"step = turn_of_steps * {job.lift} + {i}")
            _step(job, at, job.partial, f", use_acc={i > 0}")
            then()
        w.line(f"{names} = warpgroup_mma_wait(0, deps=[{names}])")
        for total, part in zip(job.totals, job.partial, strict=True):
            w.line(f"{total} = {total} + {part}")


def _step(job: Job, at: str, sums: Sequence[str], how: str) -> None:
    """Wait for the copies of a step, multiply, and let the step before it finish."""
    w, stages = job.w, job.tile.stages
    if at != "step":
        w.line(f"at = {at}")
    place = "step" if at == "step" else "at"
    w.line(f"slot = {place} % {stages}")
    w.line(f"mbarrier.wait(full.index(slot), ({place} // {stages}) & 1)")
    w.line(f"left_side = {job.matrix('left.index(slot)')}")
    for name, total in zip(job.rights, sums, strict=True):
        right = f"{name}.index(slot).permute((1, 0))"
        w.line(f"{total} = warpgroup_mma(left_side, {right}, {total}{how}, is_async=True)")
    names = ", ".join(sums)
    w.line(f"{names} = warpgroup_mma_wait({len(job.parts)}, deps=[{names}])")


def _accumulators(job: Job) -> None:
    for names in (job.totals, *((job.partial,) if job.lift else ())):
        for name, (_, t) in zip(names, job.parts, strict=True):
            job.w.line(f"{name} = {job.zeros(t)}")


def is_ragged(kernel: AnchorKernel) -> bool:
    """Whether rows of the output begin at odd elements of 16 bits. Eight neighbours of a thread
    are then eight stores, whose lanes lie far apart: it is better to turn the tile first, so that
    a warp stores neighbours."""
    columns = kernel.output.shape[-1]
    return isinstance(columns, int) and columns * kernel.output.dtype.itemsize % 4 != 0


def layouts(job: Job) -> list[str]:
    """The layout of the accumulators, and one with a warp along every row."""
    found = [
        f"{_layout(i)}: gl.constexpr = {spread_layout(t, job.run)}"
        for i, (_, t) in enumerate(job.parts)
    ]
    if is_ragged(job.w.kernel):
        warps = job.tile.warps
        row = f"gl.BlockedLayout([1, 1], [1, 32], [{warps}, 1], [1, 0])"
        found.append(f"across: gl.constexpr = {row}")
    return found


def _drain(job: Job) -> None:
    """Wait for all products."""
    sums = ", ".join(job.totals)
    job.w.line(f"{sums} = warpgroup_mma_wait(0, deps=[{sums}])")


def _finish(job: Job, scopes: Sequence[tuple[Scope, Val]]) -> None:
    """The epilogue on the accumulators, and its stores."""
    w = job.w
    if not job.lift:
        _drain(job)
    for i, ((_, t), (scope, row)) in enumerate(zip(job.parts, scopes, strict=True)):
        out = w.a.put(spread(t, f"acc{i}", _layout(i), job.run), job.sums)
        value = w.epilogue(out, scope)
        if is_ragged(w.kernel):
            kind = w.kernel.output.dtype.name
            value = w.a.put(f"gl.convert_layout({value}.to(gl.{kind}), across)", kind)
            scope, row = _scope(job, i, "across")  # noqa: PLW2901
        column = scope.axes[len(scope.axes) - 1]
        at = w.a.put(f"{row} * {job.left.columns} + {column}", row.type)
        w.store(at.text, value, scope.mask)


def _alone(job: Job) -> list[str]:
    """A program a tile. No earlier launch writes weights: their first steps need not wait."""
    w, t = job.w, job.tile
    for text in layouts(job):
        w.line(text)
    w.src.lines += _memory(job)
    w.line("tile = tl.program_id(0)")
    _place(job, w.src)
    boxes = ", ".join([*job.maps[1:], *job.rights])
    weight = f"copy_weight({boxes}, full, tile, {{}})"
    left = "copy_left(map0, left, full, tile, {}" + job.sizes + ")"
    for before, copy in ([], weight), ([WAIT], left):
        for text in before:
            w.line(text)
        with w.src.block(f"for i in gl.static_range({t.stages - 1})"):
            w.line(copy.format("i"))
    scopes = _scopes(job)
    _accumulators(job)

    def next_copies() -> None:
        for copy in (weight, left):
            w.line(copy.format(f"step + {t.stages - 1}"))

    _sum(job, "step", next_copies)
    _finish(job, scopes)
    pieces = []
    for name, arguments, write in (
        ("copy_weight", f"{boxes}, full, tile, step", _copy_weight),
        ("copy_left", "map0, left, full, tile, step" + job.sizes, _copy_left),
    ):
        out = Source()
        _place(job, out, rows=write is _copy_left)
        out.line(f"slot = step % {t.stages}")
        out.line(f"some = step < {job.left.steps}")
        write(job, out, ", pred=some")
        pieces.append(function(name, arguments, out.lines))
    arguments = ", ".join([*job.maps, job.pointers])
    return [*pieces, function("product", arguments, w.src.lines)]


def _specialized(job: Job) -> list[str]:
    """A warp that copies and groups that multiply, over every grid-th tile."""
    t = job.tile
    walk, maps = f"first, pace, {job.pointers}", ", ".join(job.maps)
    entry = Source()
    entry.lines += _memory(job)
    entry.line(WAIT)
    entry.line("first = tl.program_id(0)")
    entry.line("pace = tl.num_programs(0)")
    groups = [f"(consume, ({job.shared}, {walk}, {i}))" for i in range(t.consumers)]
    copier = f"(produce, ({maps}, {job.shared}, {walk}))"
    warps = [*[t.warps] * (t.consumers - 1), 1]
    registers = [*[232] * (t.consumers - 1), 40]
    parts = ", ".join([*groups, copier])
    entry.line(f"gl.warp_specialize([{parts}], {warps}, {registers})")
    return [
        function("produce", f"{maps}, {job.shared}, {walk}", _produce(job)),
        function("consume", f"{job.shared}, {walk}, me: gl.constexpr", _consume(job)),
        function("product", f"{maps}, {job.pointers}", entry.lines),
    ]


def _produce(job: Job) -> list[str]:
    t, out = job.tile, Source()
    out.line(f"count = ({job.tiles} - first + pace - 1) // pace")
    with out.block(f"for at in range(count * {job.left.steps})"):
        out.line(f"tile = first + at // {job.left.steps} * pace")
        out.line(f"step = at % {job.left.steps}")
        _place(job, out)
        out.line(f"slot = at % {t.stages}")
        out.line(f"mbarrier.wait(empty.index(slot), ((at // {t.stages}) & 1) ^ 1)")
        _copy_weight(job, out, "")
        _copy_left(job, out, "")
    return out.lines


def _consume(job: Job) -> list[str]:
    """The tiles of one group; `me` is its number."""
    w, t = job.w, job.tile
    for text in layouts(job):
        w.line(text)
    w.line(f"count = ({job.tiles} - first + pace - 1) // pace")
    with w.src.block(f"for turns in range(me, count, {t.consumers})"):
        w.line("tile = first + turns * pace")
        _place(job, w.src)
        scopes = _scopes(job)
        _accumulators(job)
        if t.consumers == 2:
            w.line("mbarrier.wait(turn.index(me), ((turns // 2) & 1) ^ (1 - me))")

        def give_back() -> None:
            w.line(f"before = (at + {t.stages - 1}) % {t.stages}")
            w.line("mbarrier.arrive(empty.index(before), pred=step > 0)")

        _sum(job, f"turns * {job.left.steps} + step", give_back)
        if t.consumers == 2:
            # all its copies have come, so parities are those of the other group's; whose first
            # products queue behind the last of these
            w.line("mbarrier.arrive(turn.index(1 - me))")
        if not job.lift:
            _drain(job)
        w.line(f"last = (turns * {job.left.steps} + {job.left.steps - 1}) % {t.stages}")
        w.line("mbarrier.arrive(empty.index(last))")
        _finish(job, scopes)
    return w.src.lines
