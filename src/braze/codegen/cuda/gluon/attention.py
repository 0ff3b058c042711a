"""Attention in Gluon for Hopper over keys that all fit into shared memory, in one pass.

A program copies the keys and values of a head once and works through `turns` tiles of its queries:
all scores of a tile lie in registers, so that the softmax needs neither a running maximum nor
rescaling (compare triton/attention.py, which takes keys of any number). Keys are cut into pieces
whose widths are powers of two, wide ones first, so that 197 of them cost little more than 197. What
lies behind the last key is zero in shared memory and minus infinity among the scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from braze.codegen.cuda.gluon.tactics import MULTIPROCESSORS, known
from braze.codegen.cuda.gluon.tiles import lanes
from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.product import index_type
from braze.codegen.cuda.triton.source import RELEASE, WAIT
from braze.codegen.cuda.triton.tile import AnchorWriter, ceil_div
from braze.core.dims import Dim
from braze.core.dtypes import BF16, F16
from braze.expr.fold import reachable
from braze.fusion.kernel import AnchorKernel, Tactic, TensorMap
from braze.ops.lowering import AttentionSpec, Operand

TEMPLATE = "gluon_attention"
LOG2_E = 1.4426950408889634
MOST_KEYS, LEAST_WIDTH = 256, 16
BARRIERS = 64  # bytes beside what is copied
# microseconds, roughly: until the first products, of a tile's chain of steps, and of a score
START, TURN, PAIR = 1.2, 0.7, 3e-5
UNKNOWN_BATCH = 8
SWIZZLES = {64: 2, 128: 3}  # CUtensorMapSwizzle by the bytes of a head
LEAD = ("image", "head")


@dataclass(frozen=True, slots=True)
class HeadTile:
    """rows: queries of a tile, 64 for every four warps; turns: tiles of a program; widest: keys of
    a piece at most."""

    rows: int
    turns: int
    widest: int

    @property
    def warps(self) -> int:
        return self.rows // 16


def head_tactic(t: HeadTile) -> Tactic:
    """A tile as a tactic."""
    return Tactic(TEMPLATE, (("rows", t.rows), ("turns", t.turns), ("widest", t.widest)))


def head_tile(tactic: Tactic) -> HeadTile:
    """The tile of a tactic."""
    return HeadTile(**{k: int(v) for k, v in tactic.parameters})


def head_tactics(kernel: AnchorKernel, shared_bytes: int) -> tuple[Tactic, ...]:
    """Tiles of an attention by an estimate; none for what the template does not take."""
    spec = kernel.spec
    assert isinstance(spec, AttentionSpec)
    if refusal(kernel):
        return ()
    found: dict[tuple[int, ...], tuple[float, HeadTile]] = {}
    for rows in (64, 128):
        tiles = -(-known(spec.q_len, MOST_KEYS) // rows)
        for turns in (1, 2, 4):
            for widest in (256, 128):
                t = HeadTile(rows, turns, widest)
                widths = [width for _, width in pieces(known(spec.kv_len, MOST_KEYS), widest)]
                cost = _cost(spec, t, sum(widths), shared_bytes)
                if turns < 2 * tiles and cost < math.inf:
                    found.setdefault((rows, turns, *widths), (cost, t))
    return tuple(head_tactic(t) for _, t in sorted(found.values(), key=lambda f: f[0]))


def _cost(spec: AttentionSpec, t: HeadTile, keys: int, shared_bytes: int) -> float:
    """Microseconds, roughly; infinite where a program does not fit."""
    heads = known(spec.batch, UNKNOWN_BATCH) * known(spec.heads, 1)
    tiles = -(-known(spec.q_len, MOST_KEYS) // t.rows)
    one = 2 * (2 * t.rows + 2 * keys) * known(spec.head_dim, 0) + BARRIERS
    together = min(3 * 64 // t.rows, shared_bytes // one)
    if together == 0:
        return math.inf
    programs = heads * -(-tiles // t.turns)
    waves = -(-programs // (MULTIPROCESSORS * together))
    work = programs * t.turns / MULTIPROCESSORS * t.rows * keys * PAIR
    return waves * (START + TURN * t.turns) + work


def pieces(keys: int, widest: int) -> list[tuple[int, int]]:
    """(first key, width) of pieces that cover all keys and waste few: a narrower piece and a rest
    instead of one that would be empty by more than 16 keys."""
    found, at = [], 0
    while at < keys:
        rest = keys - at
        below = max(LEAST_WIDTH, 1 << (rest.bit_length() - 1))
        above = below if below >= rest else 2 * below
        width = min(widest, above if above - rest <= LEAST_WIDTH else below)
        found.append((at, width))
        at += width
    return found


def refusal(kernel: AnchorKernel) -> str:
    """Why the template does not take an attention; empty where it does."""
    spec = kernel.spec
    assert isinstance(spec, AttentionSpec)
    if len({t.dtype for t in kernel.inputs} | {F16, BF16}) > 2:
        return "other than 16-bit floats of one type"
    if spec.scale <= 0:
        return "a scale that is not positive"
    if {"load", "axis", "dim"} & {e.op for e in reachable(kernel.epilogue)}:
        return "an epilogue of more than what is stored"
    if not isinstance(spec.kv_len, int) or not 0 < spec.kv_len <= MOST_KEYS:
        return f"other than 1 to {MOST_KEYS} keys"
    if spec.head_dim != spec.value_dim or 2 * spec.head_dim not in SWIZZLES:
        return "heads of other than 32 or 64"
    if not isinstance(spec.heads, int):
        return "a number of heads that depends on the input shapes"
    for o in (spec.q, spec.k, spec.v):
        steps = (*_steps(spec, o), o.offset)
        if o.strides[-1] != 1 or not all(isinstance(s, int) and s % 8 == 0 for s in steps):
            return "rows that are not contiguous or do not begin at multiples of 16 bytes"
        if 0 in steps[:-1]:
            return "heads that share a row"
    return ""


def _steps(spec: AttentionSpec, o: Operand) -> tuple[Dim, ...]:
    """An operand's strides over images, heads and rows; along an axis of one, any will do."""
    length = spec.q_len if o is spec.q else spec.kv_len
    sizes = (spec.batch, spec.heads, length)
    return tuple(8 if n == 1 else s for n, s in zip(sizes, o.strides[:-1], strict=True))


