"""Matrix products: tactics and code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llvmlite import ir

from braze.codegen.cpu.llvm.function import KernelFunction
from braze.codegen.cpu.llvm.object import elf
from braze.codegen.cpu.product.blocks import UNBOUNDED, Blocking, TileLoops
from braze.codegen.cpu.product.dot import (
    WORDS,
    dot_refusal,
    element_type,
    is_bytes,
    multiplied,
    word_extras,
)
from braze.codegen.cpu.product.epilogue import Epilogue
from braze.codegen.cpu.product.panels import (
    CopiedPanels,
    DirectPanels,
    PackedPanels,
    Panels,
    Source,
)
from braze.codegen.cpu.product.register_tile import TileShape
from braze.codegen.cpu.product.rows import CopiedRows, Rows, StridedRows, WordRows
from braze.codegen.cpu.product.scratch import Scratch, scratch_base
from braze.codegen.cpu.product.spec import Product, from_spec
from braze.codegen.cpu.product.store import TileSink
from braze.codegen.cpu.product.stored import Stored
from braze.codegen.cpu.product.tactics import MAX_ROWS, conflicts, is_small, orders, tile_choices
from braze.codegen.cpu.target import CpuTarget, with_extras
from braze.core.config import Effort
from braze.core.dims import Dim, ceildiv
from braze.core.dtypes import BF16, F16, DType
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Packing, Tactic
from braze.ops.lowering import MatmulSpec

TEMPLATE = "gemm"


def matmul_support(
    spec: MatmulSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
) -> str | None:
    """None for a product of floats or of bytes by constant ones, else why there is no template."""
    types = [inputs[o.slot].dtype for o in (spec.lhs, spec.rhs)]
    refusal = dot_refusal(types, spec.acc)
    if refusal is None and is_bytes(types) and not is_packed(spec, constant):
        return "the right operand is not constant: products of bytes read packed ones"
    return refusal or ("a sum of no terms has no template" if spec.k == 0 else None)


def matmul_tactics(kernel: AnchorKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    """Tactics for a product that `matmul_support` takes, best estimate first."""
    spec = kernel.spec
    assert isinstance(spec, MatmulSpec)
    p, dtype = from_spec(spec), spec.acc
    types = [kernel.inputs[o.slot].dtype for o in (spec.lhs, spec.rhs)]
    packed = is_packed(spec, kernel.constant)
    extras = word_extras(target, types, p.k) if packed else ()
    word = WORDS[types[1]] if extras or is_bytes(types) else 1
    modes = ("packed",) if word > 1 else _rhs_modes(p, kernel, target)
    found: dict[Tactic, None] = {}
    tiles = tile_choices(target, dtype, p.m, p.n, p.lhs[0], effort.estimate)
    sizes = (p.m, p.n, ceildiv(p.k, word) if word > 1 else p.k)
    for tile in tiles[:6]:
        cuts = {o: cut for o, *cut in orders(target, dtype.itemsize, sizes, tile)}
        for order in cuts:
            for a in _lhs_modes(p, types[0], tile.rows, word):
                for b in modes:
                    # a copy is made once per outer unit: copied operands belong outside
                    chosen = "rows" if a == "copy" and b != "copy" else order
                    chosen = "panels" if b == "copy" else chosen
                    block, group = cuts[chosen]
                    found[
                        Tactic(
                            TEMPLATE,
                            (
                                ("rows", tile.rows),
                                ("vectors", tile.vectors),
                                ("lanes", tile.lanes),
                                ("a", a),
                                ("b", b),
                                ("order", chosen),
                                ("block", block),
                                ("group", group),
                                *(("with", extra) for extra in extras),
                            ),
                        )
                    ] = None
    return tuple(_spread(list(found), effort.tactics))


def _spread(tactics: list[Tactic], limit: int) -> Iterator[Tactic]:
    """The first `limit` tactics, register tiles in turn so that a short list is a varied one."""
    by_tile: dict[tuple[int | str, int | str], list[Tactic]] = {}
    for tactic in tactics:
        by_tile.setdefault((tactic["rows"], tactic["vectors"]), []).append(tactic)
    depth = max((len(group) for group in by_tile.values()), default=0)
    ordered = [g[i] for i in range(depth) for g in by_tile.values() if i < len(g)]
    yield from ordered[:limit]


def _lhs_modes(p: Product, dtype: DType, rows: int, word: int) -> tuple[str, ...]:
    if (p.lhs[1] != 1 and p.k != 1) or (word == 1 and element_type(dtype) is not dtype):
        return ("copy",)
    if word > 1 and p.k % word != 0:
        return ("copy",)
    if rows == 1 or p.m == 1:
        return ("direct",)
    if conflicts(p.lhs[0], dtype.itemsize, rows):
        return ("copy", "direct")
    return ("direct", "copy") if p.n != 1 else ("direct",)


def _rhs_modes(p: Product, kernel: AnchorKernel, target: CpuTarget) -> tuple[str, ...]:
    assert isinstance(kernel.spec, MatmulSpec)
    dtype = kernel.inputs[kernel.spec.rhs.slot].dtype
    if is_packed(kernel.spec, kernel.constant):
        return ("held",) if _holds_halves(p.m, dtype, target) else ("packed",)
    if p.rhs[1] == 1 and element_type(dtype) is dtype:
        few = isinstance(p.m, int) and p.m <= 32
        return ("direct", "copy") if few else ("copy", "direct")
    return ("copy",)


def _holds_halves(m: Dim, dtype: DType, target: CpuTarget) -> bool:
    """Whether panels of constants stay in a half type: they come from memory once for few rows,
    which takes longer than to convert them. More rows would convert them again and again."""
    cheap = dtype is BF16 or (dtype is F16 and target.features.has_f16c)
    return cheap and isinstance(m, int) and m <= MAX_ROWS


def is_packed(spec: MatmulSpec, constant: frozenset[int]) -> bool:
    """Whether the right operand can be laid out in panels at build time."""
    p = from_spec(spec)
    sizes = (p.n, p.k, p.rhs_offset, *p.rhs, *(x for a in p.batch for x in (a.size, a.rhs)))
    return spec.rhs.slot in constant and all(isinstance(s, int) for s in sizes)


def compile_matmul(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for one product; `tactic` is one of `matmul_tactics`."""
    spec = kernel.spec
    assert isinstance(spec, MatmulSpec)
    p, types = from_spec(spec), [kernel.inputs[o.slot].dtype for o in (spec.lhs, spec.rhs)]
    rows, vectors, lanes = (int(tactic[key]) for key in ("rows", "vectors", "lanes"))
    held, target = types[1] if tactic["b"] == "held" else None, with_extras(target, tactic)
    words = tactic["b"] == "packed" and bool(word_extras(target, types, p.k))
    shape = TileShape(rows, vectors, lanes, multiplied(types[1], words), spec.acc, held)
    packed = tactic["b"] in ("packed", "held")
    blocking = Blocking(int(tactic["block"]), int(tactic["group"]), str(tactic["order"]))
    scratch = Scratch(shape.itemsize)
    regions = _regions(p, shape, blocking, tactic, scratch)
    count = len(kernel.inputs) + 1
    fn = KernelFunction(TEMPLATE, target, count + (scratch.used != 0))
    base = scratch_base(fn, count, scratch.used) if scratch.used != 0 else None
    copies, columns = (
        None if at is None or base is None else fn.at(base, fn.dim(at), ir.IntType(8))
        for at in regions
    )
    left = Stored(fn, types[0] if shape.depth == 1 else shape.single.dtype)
    right = Stored(fn, _kept(shape) if packed else types[1])
    lines = _rows(left, shape, p, left.buffer(spec.lhs.slot), copies)
    depth = shape.steps(p.k)
    source = Source(right, right.buffer(spec.rhs.slot), p.rhs[0], p.rhs[1], depth, p.n)
    panels = _panels(fn, shape, source, tactic, columns)
    epilogue = Epilogue(fn, kernel)
    sink = TileSink(fn, shape, epilogue, p.out[0], p.out[1])

    def bind(batch: ir.Value) -> None:
        lhs, rhs, out = offsets(fn, p, batch, shape, packed)
        lines.base = left.buffer(spec.lhs.slot, lhs)
        source.base = right.buffer(spec.rhs.slot, rhs)
        output = fn.buffer(len(kernel.inputs), epilogue.stored)
        sink.base = fn.at(output, out, epilogue.stored)
        sink.row_flat = fn.builder.mul(batch, fn.dim(p.m))

    block = spec.block // shape.depth if shape.acc.is_float else UNBOUNDED
    TileLoops(fn, shape, blocking, block, p.m, p.n, lines, panels, sink, bind).run(p.batches)
    packings = ((spec.rhs.slot, packing(p, shape)),) if packed else ()
    code, params = fn.finish(speed=0)
    launch = HostLaunch(not is_small(p.batches * p.m * p.n, p.k), scratch.used)
    return CompiledKernel(elf(TEMPLATE, target, code), params, launch, packings)


