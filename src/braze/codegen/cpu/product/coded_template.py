"""Products by weights of few bits: tactics and code of the whole kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from braze.codegen.cpu.llvm.function import I8, KernelFunction
from braze.codegen.cpu.llvm.object import elf
from braze.codegen.cpu.product.blocks import Blocking, TileLoops
from braze.codegen.cpu.product.coded import WORD_BITS, CodedPanels, CodedTile
from braze.codegen.cpu.product.dot import element_type
from braze.codegen.cpu.product.epilogue import Epilogue
from braze.codegen.cpu.product.register_tile import TileShape
from braze.codegen.cpu.product.rows import CopiedRows, Rows, StridedRows
from braze.codegen.cpu.product.scratch import Scratch, scratch_base
from braze.codegen.cpu.product.spec import Product, from_spec
from braze.codegen.cpu.product.store import TileSink
from braze.codegen.cpu.product.stored import Stored
from braze.codegen.cpu.product.tactics import choose_lanes
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import Effort
from braze.core.dtypes import F32, U8
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Packing, Tactic
from braze.ops.coded_spec import SCALE_BYTES, CodedSpec
from braze.ops.lowering import MatmulSpec, Operand

TEMPLATE = "coded"
PANELS = "coded_panels"
WEIGHT_SLOT = 1
MOST_ROWS = 32  # beyond, numbers are decoded so often that dequantized ones are faster
_SHAPES = (1, 2, 3, 4, 6, 8)  # rows and vectors of a tile
_DECODE = 3.0  # what decoding a vector costs against multiplying one


def coded_support(
    spec: CodedSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
) -> str | None:
    """None for few rows of floats by constant records, else why there is no template."""
    data = inputs[spec.lhs.slot].dtype
    if element_type(data) is not F32:
        return f"no product of {data} by codes: the template multiplies float32"
    if WEIGHT_SLOT not in constant:
        return "the records are not constant: the template reads packed ones"
    if spec.block % spec.group or spec.group % (WORD_BITS // min(spec.bits, 8)) or not spec.k:
        return f"groups of {spec.group} do not divide the blocks of a sum"
    rows = _product(spec).m
    if isinstance(rows, int) and rows > MOST_ROWS:
        return f"{rows} rows by dequantized numbers are faster than by codes"
    return None


def _product(spec: CodedSpec) -> Product:
    """The product as one of a shared matrix."""
    rhs = Operand(WEIGHT_SLOT, (*(0,) * len(spec.batch), spec.n, 1))
    return from_spec(
        MatmulSpec(
            spec.batch, spec.m, spec.n, spec.k, spec.lhs, rhs, spec.out, spec.acc, spec.block
        )
    )


def coded_tactics(kernel: AnchorKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    """Tactics for a product that `coded_support` takes, best estimate first."""
    spec = kernel.spec
    assert isinstance(spec, CodedSpec)
    p, lanes = _product(spec), choose_lanes(target, F32, spec.n)
    m = p.m if isinstance(p.m, int) else _SHAPES[-1]
    in_place = p.lhs[1] == 1 and kernel.inputs[spec.lhs.slot].dtype is F32
    ranked = []
    for rows in _SHAPES:
        for vectors in _SHAPES:
            fits = rows * vectors + (2 + spec.own) * vectors + rows + 3 <= target.registers
            if fits and rows <= max(1, m) and (vectors == 1 or (vectors - 1) * lanes < spec.n):
                tiles = [rows] * (m // rows) + [m % rows] * (m % rows > 0)
                # each sum waits for the last: a few of them keep the processor busy
                cost = sum(max(_DECODE + r, 8 / vectors) for r in tiles)
                ranked.append((cost, -vectors, rows))
    found = []
    for _, vectors, rows in sorted(ranked)[: effort.tactics]:
        block = max(1, target.l2_bytes // 2 // (4 * spec.k * rows))
        block = min(block, -(-m // rows))
        values: tuple[tuple[str, int | str], ...] = (
            ("rows", rows),
            ("vectors", -vectors),
            ("lanes", lanes),
            ("a", "direct" if in_place else "copy"),
            ("block", block),
        )
        found.append(Tactic(TEMPLATE, values))
    return tuple(found)


def compile_coded(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for one product; `tactic` is one of `coded_tactics`."""
    spec = kernel.spec
    assert isinstance(spec, CodedSpec)
    p, copied = _product(spec), tactic["a"] == "copy"
    rows, vectors, lanes, block = (int(tactic[k]) for k in ("rows", "vectors", "lanes", "block"))
    shape, scratch = TileShape(rows, vectors, lanes), Scratch(F32.itemsize)
    if copied:
        scratch.take(CopiedRows.pitch(p.k) * rows * block)
    count = len(kernel.inputs) + 1
    fn = KernelFunction(TEMPLATE, target, count + (scratch.used != 0))
    left = Stored(fn, kernel.inputs[spec.lhs.slot].dtype)
    base = left.buffer(spec.lhs.slot)
    lines: Rows = StridedRows(fn, shape, base, p.lhs[0], p.k)
    if copied:
        space = scratch_base(fn, count, scratch.used)
        lines = CopiedRows(fn, shape, left, base, p.lhs[0], p.lhs[1], p.k, space)
    panels = CodedPanels(fn, shape, spec, fn.buffer(WEIGHT_SLOT, I8))
    epilogue = Epilogue(fn, kernel)
    sink = TileSink(fn, shape, epilogue, p.out[0], p.out[1])

    def bind(batch: ir.Value) -> None:
        b = fn.builder
        lhs, out, rest = fn.dim(p.lhs_offset), fn.dim(p.out_offset), batch
        for axis in reversed(p.batch):
            size = fn.dim(axis.size)
            index, rest = b.srem(rest, size), b.sdiv(rest, size)
            lhs = b.add(lhs, b.mul(index, fn.dim(axis.lhs)))
            out = b.add(out, b.mul(index, fn.dim(axis.out)))
        lines.base = left.buffer(spec.lhs.slot, lhs)
        output = fn.buffer(len(kernel.inputs), epilogue.stored)
        sink.base = fn.at(output, out, epilogue.stored)
        sink.row_flat = b.mul(batch, fn.dim(p.m))

    loops = TileLoops(
        fn, shape, Blocking(block, 1, "rows"), spec.block, p.m, p.n, lines, panels, sink, bind,
        small=1, inner=CodedTile(fn, shape, spec).accumulate,
    )  # fmt: skip
    loops.run(p.batches)
    values = (("columns", shape.columns), ("k", spec.k), ("bits", spec.bits),
              ("group", spec.group), ("own", int(spec.own)))  # fmt: skip
    code, params = fn.finish(speed=0)
    launch = HostLaunch(True, scratch.used)
    packing = Packing(PANELS, U8, values)
    return CompiledKernel(elf(TEMPLATE, target, code), params, launch, ((WEIGHT_SLOT, packing),))


def coded_panels(array: NDArray[np.uint8], p: dict[str, int]) -> NDArray[np.uint8]:
    """Records [n, groups, record] as panels: codes, scales and zero points of `columns` columns."""
    columns, own = p["columns"], p["own"]
    n, groups, size = array.shape
    count = -(-n // columns)
    whole = np.zeros((count * columns, groups, size), np.uint8)
    whole[:n] = array
    if p["bits"] == 8:  # bytes are read as signed ones
        whole[:, :, SCALE_BYTES:] ^= 0x80
    # bytes of a column that stay together: a scale, a zero point, a word of codes or a byte
    word = 1 if p["bits"] == 8 else WORD_BITS // 8
    split = (SCALE_BYTES, SCALE_BYTES + own)
    parts = []
    for part, width in zip(np.split(whole, split, 2), (SCALE_BYTES, 1, word), strict=True):
        cut = part.reshape(count, columns, groups, part.shape[2] // width, width)
        parts.append(cut.transpose(0, 2, 3, 1, 4).reshape(count, groups, -1))
    scales, zeros, codes = parts
    return np.concatenate((codes, scales, zeros), -1).reshape(-1)
