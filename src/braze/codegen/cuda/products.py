"""Tactics of matrix products and convolutions: every tile that fits, ranked by a cost in
microseconds whose constants were fitted to an H200."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from braze.codegen.cuda.tactics import known, tile_tactic
from braze.codegen.cuda.triton.conv import FEW_CHANNELS, depth_of
from braze.codegen.cuda.triton.tile import Tile
from braze.core.config import Effort
from braze.core.dims import Dim
from braze.core.dtypes import F32, DType
from braze.fusion.kernel import AnchorKernel, Tactic
from braze.ops.lowering import ConvSpec, MatmulSpec

MULTIPROCESSORS = 132
# rows, columns, warps: tiles of few rows for few rows, large ones for throughput
TILES = (
    (16, 32, 2), (16, 64, 4), (16, 128, 4), (32, 32, 4), (32, 64, 4), (32, 128, 4), (64, 32, 4),
    (64, 64, 4), (64, 128, 4), (64, 256, 4), (128, 32, 4), (128, 64, 4), (128, 128, 4),
    (128, 128, 8), (128, 256, 8), (256, 64, 8), (256, 128, 8),
)  # fmt: skip
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
LARGEST_SPLIT_TILE = 64 * 128
# workspace of a split sum; more would not stay in the cache
MOST_WORKSPACE = 32 << 20
LINE_BYTES = 128
A_KIND = 4  # candidates with the same rows and columns


@dataclass(frozen=True, slots=True)
class _Problem:
    """A product: how many of them, their sizes, and the steps of a sum in blocks of a depth."""

    template: str
    batch: int
    rows: int
    columns: int
    depth: int
    taps: int
    element: DType
    splits: bool
    spec: MatmulSpec | ConvSpec

    def steps(self, block: int) -> int:
        if isinstance(self.spec, ConvSpec):
            return depth_of(self.spec, block).steps
        return -(-self.depth // block)

    @property
    def precision(self) -> str:
        return "tf32x3" if self.element is F32 else "ieee"


def product_tactics(kernel: AnchorKernel, shared_bytes: int, effort: Effort) -> tuple[Tactic, ...]:
    """Tiles of a matrix product or convolution, best estimate first; of each shape a few."""
    problem = _problem(kernel)
    ranked = sorted(
        ((_cost(problem, t), i, t) for i, t in enumerate(_tiles(problem, shared_bytes))),
        key=lambda found: found[:2],
    )
    wanted = 1 if effort.tactics == 1 else 6 * effort.tactics
    kept: list[Tile] = []
    of_kind: dict[tuple[int, int], int] = {}
    for _, _, t in ranked:
        kind = (t.rows, t.columns)
        if of_kind.get(kind, 0) < A_KIND:
            of_kind[kind] = of_kind.get(kind, 0) + 1
            kept.append(t)
    return tuple(tile_tactic(problem.template, t) for t in kept[:wanted])


def _problem(kernel: AnchorKernel) -> _Problem:
    spec, element = kernel.spec, kernel.inputs[0].dtype
    if isinstance(spec, MatmulSpec):
        batch, taps, template = math.prod(known(d) for d in spec.batch), 1, "matmul"
        sizes: tuple[Dim, ...] = (*spec.batch, spec.m, spec.n, spec.k)
        rows, columns, depth = known(spec.m), known(spec.n), known(spec.k)
    else:
        assert isinstance(spec, ConvSpec)
        batch, taps, template = spec.groups, math.prod(spec.kernel), "conv"
        sizes = (spec.batch, *spec.out_spatial)
        rows = math.prod(known(d) for d in sizes)
        columns = spec.out_channels // spec.groups
        depth = taps * (spec.in_channels // spec.groups)
    splits = all(isinstance(d, int) for d in sizes)
    return _Problem(template, batch, rows, columns, depth, taps, element, splits, spec)


def _tiles(p: _Problem, shared_bytes: int) -> Iterator[Tile]:
    """Every tile that fits into shared memory and wastes less than it computes."""
    for rows, columns, warps in TILES:
        if rows > 2 * max(8, p.rows) or columns > 2 * max(16, p.columns):
            continue
        for block in _blocks(p):
            most = p.steps(block)
            tiles = p.batch * math.ceil(p.rows / rows) * math.ceil(p.columns / columns)
            for split in SPLITS if p.splits and rows * columns <= LARGEST_SPLIT_TILE else (1,):
                room = tiles * split * rows * columns * 4
                crowded = tiles * split > 4 * MULTIPROCESSORS or room > MOST_WORKSPACE
                if split > 1 and (split > most or crowded):
                    break
                stages = _stages(p, rows, columns, block, math.ceil(most / split), shared_bytes)
                if stages:
                    yield Tile(rows, columns, block, warps, stages, p.precision, split)


def _blocks(p: _Problem) -> list[int]:
    """Depths of a step: what the sum fills, at most 128 bytes of a row or twice that."""
    channels = p.depth // p.taps
    if p.taps > 1 and channels < FEW_CHANNELS:
        channels = p.depth
    size = p.element.itemsize
    line, least = LINE_BYTES // size, 16 if size > 1 else 32
    whole = max(least, 1 << (max(1, channels) - 1).bit_length())
    found = {min(whole, line)} | ({min(whole, 2 * line)} if size <= 2 else set())
    # 96 channels are three steps of 32, and would be two of 64 of which a quarter is nothing
    if channels % line and channels % (line // 2) == 0:
        found.add(max(least, line // 2))
    return sorted(found)


def _stages(p: _Problem, rows: int, columns: int, block: int, steps: int, shared: int) -> int:
    """Stages of the loads: more where steps are small, none that are not used; 0: no room."""
    one = (rows + columns) * block * p.element.itemsize
    wanted = 5 if one <= 16 << 10 else 4 if one <= 24 << 10 else 3
    return max(0, min(wanted, max(2, steps), shared // one))


def _cost(p: _Problem, t: Tile) -> float:
    """Microseconds: the longest chain of waves and steps, or what the card as a whole must do."""
    tiles = p.batch * math.ceil(p.rows / t.rows) * math.ceil(p.columns / t.columns)
    programs = tiles * t.split
    area = t.rows * t.columns
    slow = 1.0 if p.element.itemsize <= 2 else 6.0  # float32: three passes of half the rate
    work = 0.06 * area / 4096 * slow  # of a step of 64, when tensor cores do nothing else
    depth = t.depth / 64
    chain = math.ceil(p.steps(t.depth) / t.split) * depth * (0.12 + work)
    together = max(1, min(8 // t.warps * 2, 4, (200 << 10) // _shared(p, t)))
    waves = math.ceil(programs / (MULTIPROCESSORS * together))
    busy = programs / MULTIPROCESSORS * p.steps(t.depth) / t.split * depth * work * 1.15
    traffic = programs * p.steps(t.depth) / t.split * t.depth * p.element.itemsize
    cached = traffic * (t.rows + t.columns) / 6e6
    ends = programs / MULTIPROCESSORS * area / 4096 * 0.15 + 0.3 + area / 16384
    split = 0.0 if t.split == 1 else 1.0 + 0.05 * t.split
    crowd = 1.0 if programs <= MULTIPROCESSORS else 1.15
    return max(waves * chain * crowd, busy, cached) + ends + split


def _shared(p: _Problem, t: Tile) -> int:
    return t.stages * (t.rows + t.columns) * t.depth * p.element.itemsize