def _rows(
    left: Stored, shape: TileShape, p: Product, base: ir.Value, copies: ir.Value | None
) -> Rows:
    """How the left operand is read: in place, or copied to `copies`."""
    fn, single = left.fn, shape.single
    lines: Rows = StridedRows(fn, single, base, p.lhs[0], p.k)
    if copies is not None:
        lines = CopiedRows(fn, single, left, base, p.lhs[0], p.lhs[1], p.k, copies)
    return lines if single is shape else WordRows(lines, shape.depth)


def _regions(
    p: Product, shape: TileShape, blocking: Blocking, tactic: Tactic, scratch: Scratch
) -> tuple[Dim | None, Dim | None]:
    """Scratch for copied rows and copied panels, as byte offsets."""
    rows = panels = None
    if tactic["a"] == "copy":
        pitch = shape.steps(CopiedRows.pitch(p.k))
        rows = scratch.take(pitch * blocking.block_tiles * shape.rows)
    if tactic["b"] == "copy":
        panels = scratch.take(p.k * shape.columns * blocking.group_panels)
    elif tactic["b"] == "direct" and p.n % shape.columns != 0:
        panels = scratch.take(p.k * shape.columns)
    return rows, panels


def _panels(
    fn: KernelFunction,
    shape: TileShape,
    source: Source,
    tactic: Tactic,
    scratch: ir.Value | None,
) -> Panels:
    """How the tactic reads the right operand."""
    if tactic["b"] in ("packed", "held"):
        return PackedPanels(fn, shape, source)
    if tactic["b"] == "copy":
        return CopiedPanels(fn, shape, source, scratch)
    return DirectPanels(fn, shape, source, scratch)


