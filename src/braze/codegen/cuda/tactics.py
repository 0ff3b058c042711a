"""Tactics of the CUDA templates, the most promising first."""

from __future__ import annotations

import math

from braze.codegen.cuda.triton.attention import block
from braze.codegen.cuda.triton.tile import Tile
from braze.core.config import Effort
from braze.core.dims import Dim
from braze.core.dtypes import F32
from braze.expr.fold import leaves
from braze.expr.loops import LoopKernel, LoopNest
from braze.fusion.kernel import AnchorKernel, Tactic
from braze.ops.lowering import AttentionSpec, ConvSpec, MatmulSpec

MULTIPROCESSORS = 132  # what tile sizes aim to fill; a guess is enough where nothing is measured
UNKNOWN_SIZE = 1024
LARGEST_BLOCK = 8192

# rows, columns, depth, warps, stages
TILES = (
    (128, 128, 64, 8, 3), (128, 256, 64, 8, 3), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4),
    (128, 64, 64, 4, 3), (32, 64, 64, 4, 4), (32, 32, 64, 4, 4), (16, 64, 128, 4, 4),
    (16, 32, 128, 2, 4), (128, 128, 32, 4, 4), (64, 256, 64, 8, 3), (64, 32, 64, 4, 4),
    (32, 128, 64, 4, 3), (128, 32, 64, 4, 4), (16, 128, 64, 4, 4), (256, 64, 32, 4, 4),
)  # fmt: skip
# queries, keys, warps, stages
ATTENTION_TILES = (
    (64, 64, 4, 2), (128, 64, 8, 2), (128, 128, 8, 2), (64, 32, 4, 3), (32, 64, 4, 2),
    (16, 64, 4, 2), (32, 128, 4, 2), (128, 32, 4, 3),
)  # fmt: skip


def known(d: Dim) -> int:
    """A size, or a guess where it depends on the input shapes."""
    return d if isinstance(d, int) else UNKNOWN_SIZE


def tile_tactic(template: str, t: Tile) -> Tactic:
    """A tile as a tactic."""
    return Tactic(
        template,
        (
            ("rows", t.rows), ("columns", t.columns), ("depth", t.depth),
            ("warps", t.warps), ("stages", t.stages), ("precision", t.precision),
        ),
    )  # fmt: skip


def tile_of(tactic: Tactic) -> Tile:
    """The tile of a tactic."""
    p = dict(tactic.parameters)
    rows, columns, depth = int(p["rows"]), int(p["columns"]), int(p["depth"])
    return Tile(rows, columns, depth, int(p["warps"]), int(p["stages"]), str(p["precision"]))


