"""Products and convolutions as rows by panels of 16 columns: what tiles need to know of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Union

from llvmlite import ir

from braze.codegen.cpu.amx.shifted import Planes, ShiftedRows, planes_of
from braze.codegen.cpu.amx.tactics import SHIFT, Unit, chunk_of, unit_of, words
from braze.codegen.cpu.conv.lift import planar
from braze.codegen.cpu.conv.patches import PatchRows
from braze.codegen.cpu.conv.template import WEIGHT_SLOT, Sizes, is_plain
from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.product.dot import WORDS
from braze.codegen.cpu.product.panels import Source
from braze.codegen.cpu.product.register_tile import TileShape
from braze.codegen.cpu.product.rows import CopiedRows, Spacing, StridedRows
from braze.codegen.cpu.product.spec import Product, from_spec
from braze.codegen.cpu.product.store import TileSink
from braze.codegen.cpu.product.stored import Stored
from braze.codegen.cpu.product.template import is_packed, offsets, packing
from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import Dim, product
from braze.core.dtypes import DType
from braze.fusion.kernel import AnchorKernel, Packing
from braze.ops.lowering import ConvSpec, MatmulSpec

Lines = Union[StridedRows, CopiedRows, PatchRows, ShiftedRows]


@dataclass(frozen=True, slots=True)
class Matrix:
    """One of the products that a kernel is: its sizes, and the types and slots of its operands."""

    m: Dim
    n: int
    k: int
    types: tuple[DType, DType]
    left: int
    right: int
    unit: Unit

    @property
    def words(self) -> int:
        """Words of a row."""
        return words(self.k, self.types[1])

    @property
    def chunk(self) -> int:
        """Words of a step of k."""
        return chunk_of(self.words)

    @property
    def in_steps(self) -> bool:
        """Whether rows are a whole number of steps, so that they can be read in place."""
        return self.k % WORDS[self.types[1]] == 0 and self.words % self.chunk == 0


class Form(Protocol):
    """A kernel as `batches` products of `matrix`.

    modes: the ways to read rows; out: elements between rows and between columns of the output.
    """

    @property
    def matrix(self) -> Matrix: ...

    @property
    def batches(self) -> Dim: ...

    @property
    def modes(self) -> tuple[str, ...]: ...

    @property
    def out(self) -> tuple[Dim, Dim]: ...

    @property
    def planes(self) -> Planes | None:
        """Where rows are read from planes: which."""

    def rows(
        self, stored: Stored, shape: TileShape, mode: str, spacing: Spacing | None, capacity: int,
        copies: ir.Value | None,
    ) -> Lines:  # fmt: skip
        """How `mode` reads rows, `capacity` of them at a time; their base is bound later."""

    def bind(
        self, batch: ir.Value, stored: Stored, lines: Lines, source: Source, sink: TileSink
    ) -> None:
        """Everything to product `batch`."""

    def packing(self, shape: TileShape) -> Packing:
        """How the right operand is packed."""


@dataclass(frozen=True, slots=True)
class ProductForm:
    """A matrix product with a constant right operand."""

    matrix: Matrix
    product: Product
    output: int
    planes: None = None

    @property
    def batches(self) -> Dim:
        return self.product.batches

    @property
    def modes(self) -> tuple[str, ...]:
        in_place = self.matrix.in_steps and self.product.lhs[1] == 1
        return ("direct", "copy") if in_place else ("copy",)

    @property
    def out(self) -> tuple[Dim, Dim]:
        return self.product.out

    def rows(
        self, stored: Stored, shape: TileShape, mode: str, spacing: Spacing | None, capacity: int,
        copies: ir.Value | None,
    ) -> Lines:  # fmt: skip
        """See Form."""
        fn, base, k = stored.fn, stored.buffer(self.matrix.left), self.matrix.k
        row, step = self.product.lhs
        if mode == "direct":
            return StridedRows(fn, shape, base, row, k)
        return CopiedRows(fn, shape, stored, base, row, step, k, copies, spacing=spacing)

    def bind(
        self, batch: ir.Value, stored: Stored, lines: Lines, source: Source, sink: TileSink
    ) -> None:
        """See Form."""
        fn, element = sink.fn, sink.epilogue.stored
        left, right, out = offsets(fn, self.product, batch, sink.shape, True)
        lines.base = stored.buffer(self.matrix.left, left)
        source.base = source.stored.buffer(self.matrix.right, right)
        sink.base = fn.at(fn.buffer(self.output, element), out, element)
        sink.row_flat = fn.builder.mul(batch, fn.dim(self.product.m))

    def packing(self, shape: TileShape) -> Packing:
        """See Form."""
        return packing(self.product, shape)


@dataclass(frozen=True, slots=True)
class ConvForm:
    """A convolution with a constant weight: a product for each group of channels."""

    matrix: Matrix
    spec: ConvSpec
    output: int
    planes: None = None

    @property
    def batches(self) -> Dim:
        return self.spec.groups

    @property
    def modes(self) -> tuple[str, ...]:
        if not is_plain(self.spec):
            return ("patch",)
        return ("direct",) if self.matrix.in_steps else ("copy",)

    @property
    def out(self) -> tuple[Dim, Dim]:
        return self.spec.out_channels, 1

    def rows(
        self, stored: Stored, shape: TileShape, mode: str, spacing: Spacing | None, capacity: int,
        copies: ir.Value | None,
    ) -> Lines:  # fmt: skip
        """See Form."""
        fn, base, k = stored.fn, stored.buffer(self.matrix.left), self.matrix.k
        row = self.spec.in_channels
        if mode == "patch":
            return PatchRows(fn, shape, stored, planar(self.spec), base, copies, spacing=spacing)
        if mode == "direct":
            return StridedRows(fn, shape, base, row, k)
        return CopiedRows(fn, shape, stored, base, row, 1, k, copies, spacing=spacing)

    def bind(
        self, batch: ir.Value, stored: Stored, lines: Lines, source: Source, sink: TileSink
    ) -> None:
        """See Form."""
        fn, b, element, shape = sink.fn, sink.fn.builder, sink.epilogue.stored, sink.shape
        n, steps = self.matrix.n, shape.steps(self.matrix.k)
        channels = i64(self.spec.in_channels // self.spec.groups)
        lines.base = stored.buffer(self.matrix.left, b.mul(batch, channels))
        packed = fn.dim(-(-n // shape.columns) * shape.columns * shape.depth * steps)
        source.base = source.stored.buffer(self.matrix.right, b.mul(batch, packed))
        sink.column_first = b.mul(batch, i64(n))
        sink.base = fn.at(fn.buffer(self.output, element), sink.column_first, element)

    def packing(self, shape: TileShape) -> Packing:
        """See Form."""
        return _conv_panels(self.spec, self.matrix, shape)


@dataclass(frozen=True, slots=True)
class ShiftedForm:
    """A convolution with a constant weight: a product for each image, of rows in `planes`."""

    matrix: Matrix
    spec: ConvSpec
    output: int
    planes: Planes

    @property
    def batches(self) -> Dim:
        return self.spec.batch

    @property
    def modes(self) -> tuple[str, ...]:
        return (SHIFT,)

    @property
    def out(self) -> tuple[Dim, Dim]:
        return self.spec.out_channels, 1

    def rows(
        self, stored: Stored, shape: TileShape, mode: str, spacing: Spacing | None, capacity: int,
        copies: ir.Value | None,
    ) -> Lines:  # fmt: skip
        """See Form."""
        assert copies is not None
        base = stored.buffer(self.matrix.left)
        return ShiftedRows(stored.fn, shape, stored, self.planes, base, copies, capacity)

    def bind(
        self, batch: ir.Value, stored: Stored, lines: Lines, source: Source, sink: TileSink
    ) -> None:
        """See Form."""
        fn, b, element, spec = sink.fn, sink.fn.builder, sink.epilogue.stored, self.spec
        image = fn.dim(product(spec.in_spatial) * spec.in_channels)
        lines.base = stored.buffer(self.matrix.left, b.mul(batch, image))
        sink.row_flat = b.mul(batch, fn.dim(product(spec.out_spatial)))
        out = b.mul(sink.row_flat, i64(spec.out_channels))
        sink.base = fn.at(fn.buffer(self.output, element), out, element)

    def packing(self, shape: TileShape) -> Packing:
        """See Form."""
        return _conv_panels(self.spec, self.matrix, shape)


def _conv_panels(spec: ConvSpec, matrix: Matrix, shape: TileShape) -> Packing:
    """How the weight of a convolution is packed."""
    steps = shape.steps(matrix.k)
    assert isinstance(steps, int)
    values = (
        ("columns", shape.columns), ("groups", spec.groups), ("word", shape.depth),
        ("steps", steps),
    )  # fmt: skip
    return Packing("conv_panels", shape.dtype, values)


def form_of(kernel: AnchorKernel, target: CpuTarget) -> Form | None:
    """How `kernel` is computed in tiles; None where it is not."""
    spec, output = kernel.spec, len(kernel.inputs)
    if isinstance(spec, ConvSpec) and WEIGHT_SLOT in kernel.constant and spec.data is None:
        sizes = Sizes.of(spec)
        found = _matrix(kernel, target, sizes.all, (0, WEIGHT_SLOT))
        if found is None:
            return None
        flat = planar(spec)
        planes = None if is_plain(spec) else planes_of(flat, found.types[1].itemsize)
        if planes is None:
            return ConvForm(found, spec, output)
        return ShiftedForm(replace(found, m=planes.rows), flat, output, planes)
    if isinstance(spec, MatmulSpec) and is_packed(spec, kernel.constant):
        p, slots = from_spec(spec), (spec.lhs.slot, spec.rhs.slot)
        found = _matrix(kernel, target, (p.m, p.n, p.k), slots)
        return None if found is None else ProductForm(found, p, output)
    return None


def _matrix(
    kernel: AnchorKernel, target: CpuTarget, sizes: tuple[Dim, Dim, Dim], slots: tuple[int, int]
) -> Matrix | None:
    """The matrices of a kernel, if a unit of the target multiplies them."""
    m, n, k = sizes
    left, right = (kernel.inputs[slot].dtype for slot in slots)
    if not isinstance(n, int) or not isinstance(k, int):
        return None
    unit = unit_of(target, (left, right), n, k)
    return None if unit is None else Matrix(m, n, k, (left, right), *slots, unit)


def spacing_of(matrix: Matrix, shape: TileShape, line_bytes: int) -> Spacing:
    """How copied rows lie: whole steps, from cache line to cache line, off each other's sets."""
    steps = shape.steps(matrix.k)
    assert isinstance(steps, int)
    held, line = steps * shape.depth, line_bytes // shape.dtype.itemsize
    zeros = shape.chunk * shape.depth if held != matrix.k else 0
    return Spacing(held, -(-held // line) * line + line, zeros)


def copied(fn: KernelFunction, shape: TileShape, line_bytes: int) -> tuple[Stored, TileShape]:
    """The left operand, and the shape by which its elements are copied, a cache line at once."""
    single = shape.single
    lanes = line_bytes // single.itemsize
    return Stored(fn, single.dtype), TileShape(1, 1, lanes, single.dtype, shape.acc)