def offsets(
    fn: KernelFunction, p: Product, batch: ir.Value, shape: TileShape, packed: bool
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Element offsets of matrix `batch` in lhs, rhs (packed or not) and out."""
    b = fn.builder
    start = (p.lhs_offset, 0 if packed else p.rhs_offset, p.out_offset)
    totals = [fn.dim(offset) for offset in start]
    rest = batch
    width = shape.columns * (shape.itemsize // shape.dtype.itemsize)  # of bytes: words of them
    panel_step: Dim = shape.steps(p.k) * width * ceildiv(p.n, shape.columns)
    for axis in reversed(p.batch):
        size = fn.dim(axis.size)
        index, rest = b.srem(rest, size), b.sdiv(rest, size)
        rhs = axis.rhs
        if packed and axis.rhs != 0:
            rhs = panel_step
            panel_step = panel_step * axis.size
        for i, step in enumerate((axis.lhs, rhs, axis.out)):
            if step != 0:
                totals[i] = b.add(totals[i], b.mul(index, fn.dim(step)))
    return totals[0], totals[1], totals[2]


def packing(p: Product, shape: TileShape) -> Packing:
    """How the right operand is packed for `shape`."""
    kept = [axis for axis in p.batch if axis.rhs != 0]
    values: list[tuple[str, Dim]] = [
        ("columns", shape.columns),
        ("offset", p.rhs_offset),
        ("k", p.k),
        ("n", p.n),
        ("k_stride", p.rhs[0]),
        ("n_stride", p.rhs[1]),
        ("batch_axes", len(kept)),
    ]
    if shape.depth > 1:
        values.append(("word", shape.depth))
    if shape.chunk > 1:
        values.append(("steps", shape.steps(p.k)))
    for i, axis in enumerate(kept):
        values += [(f"size{i}", axis.size), (f"stride{i}", axis.rhs)]
    parameters = tuple((key, static(value)) for key, value in values)
    return Packing("matmul_panels", _kept(shape), parameters)


def _kept(shape: TileShape) -> DType:
    """The type of panels that are packed at build time."""
    return shape.dtype if shape.held is None else shape.held


def static(size: Dim) -> int:
    """A size that tactics guarantee to be a number."""
    assert isinstance(size, int)
    return size
