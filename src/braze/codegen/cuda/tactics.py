"""Tactics of the CUDA templates, the most promising first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from braze.codegen.cuda.triton.attention import block
from braze.codegen.cuda.triton.nests import turned_axis
from braze.codegen.cuda.triton.tile import Tile
from braze.codegen.cuda.triton.window import WindowTile
from braze.core.config import Effort
from braze.core.dims import Dim
from braze.core.dtypes import F32
from braze.expr.fold import leaves
from braze.expr.loops import LoopKernel, LoopNest
from braze.fusion.kernel import AnchorKernel, Tactic
from braze.ops.lowering import AttentionSpec, ConvSpec

MULTIPROCESSORS = 132  # what tile sizes aim to fill; a guess is enough where nothing is measured
UNKNOWN_SIZE = 1024
LARGEST_BLOCK = 8192
RUNS = (1, 2, 4, 7, 8)  # neighbouring outputs of a depthwise window
MOST_WRITTEN_OUT = 64  # loads of a depthwise window
START = 0.127  # microseconds in which a multiprocessor starts a program
BYTES_A_MICROSECOND = 3.5e6
WARP_COLUMNS, MOST_PARTS = 256, 8  # 16-bit numbers that a warp loads at once; such loads a row

# queries, keys, warps, stages
ATTENTION_TILES = (
    (16, 64, 4, 2), (16, 128, 4, 2), (16, 128, 4, 3), (16, 256, 4, 2), (32, 64, 4, 2),
    (32, 128, 4, 2), (64, 32, 4, 3), (64, 64, 4, 2), (64, 64, 4, 3), (64, 128, 4, 2),
    (128, 32, 4, 3), (128, 64, 8, 2), (128, 64, 4, 3), (128, 128, 8, 2),
)  # fmt: skip


def known(d: Dim) -> int:
    """A size, or a guess where it depends on the input shapes."""
    return d if isinstance(d, int) else UNKNOWN_SIZE


def tile_tactic(template: str, t: Tile) -> Tactic:
    """A tile as a tactic."""
    split = (("split", t.split),) if t.split > 1 else ()
    return Tactic(
        template,
        (
            ("rows", t.rows), ("columns", t.columns), ("depth", t.depth),
            ("warps", t.warps), ("stages", t.stages), ("precision", t.precision), *split,
        ),
    )  # fmt: skip


def tile_of(tactic: Tactic) -> Tile:
    """The tile of a tactic."""
    p = dict(tactic.parameters)
    rows, columns, depth = int(p["rows"]), int(p["columns"]), int(p["depth"])
    loop = int(p["warps"]), int(p["stages"]), str(p["precision"]), int(p.get("split", 1))
    return Tile(rows, columns, depth, *loop)


def attention_tactics(kernel: AnchorKernel, effort: Effort) -> tuple[Tactic, ...]:
    """Tiles of an attention; fewer queries a program where there are few."""
    spec = kernel.spec
    assert isinstance(spec, AttentionSpec)
    queries = known(spec.q_len)
    rounded = effort.tf32 and kernel.inputs[0].dtype is F32
    precision = "tf32" if rounded else "ieee"
    wide = block(spec.head_dim) > 128 or kernel.inputs[0].dtype is F32
    found = []
    for rows, columns, warps, stages in ATTENTION_TILES:
        if rows > 2 * max(16, queries) or (wide and rows * columns > 64 * 64):
            continue
        found.append(Tile(rows, columns, 16, warps, stages, precision))
    programs = (spec.batch, spec.heads, spec.q_len)
    if all(isinstance(d, int) for d in programs):
        found += [replace(t, split=split) for t in found for split in _key_splits(spec, t)]
    found.sort(key=lambda t: _attention_cost(spec, t))
    kept = found[: 1 if effort.tactics == 1 else 3 * effort.tactics]
    return tuple(tile_tactic("attention", t) for t in kept)


def _key_splits(spec: AttentionSpec, t: Tile) -> list[int]:
    """How many programs may share the keys of a tile: where tiles leave most of the card idle."""
    tiles = known(spec.batch) * known(spec.heads) * math.ceil(known(spec.q_len) / t.rows)
    steps = math.ceil(known(spec.kv_len) / t.columns)
    return [s for s in (2, 4, 8, 16) if s < steps and s * tiles <= 2 * MULTIPROCESSORS]


def _attention_cost(spec: AttentionSpec, t: Tile) -> float:
    """Microseconds, roughly: waves of programs times their steps over the keys."""
    programs = known(spec.batch) * known(spec.heads) * math.ceil(known(spec.q_len) / t.rows)
    programs *= t.split
    steps = math.ceil(math.ceil(known(spec.kv_len) / t.columns) / t.split)
    heads = (block(spec.head_dim) + block(spec.value_dim)) / 64
    step = 0.35 + 0.1 * t.rows * t.columns / 4096 * heads * (1 if t.warps == 4 else 0.7)
    waves = math.ceil(programs / (MULTIPROCESSORS * max(1, 12 // t.warps)))
    exchange = 1.5 + 0.15 * t.split if t.split > 1 else 0.0
    return waves * (0.5 + steps * step) + exchange


def window_tactics(kernel: AnchorKernel, effort: Effort) -> tuple[Tactic, ...]:
    """Tiles of a depthwise convolution, by an estimate; each also with all lines written out."""
    spec = kernel.spec
    assert isinstance(spec, ConvSpec)
    channels = min(128, 1 << (spec.out_channels - 1).bit_length())
    found: list[tuple[float, WindowTile]] = []
    for run in RUNS:
        for runs in (4, 8, 16, 32):
            for wide in (16, 32, 64, 128):
                for warps in (1, 2, 4):
                    each = runs * wide // (32 * warps)
                    if wide > max(16, channels) or not 2 <= each <= 16:
                        continue
                    t = WindowTile(runs, wide, run, warps)
                    found.append((_window_cost(kernel, spec, t), t))
    found.sort(key=lambda f: (f[0], f[1].run, f[1].runs, f[1].channels))
    kept = [t for _, t in found[: 1 if effort.tactics == 1 else 2 * effort.tactics]]
    lines = math.prod(spec.kernel[:-1])
    both = []
    for t in kept:
        short = effort.tactics > 1 and lines * _window_loads(spec, t) <= MOST_WRITTEN_OUT
        both += [t, replace(t, whole=True)] if short else [t]
    return tuple(
        Tactic(
            "window",
            (
                ("runs", t.runs), ("channels", t.channels), ("run", t.run), ("warps", t.warps),
                ("whole", int(t.whole)),
            ),
        )
        for t in both
    )  # fmt: skip


def window_of(tactic: Tactic) -> WindowTile:
    """The tile of a tactic."""
    p = {k: int(v) for k, v in tactic.parameters}
    return WindowTile(p["runs"], p["channels"], p["run"], p["warps"], bool(p["whole"]))


def _window_loads(spec: ConvSpec, t: WindowTile) -> int:
    """Loads of a line of the window for one run."""
    taps = spec.kernel[-1]
    return min(taps * t.run, (t.run - 1) * spec.strides[-1] + taps)


def _window_cost(kernel: AnchorKernel, spec: ConvSpec, t: WindowTile) -> float:
    """Microseconds, fitted to 220 times on an H200 (within 18 %): the chain of a program's lines or
    what all on a multiprocessor load and add, in waves; the start of each program; or memory."""
    last, lines = known(spec.out_spatial[-1]), math.prod(spec.kernel[:-1])
    groups = math.prod(known(d) for d in (spec.batch, *spec.out_spatial[:-1]))
    programs = math.ceil(groups * math.ceil(last / t.run) / t.runs)
    programs *= math.ceil(spec.out_channels / t.channels)
    loads, each = _window_loads(spec, t), t.runs * t.channels / (32 * t.warps)
    alone = lines * (0.028 + loads * (0.034 + 0.0059 * each))
    busy = lines * t.warps * each * (0.0005 * loads + 0.0002 * spec.kernel[-1] * t.run)
    together = min(32, 64 // t.warps)
    full, rest = divmod(programs, MULTIPROCESSORS * together)
    chain = full * max(alone, together * busy)
    if rest:
        chain += max(alone, math.ceil(rest / MULTIPROCESSORS) * busy)
    count = sum(math.prod(known(d) for d in s.shape) for s in (kernel.inputs[0], kernel.output))
    memory = count * kernel.output.dtype.itemsize / BYTES_A_MICROSECOND
    return max(chain + START * programs / MULTIPROCESSORS, memory)


def select_tactics(effort: Effort) -> tuple[Tactic, ...]:
    """Blocks of a selection."""
    tiles = (Tile(32, 128, 16, 4, 1), Tile(16, 256, 16, 4, 1), Tile(64, 64, 16, 4, 1))
    return tuple(tile_tactic("select", t) for t in tiles[: max(1, effort.tactics)])


def suppress_tactics(effort: Effort) -> tuple[Tactic, ...]:
    """Boxes a step of a suppression."""
    tiles = (Tile(1024, 1, 1, 8, 1), Tile(512, 1, 1, 4, 1), Tile(2048, 1, 1, 16, 1))
    return tuple(tile_tactic("suppress", t) for t in tiles[: max(1, effort.tactics)])


Blocks = tuple[int, int, int]  # rows, columns, warps


def nest_tactics(kernel: LoopKernel, effort: Effort) -> tuple[Tactic, ...]:
    """Blocks of outer and inner points of a loop kernel, for its largest nest."""
    nest = _largest(kernel)
    kept = _shapes(nest)[: 1 if effort.tactics == 1 else 3 * effort.tactics]
    found = [Tactic("nest", (("rows", r), ("columns", c), ("warps", w))) for r, c, w in kept]
    if effort.tactics > 1:
        found += [Tactic("nest", p) for p in _rows_of_warps(nest)]
    return tuple(found)


def nest_blocks(kernel: LoopKernel, parameters: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The blocks of each nest by a tactic: what it says for the largest, for others a guess."""
    names = ("rows", "columns", "warps", "parts", "rows_first")
    chosen = tuple(parameters[name] for name in names if name in parameters)
    largest = _largest(kernel)
    return [chosen if nest is largest else _shapes(nest)[0] for nest in kernel.nests]