@dataclass(frozen=True)
class _Job:
    """One kernel and tile: what the pieces of its source are written from. width: of a head."""

    w: AnchorWriter
    spec: AttentionSpec
    tile: HeadTile
    width: int
    element: str
    pieces: list[tuple[int, int]]
    maps: list[TensorMap]

    def layout(self, columns: int) -> str:
        """The layout of a tile's products with so many columns."""
        instruction = f"[16, {columns}, 16]"
        return f"gl.NVMMADistributedLayout([3, 0], [{self.tile.warps}, 1], {instruction})"

    def shared(self, rank: int) -> str:
        return f"gl.NVMMASharedLayout({2 * self.width}, 16, {rank})"

    def room(self, name: str, rows: int, copies: int = 0) -> None:
        """Shared memory for boxes of so many rows."""
        shape = [*([copies] if copies else []), 1, 1, rows, self.width]
        layout = self.shared(4)
        self.w.line(f"{name} = gl.allocate_shared_memory(gl.{self.element}, {shape}, {layout})")

    def scalar(self, value: float, columns: int) -> str:
        """A number that combines with a block of products."""
        return f"gl.full([1, 1], {value!r}, gl.float32, {self.layout(columns)})"

    def matrix(self, box: str, rows: int) -> str:
        return f"rows_of({box}, [{rows}, {self.width}], {self.shared(2)})"

    def map(self, operand: Operand, length: Dim, rows: int) -> int:
        """The number of the map that copies so many rows of an operand."""
        s = self.spec
        dtype = self.w.kernel.inputs[operand.slot].dtype
        assert isinstance(operand.offset, int)
        shape = (s.batch, s.heads, length, operand.offset + self.width)
        strides = _steps(s, operand)
        box = (1, 1, rows, self.width)
        found = TensorMap(operand.slot, dtype, shape, strides, box, SWIZZLES[2 * self.width])
        if found not in self.maps:
            self.maps.append(found)
        return self.maps.index(found)

    def copy(self, operand: Operand, rows: int, at: str, bar: str, to: str, only: str = "") -> None:
        """Start to copy rows from `at` on."""
        length = self.spec.q_len if operand is self.spec.q else self.spec.kv_len
        number = self.map(operand, length, rows)
        place = f"[image, head, {at}, {operand.offset}]"
        self.w.line(f"copy_box(map{number}, {place}, {bar}, {to}{only})")


