"""Tactics of matrix products and convolutions: every tile that fits, ranked by a cost in
microseconds whose constants were fitted to an H200."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from braze.codegen.cuda.tactics import known, tile_tactic
from braze.codegen.cuda.triton.conv import depth_of
from braze.codegen.cuda.triton.stem import folded_kernel
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
FEWEST_ROWS = 16  # of a tile
A_KIND = 4  # candidates with the same rows and columns
# What `_cost` adds up, in microseconds, for 64 x 64 outputs (area), 128 rows and columns together
# (edge) and 128 bytes of each: fitted to 1,129 times of float16 products and convolutions on an
# H200, which it meets within 13 % (one standard deviation); the first in rank is 4 % behind the
# best of what was measured.
STEP, STEP_AREA, STEP_EDGE = 0.065, 0.087, 0.034  # one program alone
BUSY_AREA, BUSY_EDGE = 0.057, 0.126  # each of several on a multiprocessor
NARROW, NARROW_ROWS = 1.5, 64  # tiles of fewer rows do without the widest instructions
START = 0.071  # of a program on a multiprocessor
END = 0.255
SPLIT, SPLIT_AREA, SPLIT_PART = 1.62, 0.157, 0.116
HIDDEN = 0.15  # of the shorter of work and memory that still shows
LARGE = 1.25  # tiles beyond 128 rows or 128 x 128 never came first
BYTES_A_MICROSECOND = 4.0e6


@dataclass(frozen=True, slots=True)
class _Problem:
    """A product: how many of them, their sizes, and the steps of a sum in blocks of a depth."""

    template: str
    batch: int
    rows: int
    columns: int
    depth: int
    element: DType
    splits: bool
    spec: MatmulSpec | ConvSpec
    precision: str
    memory: float  # microseconds that all tensors take from memory

    def steps(self, block: int) -> int:
        if isinstance(self.spec, ConvSpec):
            return depth_of(self.spec, block).steps
        return -(-self.depth // block)


def product_tactics(kernel: AnchorKernel, shared_bytes: int, effort: Effort) -> tuple[Tactic, ...]:
    """Tiles of a matrix product or convolution, best estimate first; of each shape a few. A
    picture is folded first, where that fits: nothing else has come near."""
    folded = folded_kernel(kernel)
    problem = _problem(kernel, effort) if folded is None else _stem(folded, effort)
    ranked = sorted(
        ((_cost(problem, t), i, t) for i, t in enumerate(_tiles(problem, shared_bytes))),
        key=lambda found: found[:2],
    )
    wanted = 1 if effort.tactics == 1 else 3 * effort.tactics
    kept: list[Tile] = []
    of_kind: dict[tuple[int, int, int], int] = {}
    for _, _, t in ranked:
        kind = (t.rows, t.columns, t.depth if t.rows == FEWEST_ROWS else 0)
        if of_kind.get(kind, 0) < A_KIND:
            of_kind[kind] = of_kind.get(kind, 0) + 1
            kept.append(t)
    return tuple(tile_tactic(problem.template, t) for t in kept[:wanted])


def _stem(folded: AnchorKernel, effort: Effort) -> _Problem:
    """The second convolution of a stem; the workspace is taken, so that no sum is split."""
    return replace(_problem(folded, effort), template="stem", splits=False)


def _problem(kernel: AnchorKernel, effort: Effort) -> _Problem:
    spec, element = kernel.spec, kernel.inputs[0].dtype
    if isinstance(spec, MatmulSpec):
        batch, template = math.prod(known(d) for d in spec.batch), "matmul"
        sizes: tuple[Dim, ...] = (*spec.batch, spec.m, spec.n, spec.k)
        rows, columns, depth = known(spec.m), known(spec.n), known(spec.k)
    else:
        assert isinstance(spec, ConvSpec)
        batch, template = spec.groups, "conv"
        sizes = (spec.batch, *spec.out_spatial)
        rows = math.prod(known(d) for d in sizes)
        columns = spec.out_channels // spec.groups
        depth = math.prod(spec.kernel) * (spec.in_channels // spec.groups)
    splits = all(isinstance(d, int) for d in sizes)
    precision = "ieee" if element is not F32 else "tf32" if effort.tf32 else "tf32x3"
    tensors = (*kernel.inputs, kernel.output)
    count = sum(math.prod(known(d) for d in t.shape) * t.dtype.itemsize for t in tensors)
    known_sizes = (template, batch, rows, columns, depth, element, splits, spec, precision)
    return _Problem(*known_sizes, count / BYTES_A_MICROSECOND)


def _tiles(p: _Problem, shared_bytes: int) -> Iterator[Tile]:
    """Every tile that fits into shared memory and wastes less than it computes."""
    for rows, columns, warps in TILES:
        if rows > 2 * max(FEWEST_ROWS // 2, p.rows) or columns > 2 * max(16, p.columns):
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
    channels = p.depth
    if isinstance(p.spec, ConvSpec):
        walk = depth_of(p.spec, LINE_BYTES)
        channels = walk.channels * walk.taps if walk.flat else walk.channels
    size = p.element.itemsize
    line, least = LINE_BYTES // size, 16 if size > 1 else 32
    whole = max(least, 1 << (max(1, channels) - 1).bit_length())
    found = {min(whole, line)} | ({min(whole, 2 * line)} if size <= 2 else set())
    if p.rows <= FEWEST_ROWS and size <= 2:  # what is in flight is all that counts
        found |= {min(whole, 4 * line), min(whole, 8 * line)}
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
    """Microseconds. A wave of programs takes the longer of one program's chain of steps and of
    what those on a multiprocessor load and multiply together; a split sum adds its exchange."""
    tiles = p.batch * math.ceil(p.rows / t.rows) * math.ceil(p.columns / t.columns)
    programs = tiles * t.split
    area, edge = t.rows * t.columns / 4096, (t.rows + t.columns) / 128
    lines = t.depth * p.element.itemsize / LINE_BYTES  # of a row a step
    # of what is multiplied in a line: three passes
    rate = 3.0 if p.precision == "tf32x3" else 1.0
    alone = STEP + STEP_AREA * area * rate + STEP_EDGE * edge
    shared = BUSY_AREA * area * rate + BUSY_EDGE * edge
    together = _together(p, t)
    full, rest = divmod(programs, MULTIPROCESSORS * together)
    chain = full * max(alone, together * shared)
    if rest:
        chain += max(alone, min(together, math.ceil(rest / MULTIPROCESSORS)) * shared)
    chain *= math.ceil(p.steps(t.depth) / t.split) * lines
    chain *= NARROW if t.rows < NARROW_ROWS else 1.0
    chain += START * math.ceil(programs / MULTIPROCESSORS)
    end = END * area * max(1.0, programs / MULTIPROCESSORS)
    exchange = SPLIT + t.split * (SPLIT_AREA * area + SPLIT_PART) if t.split > 1 else 0.0
    large = LARGE if t.rows > 128 or t.rows * t.columns > 128 * 128 else 1.0
    main = max(chain, p.memory) + HIDDEN * min(chain, p.memory)
    return (main + end + exchange) * large


def _together(p: _Problem, t: Tile) -> int:
    """Programs that fit on a multiprocessor: by shared memory, threads and registers."""
    shared = t.stages * (t.rows + t.columns) * t.depth * p.element.itemsize + (1 << 10)
    threads = 32 * t.warps
    registers = threads * min(255, t.rows * t.columns // threads + 80)
    return max(1, min((227 << 10) // shared, 2048 // threads, (64 << 10) // registers))
