"""Products and convolutions in AMX's tiles: bytes into int32, bfloat16 into float32.

Rows are read where they lie, or copied where they are no whole number of words or of steps, or are
windows of a convolution; the right operand is constant, in the panels of the register tile's words
(its steps of k and 16 columns are a tile). Sums of bytes are those of every other template. Sums of
bfloat16 add, per step, those of its even and of its odd terms; denormals are zeros.
"""

from __future__ import annotations

from typing import cast

from llvmlite import ir

from braze.codegen.cpu.amx.forms import copied, form_of, spacing_of
from braze.codegen.cpu.amx.loops import Layout, UnitLoops
from braze.codegen.cpu.amx.registers import ROW_BYTES, ROWS
from braze.codegen.cpu.amx.tactics import SHIFT, cuts, shapes
from braze.codegen.cpu.llvm.function import KernelFunction
from braze.codegen.cpu.llvm.object import elf
from braze.codegen.cpu.product.blocks import UNBOUNDED, Blocking
from braze.codegen.cpu.product.epilogue import Epilogue
from braze.codegen.cpu.product.panels import PackedPanels, Source
from braze.codegen.cpu.product.register_tile import TileShape
from braze.codegen.cpu.product.rows import Rows
from braze.codegen.cpu.product.scratch import Scratch, scratch_base
from braze.codegen.cpu.product.store import TileSink
from braze.codegen.cpu.product.stored import Stored
from braze.codegen.cpu.target import CpuTarget, with_extras
from braze.core.config import Effort
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Tactic

TEMPLATE = "amx"
_LANES = 16  # sums of a vector register, and of a row of a tile
_SHAPES = 3  # how many are offered
_IN_FLIGHT = 8  # vectors that are finished side by side: two units with four cycles' latency


def tile_tactics(kernel: AnchorKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    """Tactics for a product or convolution in tiles, best estimate first; empty where there are
    none."""
    form = form_of(kernel, target)
    if form is None:
        return ()
    matrix = form.matrix
    sizes = (matrix.m, matrix.n, 4 * matrix.words)
    ranked: list[tuple[int, Tactic]] = []
    for i, shape in enumerate(shapes(target, *sizes)[:_SHAPES]):
        for at, mode in enumerate(form.modes):
            for j, (order, block, group) in enumerate(cuts(target, sizes, shape, mode)):
                values = (
                    ("heights", shape[0]),
                    ("widths", shape[1]),
                    ("a", mode),
                    ("order", order),
                    ("block", block),
                    ("group", group),
                    ("with", matrix.unit.extra),
                )
                ranked.append((2 * i + j + 2 * at, Tactic(TEMPLATE, values)))
    tactics = [tactic for _, tactic in sorted(ranked, key=lambda t: t[0])]
    return tuple(tactics[: effort.tactics])


def compile_tiles(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for one product or convolution; `tactic` is one of `tile_tactics`."""
    target = with_extras(target, tactic)
    form = form_of(kernel, target)
    assert form is not None
    matrix = form.matrix
    layout = Layout(int(tactic["heights"]), int(tactic["widths"]))
    rows, dtype, acc = ROWS * layout.heights, matrix.types[1], kernel.spec.acc
    shape = TileShape(rows, layout.widths, _LANES, dtype, acc, chunk=matrix.chunk)
    blocking = Blocking(int(tactic["block"]), int(tactic["group"]), str(tactic["order"]))
    mode = str(tactic["a"])
    spacing = None if mode in ("direct", SHIFT) else spacing_of(matrix, shape, ROW_BYTES)
    scratch, capacity, planes = Scratch(dtype.itemsize), rows * blocking.block_tiles, form.planes
    if planes is not None:
        scratch.take(planes.size(capacity) * len(planes.used))
    if spacing is not None:
        scratch.take(spacing.pitch * capacity)
    count = len(kernel.inputs) + 1
    fn = KernelFunction(TEMPLATE, target, count + (scratch.used != 0))
    copies = scratch_base(fn, count, scratch.used) if scratch.used != 0 else None
    stored, single = copied(fn, shape, ROW_BYTES)
    lines = form.rows(stored, single, mode, spacing, capacity, copies)
    steps, weights = shape.steps(matrix.k), Stored(fn, dtype)
    source = Source(weights, weights.buffer(matrix.right), shape.columns, 1, steps, matrix.n)
    together = max(1, _IN_FLIGHT // layout.widths)
    sink = TileSink(fn, shape, Epilogue(fn, kernel), *form.out, together=together)
    tiles = layout.tile_file(fn, shape, matrix.m)

    def bind(batch: ir.Value) -> None:
        form.bind(batch, stored, lines, source, sink)
        tiles.configure()

    panels, sizes = PackedPanels(fn, shape, source), (matrix.m, matrix.n)
    # tiles of rows are loaded by `line`: rows in planes have no pointers, which nobody asks for
    loops = UnitLoops(
        fn, shape, blocking, UNBOUNDED, *sizes, cast(Rows, lines), panels, sink, bind,
        line=lines.line,
        tiles=tiles, layout=layout, name=matrix.unit.instruction, words=matrix.words,
    )  # fmt: skip
    if planes is not None:
        loops.taps = [dtype.itemsize * o for o in planes.offsets(capacity)]
        loops.width, loops.outputs = planes.width, planes.outputs[1]
    loops.run(form.batches)
    tiles.release()
    code, params = fn.finish(speed=0)
    launch = HostLaunch(True, scratch.used)
    packings = ((matrix.right, form.packing(shape)),)
    return CompiledKernel(elf(TEMPLATE, target, code), params, launch, packings)