def _rows_of_warps(nest: LoopNest) -> list[tuple[tuple[str, int], ...]]:
    """Parameters of blocks in which every warp reduces a row of its own."""
    outer, inner = (math.prod(known(d) for d in sizes) for sizes in (nest.outer, nest.inner))
    whole = 1 << max(0, inner - 1).bit_length()
    parts = whole // WARP_COLUMNS
    plain = not any(r.kind.startswith("arg") for r in nest.reduces)
    plain = plain and not any(s.over.startswith("scan") for s in nest.stores)
    if not nest.inner or nest.serial or not plain or not 2 <= parts <= MOST_PARTS:
        return []
    if outer < 4 * MULTIPROCESSORS or not _inner_is_contiguous(nest):
        return []
    return [
        (("rows", r), ("columns", whole), ("warps", w), ("parts", parts), ("rows_first", first))
        for r, w in ((4, 4), (8, 4), (8, 8))
        for first in (0, 1)  # versions of Triton differ in which of them gives warps the rows
    ]


def _largest(kernel: LoopKernel) -> LoopNest:
    return max(kernel.nests, key=lambda n: math.prod(known(d) for d in (*n.outer, *n.inner)))


def _shapes(nest: LoopNest) -> list[Blocks]:
    """Blocks for a nest, the most promising first."""
    outer = math.prod(known(d) for d in nest.outer)
    inner = math.prod(known(d) for d in nest.inner)
    if nest.inner:
        return _reducing(nest, outer, inner)
    flat = [(r, 1, w) for r, w in ((512, 4), (1024, 4), (256, 4), (128, 2), (2048, 8))]
    flat = [s for s in flat if s[0] <= max(128, outer)]
    if outer < 512 * MULTIPROCESSORS:  # smaller blocks reach more of the card
        flat.sort(key=lambda s: s[0])
    axis = turned_axis(nest)
    if axis is None:
        return flat
    down, right = (1 << (known(nest.outer[i]) - 1).bit_length() for i in (axis, -1))
    sizes = ((64, 64, 8), (32, 64, 4), (64, 32, 4), (32, 32, 4), (128, 32, 8), (256, 4, 4))
    turned = [(min(r, down), min(c, right), w) for r, c, w in sizes if right >= min(c, 8)]
    return [*(s for s in dict.fromkeys(turned) if s[1] > 1), *flat]


