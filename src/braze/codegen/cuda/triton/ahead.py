"""What a launch asks for before the launches in front of it have ended.

A product of few rows waits for memory and for nothing else. Its weights are constants, which no
launch writes: each program fetches its part of them into the cache before it waits for its other
operand, so that memory works while small launches in front of it compute. For that they let it
start at once: a launch of few programs leaves the card to it.
"""

from __future__ import annotations

from typing import Final

from braze.codegen.cuda.triton.source import RELEASE, WAIT
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile, ceil_div
from braze.core.dims import product
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import MatmulSpec

FEW_ROWS: Final = 16
INT32_LIMIT: Final = 1 << 31
LEAST_BYTES, MOST_BYTES = 1 << 18, 16 << 20  # of a weight that is worth it; of one that is fetched
LINE: Final = 128  # bytes that one request brings


def fetches_ahead(kernel: AnchorKernel) -> bool:
    """Whether a product's time is that of its weights."""
    spec = kernel.spec
    if not isinstance(spec, MatmulSpec) or 1 not in kernel.constant:
        return False
    rows = product((*spec.batch, spec.m))
    *batch, down, right = spec.rhs.strides
    sizes = (rows, spec.k, spec.n, down, right, spec.rhs.offset)
    if not all(isinstance(d, int) for d in sizes) or any(s != 0 for s in batch):
        return False
    assert isinstance(spec.k, int) and isinstance(spec.n, int) and isinstance(rows, int)
    count = spec.k * spec.n
    heavy = count * kernel.inputs[1].dtype.itemsize >= LEAST_BYTES and count < INT32_LIMIT
    return 0 < rows <= FEW_ROWS and heavy and 1 in (down, right)


def fetch_weights(w: AnchorWriter, spec: MatmulSpec, tile: Tile) -> None:
    """Write the requests for this program's part of the weight, the wait, and the release."""
    k, n, size = spec.k, spec.n, w.kernel.inputs[1].dtype.itemsize
    assert isinstance(k, int) and isinstance(n, int)
    down, right = spec.rhs.strides[-2:]
    span = max(tile.depth, min(k, MOST_BYTES // (n * size))) // tile.split + tile.depth
    first = "0"
    if tile.split > 1:
        first = f"(part * {ceil_div(k, tile.depth)} // {tile.split} * {tile.depth})"
    w.line(f"ahead = {first}")
    w.line(f"end_ahead = tl.minimum(ahead + {span}, {k})")
    step, threads = LINE // size, 32 * tile.warps
    if right == 1:  # a line holds neighbouring columns
        across = max(1, tile.columns // step)
        deep = max(1, threads // across)
        pace, lanes = deep, f"tl.arange(0, {deep})"
        columns = f"tl.arange(0, {across}) * {step}"
    else:
        across = tile.columns
        deep = max(1, threads // across)
        pace, lanes = deep * step, f"tl.arange(0, {deep}) * {step}"
        columns = f"tl.arange(0, {across})"
    with w.src.block(f"for begin_ahead in range(ahead, end_ahead, {pace})"):
        w.line(f"deep = tl.minimum(begin_ahead + {lanes}, {k - 1})[:, None]")
        w.line(f"wide = tl.minimum(first_column + {columns}, {n - 1})[None, :]")
        w.line(f"fetch_ahead(in1 + {spec.rhs.offset} + deep * {down} + wide * {right})")
    w.line(WAIT)
    w.line(RELEASE)