def short_attention_source(kernel: AnchorKernel, tile: HeadTile) -> TritonSource:
    """Source of an attention that `refusal` has nothing against."""
    spec = kernel.spec
    assert isinstance(spec, AttentionSpec) and isinstance(spec.kv_len, int)
    assert isinstance(spec.head_dim, int) and isinstance(spec.heads, int), refusal(kernel)
    tiles = ceil_div(spec.q_len, tile.rows)
    groups = ceil_div(tiles, tile.turns)
    sizes = [spec.q_len, tiles, groups, *spec.out.strides, spec.out.offset]
    w = AnchorWriter(kernel, sizes, spec.out_shape, waits=False)
    cut = pieces(spec.kv_len, tile.widest)
    job = _Job(w, spec, tile, spec.head_dim, kernel.inputs[0].dtype.name, cut, [])
    _begin(job, w.number(tiles), w.number(groups))
    with w.src.block(f"for turn in range({tile.turns})"):
        _next_queries(job, w.number(tiles))
        _mask(job)
        _scores(job)
        _softmax(job)
        _values(job)
        _store(job)
    names = [f"map{i}" for i in range(len(job.maps))] + [n for n, _ in w.pointers()]
    arguments = ", ".join([*names, *(f"n{i}" for i in range(len(w.params)))])
    return TritonSource(
        "attention",
        f"@gluon.jit\ndef attention({arguments}):\n{w.src.text()}\n",
        w.pointers(),
        tuple(w.params),
        spec.batch * spec.heads * groups,
        tile.warps,
        waits=True,
        maps=tuple(job.maps),
    )


def _begin(job: _Job, tiles: str, groups: str) -> None:
    """Place this program, and start to copy its first queries, keys and values."""
    w, s, t = job.w, job.spec, job.tile
    bars = "mbarrier.MBarrierLayout()"
    for name, count in (("some_queries", 2), ("all_values", 1)):
        w.line(f"{name} = gl.allocate_shared_memory(gl.int64, [{count}, 1], {bars})")
        for i in range(count):
            w.line(f"mbarrier.init({name}.index({i}), count=1)")
    w.line("fence_async_shared()")
    job.room("queries", t.rows, 2)
    for i, (_, width) in enumerate(job.pieces):
        job.room(f"k{i}", width)
        job.room(f"v{i}", width)
    w.line("place = tl.program_id(0)")
    w.line(f"first_tile = place % {groups} * {t.turns}")
    w.line(f"head = place // {groups} % {s.heads}")
    w.line(f"image = place // {groups} // {s.heads}")
    w.line(WAIT)
    keys, row_bytes = sum(width for _, width in job.pieces), 2 * job.width
    # the first queries and the keys are waited for together
    w.line(f"mbarrier.expect(some_queries.index(0), {(t.rows + keys) * row_bytes})")
    w.line(f"mbarrier.expect(all_values.index(0), {keys * row_bytes})")
    job.copy(s.q, t.rows, f"first_tile * {t.rows}", "some_queries.index(0)", "queries.index(0)")
    for i, (at, width) in enumerate(job.pieces):
        job.copy(s.k, width, str(at), "some_queries.index(0)", f"k{i}")
    for i, (at, width) in enumerate(job.pieces):
        job.copy(s.v, width, str(at), "all_values.index(0)", f"v{i}")


