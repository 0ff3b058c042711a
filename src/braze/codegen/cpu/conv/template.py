"""Convolutions, channels last: tactics and code (implicit GEMM, 1x1 as a plain product)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from braze.codegen.cpu.conv.lift import planar
from braze.codegen.cpu.conv.patches import LineRows, PatchRows, is_joined, run_length
from braze.codegen.cpu.conv.taps import PixelRows
from braze.codegen.cpu.conv.winograd.tactics import (
    suits_winograd,
    tile_size,
    winograd_tactics,
)
from braze.codegen.cpu.llvm.function import KernelFunction, i64
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
from braze.codegen.cpu.product.panels import PackedPanels, Source
from braze.codegen.cpu.product.register_tile import TileShape
from braze.codegen.cpu.product.rows import CopiedRows, Rows, StridedRows, WordRows
from braze.codegen.cpu.product.scratch import Scratch, scratch_base
from braze.codegen.cpu.product.store import TileSink
from braze.codegen.cpu.product.stored import Stored
from braze.codegen.cpu.product.tactics import orders, tile_choices
from braze.codegen.cpu.target import CpuTarget, with_extras
from braze.core.config import Effort
from braze.core.dims import Dim, product
from braze.core.dtypes import DType
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Packing, Tactic
from braze.ops.lowering import ConvSpec

TEMPLATE = "conv"
WEIGHT_SLOT = 1
_PATCH_CHANNELS = 16  # below this many channels a tap is too short for the register tile's loop


@dataclass(frozen=True, slots=True)
class Sizes:
    """A convolution as a product per group: m pixels, n output channels, k taps * channels."""

    m: Dim
    n: int
    k: int

    @property
    def all(self) -> tuple[Dim, Dim, Dim]:
        """(m, n, k)."""
        return self.m, self.n, self.k

    @staticmethod
    def of(spec: ConvSpec) -> Sizes:
        """The product that `spec` is, per group."""
        taps = math.prod(spec.kernel)
        return Sizes(
            product((spec.batch, *spec.out_spatial)),
            spec.out_channels // spec.groups,
            taps * (spec.in_channels // spec.groups),
        )


def is_plain(spec: ConvSpec) -> bool:
    """Whether output pixel i reads input pixel i alone: a product with no window."""
    ones = all(k == 1 for k in spec.kernel) and all(s == 1 for s in spec.strides)
    return ones and not any(spec.pads)


def conv_support(
    spec: ConvSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
) -> str | None:
    """None for a convolution of floats (or of bytes) with a constant weight, else why there is no
    template."""
    types = [t.dtype for t in inputs[:2]]
    refusal = dot_refusal(types, spec.acc) or (_bytes_refusal(spec) if is_bytes(types) else None)
    if refusal is not None:
        return refusal
    if WEIGHT_SLOT not in constant:
        return "the weight is not constant: templates read packed weights"
    if spec.data is not None:
        return "the data is a slice: templates read whole pixels, side by side"
    if len(spec.kernel) > 2 and spec.groups == spec.in_channels:
        return f"no depthwise convolution over {len(spec.kernel)} axes"
    if 0 in (spec.in_channels, spec.out_channels, *spec.kernel):
        return "a weight without elements: templates read at least one"
    return None


def _bytes_refusal(spec: ConvSpec) -> str | None:
    """Why bytes have no template that takes them as floats: it multiplies words of four."""
    return "no depthwise convolution of bytes" if spec.groups == spec.in_channels else None


def _whole_words(spec: ConvSpec, word: int) -> bool:
    """Whether the channels of a group are a whole number of words."""
    return spec.in_channels // spec.groups % word == 0


def conv_tactics(kernel: AnchorKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    """Tactics for a convolution that `conv_support` takes, best estimate first."""
    spec = planar(kernel.spec)
    sizes, types, acc = Sizes.of(spec), [t.dtype for t in kernel.inputs[:2]], spec.acc
    extras = word_extras(target, types, sizes.k)
    # tiles of 2 x 2 outputs save about as much as pairs do, and have to be transformed
    pays = not extras or (suits_winograd(spec) and tile_size(spec) > 2)
    if effort.transforms and acc.is_float and suits_winograd(spec) and pays:
        return winograd_tactics(kernel, target, effort)
    found: dict[Tactic, None] = {}
    word = WORDS[types[1]] if extras or is_bytes(types) else 1
    m, n, k = sizes.all
    cuts = (m, n, -(-k // word))
    step = spec.in_channels * spec.strides[-1]
    tiles = tile_choices(target, acc, sizes.m, sizes.n, step, effort.estimate)[:6]
    per_tile = [tuple(orders(target, acc.itemsize, cuts, tile)) for tile in tiles]
    for choice in range(2):
        for tile, found_orders in zip(tiles, per_tile, strict=True):
            order, block, group = found_orders[choice]
            for a in _row_modes(spec, types[0], word):
                values: tuple[tuple[str, int | str], ...] = (
                    ("rows", tile.rows),
                    ("vectors", tile.vectors),
                    ("lanes", tile.lanes),
                    ("a", a),
                    ("order", order),
                    ("block", block),
                    ("group", group),
                    *(("with", extra) for extra in extras),
                )
                found[Tactic(TEMPLATE, values)] = None
    return tuple(found)[: effort.tactics]


def _row_modes(spec: ConvSpec, stored: DType, word: int) -> tuple[str, ...]:
    if word == 1 and element_type(stored) is not stored:
        return ("copy",) if is_plain(spec) else ("patch",)
    if not _whole_words(spec, word):
        return ("copy",) if is_plain(spec) else ("patch",)
    if is_plain(spec):
        return ("direct",)
    if len(spec.kernel) > 2:
        return ("pixel",)
    if spec.in_channels // spec.groups < _PATCH_CHANNELS:
        if is_joined(spec) and word == 1:
            return ("line", "patch")
        return ("patch", "pixel")
    return ("pixel",)


def compile_conv(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for one convolution; `tactic` is one of `conv_tactics`."""
    spec = planar(kernel.spec)
    sizes = Sizes.of(spec)
    rows, vectors, lanes = (int(tactic[key]) for key in ("rows", "vectors", "lanes"))
    types, target = [t.dtype for t in kernel.inputs[:2]], with_extras(target, tactic)
    words = bool(word_extras(target, types, sizes.k))
    shape = TileShape(rows, vectors, lanes, multiplied(types[1], words), spec.acc)
    blocking = Blocking(int(tactic["block"]), int(tactic["group"]), str(tactic["order"]))
    capacity = rows * blocking.block_tiles
    scratch = Scratch(shape.itemsize)
    regions = _regions(spec, shape, tactic["a"], capacity, scratch)
    count = len(kernel.inputs) + 1
    fn = KernelFunction(TEMPLATE, target, count + (scratch.used != 0))
    base = scratch_base(fn, count, scratch.used) if scratch.used != 0 else None
    spaces = [fn.at(base, fn.dim(at), ir.IntType(8)) for at in regions]
    pixels = Stored(fn, types[0] if shape.depth == 1 else shape.single.dtype)
    weights = Stored(fn, shape.dtype)
    row_source = _rows(pixels, shape.single, spec, tactic["a"], capacity, spaces)
    if shape.single is not shape:
        row_source = WordRows(row_source, shape.depth)
    steps = shape.steps(sizes.k)
    assert isinstance(steps, int)
    panel_source = Source(weights, weights.buffer(WEIGHT_SLOT), shape.columns, 1, steps, sizes.n)
    panels = PackedPanels(fn, shape, panel_source)
    epilogue = Epilogue(fn, kernel)
    sink = TileSink(fn, shape, epilogue, spec.out_channels, 1)
    width = shape.columns * (shape.itemsize // shape.dtype.itemsize)
    packed = -(-sizes.n // shape.columns) * width * steps

    def bind(group: ir.Value) -> None:
        b = fn.builder
        row_source.base = pixels.buffer(0, b.mul(group, i64(spec.in_channels // spec.groups)))
        panel_source.base = weights.buffer(WEIGHT_SLOT, b.mul(group, i64(packed)))
        sink.column_first = b.mul(group, i64(sizes.n))
        output = fn.buffer(len(kernel.inputs), epilogue.stored)
        sink.base = fn.at(output, sink.column_first, epilogue.stored)

    m, n = sizes.m, sizes.n
    block = spec.block // shape.depth if shape.acc.is_float else UNBOUNDED
    loops = TileLoops(fn, shape, blocking, block, m, n, row_source, panels, sink, bind)
    loops.run(spec.groups)
    code, params = fn.finish(speed=0)
    values = (("columns", shape.columns), ("groups", spec.groups))
    together = (("word", shape.depth),) if shape.depth > 1 else ()
    packing = Packing("conv_panels", shape.dtype, (*values, *together))
    launch = HostLaunch(True, scratch.used)
    return CompiledKernel(elf(TEMPLATE, target, code), params, launch, ((WEIGHT_SLOT, packing),))


def _regions(
    spec: ConvSpec, shape: TileShape, mode: int | str, capacity: int, scratch: Scratch
) -> list[Dim]:
    """Byte offsets of what a way of reading rows keeps in scratch."""
    pointer = 8 // scratch.itemsize  # elements
    if mode == "pixel":
        return [scratch.take(pointer * capacity * math.prod(spec.kernel))]
    if mode == "line":
        lines = capacity * spec.kernel[0]
        return [scratch.take(pointer * lines), scratch.take(lines * run_length(spec))]
    if mode == "patch":
        return [scratch.take(capacity * shape.steps(PatchRows.pitch(spec)))]
    if mode == "copy":
        pitch = CopiedRows.pitch(spec.in_channels // spec.groups)
        return [scratch.take(capacity * shape.steps(pitch))]
    return []


def _rows(
    stored: Stored,
    shape: TileShape,
    spec: ConvSpec,
    mode: int | str,
    capacity: int,
    spaces: list[ir.Value],
) -> Rows:
    """How the tactic reads the input; the base is bound per group."""
    fn, source, depth = stored.fn, stored.buffer(0), spec.in_channels // spec.groups
    if mode == "direct":
        return StridedRows(fn, shape, source, spec.in_channels, depth)
    if mode == "copy":
        return CopiedRows(fn, shape, stored, source, spec.in_channels, 1, depth, spaces[0])
    if mode == "patch":
        return PatchRows(fn, shape, stored, spec, source, spaces[0])
    if mode == "line":
        return LineRows(fn, shape, spec, source, spaces[0], spaces[1], capacity)
    zeros = fn.filled(depth * shape.itemsize, spec.fill) if any(spec.pads) else None
    return PixelRows(fn, shape, spec, source, spaces[0], capacity, zeros)