def product_tactics(kernel: AnchorKernel, shared_bytes: int, effort: Effort) -> tuple[Tactic, ...]:
    """Tiles of a matrix product or convolution, ranked by waste and by how they fill the card."""
    spec = kernel.spec
    if isinstance(spec, MatmulSpec):
        template, batch = "matmul", math.prod(known(d) for d in spec.batch)
        rows, columns, depth = known(spec.m), known(spec.n), known(spec.k)
    else:
        assert isinstance(spec, ConvSpec)
        template, batch = "conv", spec.groups
        rows = math.prod(known(d) for d in (spec.batch, *spec.out_spatial))
        columns = spec.out_channels // spec.groups
        depth = math.prod(spec.kernel) * (spec.in_channels // spec.groups)
    element = kernel.inputs[0].dtype
    precision = "tf32x3" if element is F32 else "ieee"
    deepest = max(16, 1 << (max(1, depth) - 1).bit_length())
    if element is F32:
        deepest = min(deepest, 32)
    found: list[tuple[float, int, Tile]] = []
    for r, c, wanted, warps, stages in TILES:
        d = min(wanted, deepest)
        if stages * (r + c) * d * element.itemsize > shared_bytes:
            continue
        tile = Tile(r, c, d, warps, stages, precision)
        found.append((_cost(tile, batch, rows, columns, depth), len(found), tile))
    found.sort(key=lambda f: f[:2])
    return tuple(tile_tactic(template, t) for _, _, t in found[: max(1, 2 * effort.tactics)])


def _cost(t: Tile, batch: int, rows: int, columns: int, depth: int) -> float:
    """Relative time: waves of programs times the work of one, small tiles reading more."""
    programs = batch * math.ceil(rows / t.rows) * math.ceil(columns / t.columns)
    at_once = MULTIPROCESSORS * max(1, 8 // t.warps)
    waves = math.ceil(programs / at_once)
    work = t.rows * t.columns + 48 * (t.rows + t.columns)
    return waves * (work * max(1, 8 // t.warps) * (depth + 64))


def attention_tactics(kernel: AnchorKernel, effort: Effort) -> tuple[Tactic, ...]:
    """Tiles of an attention; fewer queries a program where there are few."""
    spec = kernel.spec
    assert isinstance(spec, AttentionSpec)
    queries = known(spec.q_len)
    wide = block(spec.head_dim) > 128 or kernel.inputs[0].dtype is F32
    found = []
    for rows, columns, warps, stages in ATTENTION_TILES:
        if rows > 2 * max(16, queries) or (wide and rows * columns > 64 * 64):
            continue
        found.append(Tile(rows, columns, 16, warps, stages))
    return tuple(tile_tactic("attention", t) for t in found[: max(1, effort.tactics)])


def select_tactics(effort: Effort) -> tuple[Tactic, ...]:
    """Blocks of a selection."""
    tiles = (Tile(32, 128, 16, 4, 1), Tile(16, 256, 16, 4, 1), Tile(64, 64, 16, 4, 1))
    return tuple(tile_tactic("select", t) for t in tiles[: max(1, effort.tactics)])


def nest_tactics(kernel: LoopKernel, effort: Effort) -> tuple[Tactic, ...]:
    """Blocks of outer and inner points of a loop kernel, for its largest nest."""
    nest = max(kernel.nests, key=lambda n: math.prod(known(d) for d in (*n.outer, *n.inner)))
    outer = math.prod(known(d) for d in nest.outer)
    inner = math.prod(known(d) for d in nest.inner)
    if nest.inner:
        shapes = _reducing(nest, outer, inner)
    else:
        shapes = [(r, 1, w) for r, w in ((512, 4), (1024, 4), (256, 4), (128, 2), (2048, 8))]
        shapes = [s for s in shapes if s[0] <= max(128, outer)]
    kept = shapes[: max(1, effort.tactics)]
    return tuple(Tactic("nest", (("rows", r), ("columns", c), ("warps", w))) for r, c, w in kept)


def _reducing(nest: LoopNest, outer: int, inner: int) -> list[tuple[int, int, int]]:
    """Blocks for a nest with inner axes: a whole row in registers where it fits."""
    whole = 1 << max(0, inner - 1).bit_length()
    if _inner_is_contiguous(nest):
        columns = min(whole, 4096)
        rows = max(1, min(1024 // columns, outer))
        rows = 1 << (rows.bit_length() - 1)
        warps = 1 if columns * rows <= 512 else 4 if columns * rows <= 2048 else 8
        found = [(rows, columns, warps), (1, min(whole, 1024), 4), (4, min(whole, 512), 4)]
        found += [(1, min(whole, 2048), 8), (16, min(whole, 64), 4), (1, min(whole, 256), 2)]
    else:
        found = [(64, min(whole, 16), 4), (128, min(whole, 8), 4), (32, min(whole, 32), 4)]
        found += [(256, min(whole, 4), 4), (16, min(whole, 64), 4), (128, 1, 4)]
    kept = [f for f in found if f[0] * f[1] <= LARGEST_BLOCK]
    return list(dict.fromkeys(kept))


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