def _reducing(nest: LoopNest, outer: int, inner: int) -> list[Blocks]:
    """Blocks for a nest with inner axes: a whole row in registers where it fits."""
    whole = 1 << max(0, inner - 1).bit_length()
    if _inner_is_contiguous(nest):
        found = _rows(outer, whole)
        found += [(1, min(whole, 1024), 4), (1, min(whole, 2048), 8), (4, min(whole, 512), 4)]
    else:
        found = [(32, min(whole, 64), 4), (64, min(whole, 16), 4), (16, min(whole, 64), 4)]
        found += [(64, min(whole, 64), 8), (32, min(whole, 32), 4), (128, min(whole, 8), 4)]
        found += [(512, 1, 4), (256, min(whole, 4), 4), (128, 1, 4)]
        if inner <= 16:  # a pool: every window is written out
            found = [(512, 1, 4), (1024, 1, 4), (256, 1, 4), (128, 1, 2), *found]
    kept = [f for f in found if f[0] * f[1] <= LARGEST_BLOCK]
    return list(dict.fromkeys(kept))


def _rows(outer: int, whole: int) -> list[Blocks]:
    """Blocks of whole rows by a rough time in microseconds: the start of every program, and in each
    wave the latency of memory, rows that a warp reduces one after the other, and elements."""
    found = []
    for rows in (1, 2, 4, 8, 16):
        for warps in (1, 2, 4, 8):
            each = rows * whole / (32 * warps)
            if not 1 <= each <= 32 or (rows > 1 and rows > outer):
                continue
            programs = math.ceil(outer / rows)
            waves = math.ceil(programs / (MULTIPROCESSORS * min(32, 64 // warps)))
            in_turn = max(1.0, rows / max(1, 256 * warps // whole))
            time = START * programs / MULTIPROCESSORS
            time += waves * (0.6 + 0.15 * in_turn + 0.01 * each)
            found.append((time, (rows, whole, warps)))
    return [block for _, block in sorted(found)]


def _inner_is_contiguous(nest: LoopNest) -> bool:
    """Whether stepping along the last inner axis steps along memory in most loads."""
    last = len(nest.outer) + len(nest.inner) - 1
    votes = 0
    for r in nest.reduces:
        for e in leaves(r.expr, "load"):
            if not e.args:
                continue
            uses = {a.number for a in leaves(e.args[-1], "axis")}
            votes += 1 if last in uses else -1
    return votes >= 0