def _next_queries(job: _Job, tiles: str) -> None:
    """Start to copy the queries of the next turn, into the place of those of the last."""
    w, t = job.w, job.tile
    w.line("tile = first_tile + turn")
    if t.turns == 1:
        return
    w.line("ahead = (turn + 1) % 2")
    w.line(f"more = (turn + 1 < {t.turns}) & (tile + 1 < {tiles})")
    w.line("fence_async_shared()")
    w.line("all_threads()")  # they are done with that place
    bytes_ = t.rows * 2 * job.width
    w.line(f"mbarrier.expect(some_queries.index(ahead), {bytes_}, pred=more)")
    at = f"(tile + 1) * {t.rows}"
    bar, to = "some_queries.index(ahead)", "queries.index(ahead)"
    job.copy(job.spec.q, t.rows, at, bar, to, ", pred=more")


def _keys(job: _Job, piece: int) -> str:
    """The numbers of the keys of a piece, along the columns of its scores."""
    at, width = job.pieces[piece]
    return f"({at} + gl.arange(0, {width}, gl.SliceLayout(0, {job.layout(width)})))[None, :]"


def _rows(job: _Job, piece: int) -> str:
    """The numbers of the queries, down the rows of a piece's scores."""
    rows, layout = job.tile.rows, job.layout(job.pieces[piece][1])
    return f"(tile * {rows} + gl.arange(0, {rows}, gl.SliceLayout(1, {layout})))[:, None]"


def _mask(job: _Job) -> None:
    """extra{i} = what is added to the scores of a piece, read along its rows while keys and queries
    travel."""
    w, s, t = job.w, job.spec, job.tile
    if s.mask is None:
        return
    kind = index_type((w.kernel.inputs[s.mask.slot],))
    begin = w.begin(s.mask, [f"{x}.to(tl.{kind})" for x in LEAD], kind)
    for i, (first, width) in enumerate(job.pieces):
        across = width // 8
        layout = f"gl.BlockedLayout([1, 8], [{32 // across}, {across}], [{t.warps}, 1], [1, 0])"
        w.line(f"query = (tile * {t.rows} + {lanes(t.rows, layout)}).to(tl.{kind})")
        key = f"gl.arange(0, {width}, gl.SliceLayout(0, {layout}))[None, :]"
        w.line(f"key = ({first} + {key}).to(tl.{kind})")
        at = w.matrix(s.mask, begin, "query", "key")
        inside = f"(query < {w.text(s.q_len)}) & (key < {s.kv_len})"
        w.line(f"extra{i} = gl.load(in{s.mask.slot} + {at}, mask={inside}, other=0.0)")


def _scores(job: _Job) -> None:
    """score{i} = q @ k{i}^T, minus infinity where there is no key or it is not seen; with a mask in
    units of the logarithm of two."""
    w, s, t = job.w, job.spec, job.tile
    kv_len, q_len = s.kv_len, w.text(s.q_len)
    assert isinstance(kv_len, int)
    w.line("slot = turn % 2")
    # a tile behind the last query has none of its own: it takes what lies there, and stores nothing
    some = "" if t.turns == 1 else f", pred=tile < {w.number(ceil_div(s.q_len, t.rows))}"
    w.line(f"mbarrier.wait(some_queries.index(slot), (turn // 2) & 1{some})")
    w.line(f"q = {job.matrix('queries.index(slot)', t.rows)}")
    for i, (_, width) in enumerate(job.pieces):
        k = f"{job.matrix(f'k{i}', width)}.permute((1, 0))"
        zero = f"gl.zeros([{t.rows}, {width}], gl.float32, {job.layout(width)})"
        w.line(f"sum{i} = warpgroup_mma(q, {k}, {zero}, use_acc=False, is_async=True)")
    names, sums = ([f"{n}{i}" for i in range(len(job.pieces))] for n in ("score", "sum"))
    w.line(f"{', '.join(names)} = warpgroup_mma_wait(0, deps=[{', '.join(sums)}])")
    for i, (at, width) in enumerate(job.pieces):
        if s.mask is not None:
            extra = f"gl.convert_layout(extra{i}, {job.layout(width)})"
            extra = f"{extra}.to(gl.float32) * {LOG2_E}"
            w.line(f"score{i} = gl.fma(score{i}, {job.scalar(s.scale * LOG2_E, width)}, {extra})")
        seen = [f"({_keys(job, i)} < {kv_len})"] if at + width > kv_len else []
        if s.causal:
            seen.append(f"({_keys(job, i)} <= {_rows(job, i)} + ({kv_len} - {q_len}))")
        if seen:
            w.line(f"score{i} = gl.where({' & '.join(seen)}, score{i}, float('-inf'))")


