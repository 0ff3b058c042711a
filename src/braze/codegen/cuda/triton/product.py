"""What products and convolutions share: which program sums what, and the end of a split sum.

With few tiles, several programs share the sum of one: each takes a range of its steps and leaves a
partial sum in the workspace. The one that arrives last (a counter says so, with acquire and release
order) adds all of them in the order of the steps, so that the same bits come out whoever is last,
and goes on to the epilogue. It resets the counter for the next run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.source import RELEASE
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile
from braze.core.dims import Dim, product
from braze.expr.loops import TensorSpec

INT32_LIMIT = 2**31
AHEAD = 64  # elements of an output tile a thread, up to which the epilogue's loads are early


def begin(w: AnchorWriter, tile: Tile, tiles: Dim) -> None:
    """`place`: the number of this program's tile; with a split sum, `part`: its share of it."""
    if tile.split == 1:
        w.line("place = tl.program_id(0)")
        return
    w.line(f"place = tl.program_id(0) % {tiles}")
    w.line(f"part = tl.program_id(0) // {tiles}")


def steps(w: AnchorWriter, tile: Tile, count: str) -> str:
    """The steps of this program, as what a `for` walks."""
    if tile.split == 1:
        return f"range(0, {count})"
    w.line(f"first_step = part * {count} // {tile.split}")
    w.line(f"end_step = (part + 1) * {count} // {tile.split}")
    return "range(first_step, end_step)"


def read_ahead(w: AnchorWriter, tile: Tile, scope: Scope) -> None:
    """Start the loads of the epilogue before the main loop, so that they cost no time after it,
    where registers hold them. With a split sum each program may be the one that needs them."""
    if tile.rows * tile.columns <= AHEAD * 32 * tile.warps:
        w.emit.ahead(w.kernel.epilogue, scope)


@contextmanager
def summed(w: AnchorWriter, tile: Tile) -> Iterator[None]:
    """What is written inside runs with the whole sum of the tile in `acc`."""
    if tile.split == 1:
        yield
        return
    w.line(RELEASE)
    size = tile.rows * tile.columns
    down, right = f"tl.arange(0, {tile.rows})[:, None]", f"tl.arange(0, {tile.columns})[None, :]"
    w.line(f"shared = scratch + place.to(tl.int64) * {tile.split * size}")
    w.line(f"shared = shared + ({down} * {tile.columns} + {right})")
    w.line(f"tl.store(shared + part * {size}, acc)")
    with last_of(w, tile):
        w.line('acc = tl.load(shared, cache_modifier=".cg")')
        for part in range(1, tile.split):
            w.line(f'acc += tl.load(shared + {part * size}, cache_modifier=".cg")')
        yield


@contextmanager
def last_of(w: AnchorWriter, tile: Tile) -> Iterator[None]:
    """What is written inside is done by the program of a tile that comes here last, and sees what
    the others have stored before. The counter is zero again afterwards."""
    w.line("tl.debug_barrier()")
    w.line('arrived = tl.atomic_add(counters + place, 1, sem="acq_rel", scope="gpu")')
    with w.src.block(f"if arrived == {tile.split - 1}"):
        w.line("tl.store(counters + place, 0)")
        yield


def index_type(tensors: tuple[TensorSpec, ...]) -> str:
    """The integer type that counts elements: 32 bits where no tensor can be larger."""
    counts = [product(t.shape) for t in tensors]
    small = all(isinstance(c, int) and c < INT32_LIMIT for c in counts)
    return "int32" if small else "int64"