def _softmax(job: _Job) -> None:
    """weight{i} = 2 ** (score{i} less the row's maximum, scaled), and total, their sum."""
    w, s, count = job.w, job.spec, len(job.pieces)
    rows = f"gl.SliceLayout(1, {job.layout(job.width)})"
    scale = s.scale * LOG2_E if s.mask is None else 1.0

    def row(text: str) -> str:
        return f"gl.convert_layout({text}, {rows}, assert_trivial=True)"

    w.line(f"top = {row('gl.max(score0, 1)')}")
    for i in range(1, count):
        w.line(f"top = gl.maximum(top, {row(f'gl.max(score{i}, 1)')})")
    w.line(f"base = gl.where(top == float('-inf'), 0.0, top * {-scale!r})")
    for i, (_, width) in enumerate(job.pieces):
        mine = f"gl.SliceLayout(1, {job.layout(width)})"
        base = f"gl.convert_layout(base, {mine}, assert_trivial=True)[:, None]"
        less = f"gl.fma(score{i}, {job.scalar(scale, width)}, {base})"
        w.line(f"weight{i} = power_of_two({less})")
    w.line(f"total = {row('gl.sum(weight0, 1)')}")
    for i in range(1, count):
        w.line(f"total = total + {row(f'gl.sum(weight{i}, 1)')}")


def _values(job: _Job) -> None:
    """acc = weight @ v."""
    w, t = job.w, job.tile
    out = job.layout(job.width)
    w.line("mbarrier.wait(all_values.index(0), 0)")
    w.line(f"acc = gl.zeros([{t.rows}, {job.width}], gl.float32, {out})")
    for i, (_, width) in enumerate(job.pieces):
        w.line(
            f"part{i} = gl.convert_layout(weight{i}.to(gl.{job.element}), "
            f"gl.DotOperandLayout(0, {out}, 2), assert_trivial=True)"
        )
        v = job.matrix(f"v{i}", width)
        w.line(f"acc = warpgroup_mma(part{i}, {v}, acc, use_acc={i > 0}, is_async=True)")
    held = ", ".join(f"part{i}" for i in range(len(job.pieces)))
    w.line(f"acc, {held} = warpgroup_mma_wait(0, deps=[acc, {held}])")


def _store(job: _Job) -> None:
    """The output's rows, in runs of 16 bytes a thread."""
    w, s, t = job.w, job.spec, job.tile
    kind = index_type((w.kernel.output,))
    run = 16 // w.kernel.output.dtype.itemsize
    across = job.width // run
    layout = f"gl.BlockedLayout([1, {run}], [{32 // across}, {across}], [{t.warps}, 1], [1, 0])"
    w.line(RELEASE)
    w.line("acc = acc * (1.0 / gl.where(total == 0, 1.0, total))[:, None]")
    w.line(f"layout: gl.constexpr = {layout}")
    w.line(f"q.store(acc.to(gl.{job.element}))")
    hole = w.a.put("q.load(layout).to(gl.float32)", "float32")
    done = w.emit.value(w.kernel.epilogue, Scope({}, None, holes=(hole,)))
    w.line(f"row = (tile * {t.rows} + {lanes(t.rows)}).to(tl.{kind})")
    wide = f"gl.arange(0, {job.width}, gl.SliceLayout(0, layout))[None, :]"
    w.line(f"wide = {wide}.to(tl.{kind})")
    begin = w.begin(s.out, [f"{x}.to(tl.{kind})" for x in LEAD], kind)
    at = w.matrix(s.out, begin, "row", "wide")
    w.store(at, done, w.a.put(f"(row < {w.text(s.q_len)}) & (wide >= 0)", "int1"))
