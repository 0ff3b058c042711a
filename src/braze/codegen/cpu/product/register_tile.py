"""The register tile: the one inner loop under GEMM, convolution and attention.

A tile is `rows` rows times `vectors` vectors of outputs held in registers. Each step of k loads
`vectors` vectors of B, broadcasts one element of A per row straight from memory and multiplies
them into the accumulators. Every output is one accumulator that takes its products in ascending
k, so the bits of a result depend neither on the tile shape nor on what else is in the tile. Sums
over long k are several tiles, added up by the loops around (see blocks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from llvmlite import ir

from braze.codegen.cpu.llvm.access import from_memory, memory_type
from braze.codegen.cpu.llvm.function import I32, KernelFunction, storage_type
from braze.codegen.cpu.llvm.vector import Lanes
from braze.codegen.cpu.product.dot import WORDS, Key, dot
from braze.core.dims import Dim, ceildiv
from braze.core.dtypes import BF16, F32, I8, U8, U16, DType

Tile = list[list[ir.Value]]  # [row][vector]
_SINGLE = {I8: U8, BF16: U16}  # parts of words as they are copied


@dataclass(frozen=True, slots=True)
class TileShape:
    """`rows` x (`vectors` vectors of `lanes`) sums of type `acc`, of products of `dtype`.

    Bytes of the right operand (int8) are multiplied by unsigned ones of the left, and an element of
    the tile is a word of four of them that follow each other in k, or of two in bfloat16. held: the
    half type that panels of the right operand hold, where it is converted as it is loaded (None:
    they hold `dtype`). chunk: elements along k that are multiplied at once, of which a panel holds
    a whole number (zeros behind the last).
    """

    rows: int
    vectors: int
    lanes: int
    dtype: DType = F32
    acc: DType = F32
    held: DType | None = None
    chunk: int = 1

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def types(self) -> Key:
        """Elements of the left operand and of the right one, and sums."""
        return (U8 if self.dtype is I8 else self.dtype), self.dtype, self.acc

    @property
    def element(self) -> ir.Type:
        """LLVM type of one element that is multiplied."""
        return I32 if self.dtype in WORDS else storage_type(self.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of one element that is multiplied."""
        return self.dtype.itemsize * self.depth

    @property
    def depth(self) -> int:
        """Neighbours in k that an element holds."""
        return WORDS.get(self.dtype, 1)

    @property
    def panel_element(self) -> ir.Type:
        """LLVM type of one element of a panel."""
        return self.element if self.held is None else memory_type(self.held)

    @property
    def panel_bytes(self) -> int:
        """Bytes of one element of a panel."""
        return self.itemsize if self.held is None else self.held.itemsize

    def from_panel(self, fn: KernelFunction, pointer: ir.Value) -> ir.Value:
        """A vector of a panel's elements as they are multiplied."""
        raw = fn.load(pointer, vector_type(self.panel_element, self.lanes))
        return raw if self.held is None else from_memory(Lanes(fn, self.lanes), raw, self.held)

    @property
    def single(self) -> TileShape:
        """The same where elements of a row are copied or counted one by one."""
        return replace(self, dtype=_SINGLE[self.dtype]) if self.dtype in WORDS else self

    def steps(self, k: Dim) -> Dim:
        """Steps of the tile over `k` terms."""
        words = ceildiv(k, self.depth) if self.depth > 1 else k
        return ceildiv(words, self.chunk) * self.chunk if self.chunk > 1 else words

    @property
    def row_align(self) -> int:
        """Bytes that an element of a row is aligned to: rows of words start at any part of one."""
        return self.dtype.itemsize

    @property
    def vector(self) -> ir.Type:
        return vector_type(self.element, self.lanes)

    @property
    def sum(self) -> ir.Type:
        """LLVM type of one sum."""
        return storage_type(self.acc)

    @property
    def sums(self) -> ir.Type:
        return vector_type(self.sum, self.lanes)


@lru_cache(maxsize=64)
def vector_type(element: ir.Type, lanes: int) -> ir.Type:
    """The LLVM type of `lanes` elements: the element itself for one lane."""
    return element if lanes == 1 else ir.VectorType(element, lanes)


def splat(kind: ir.Type, value: float) -> ir.Constant:
    """A constant with `value` in every lane."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def zero(kind: ir.Type) -> ir.Constant:
    """Zero of a scalar or vector type."""
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    return splat(kind, 0 if isinstance(element, ir.IntType) else 0.0)


def add(fn: KernelFunction, x: ir.Value, y: ir.Value) -> ir.Value:
    """The sum of two sums; of integers it wraps."""
    element = x.type.element if isinstance(x.type, ir.VectorType) else x.type
    plus = fn.builder.add if isinstance(element, ir.IntType) else fn.builder.fadd
    return plus(x, y)


def broadcast(fn: KernelFunction, scalar: ir.Value, lanes: int) -> ir.Value:
    """A vector whose lanes all hold `scalar`."""
    if lanes == 1:
        return scalar
    kind = vector_type(scalar.type, lanes)
    undefined = ir.Constant(kind, ir.Undefined)
    first = fn.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
    mask = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    return fn.builder.shuffle_vector(first, undefined, mask)


def part(fn: KernelFunction, vector: ir.Value, start: int, lanes: int) -> ir.Value:
    """Lanes start .. start+lanes-1 of a vector (a scalar for one lane)."""
    if not isinstance(vector.type, ir.VectorType) or lanes == vector.type.count:
        return vector
    if lanes == 1:
        return fn.builder.extract_element(vector, ir.Constant(I32, start))
    mask = ir.Constant(ir.VectorType(I32, lanes), list(range(start, start + lanes)))
    return fn.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def moved(fn: KernelFunction, pointer: ir.Value, index: ir.Value, element: ir.Type) -> ir.Value:
    """`pointer` moved by `index` elements, perhaps out of its buffer (nothing may be read there).

    A window that starts in the padding has such a first element.
    """
    return fn.builder.gep(pointer, [index], inbounds=False, source_etype=element)


def zero_tile(shape: TileShape, rows: int, vectors: int) -> Tile:
    """Accumulators before the first product."""
    return [[zero(shape.sums)] * vectors for _ in range(rows)]


def accumulate(
    fn: KernelFunction,
    shape: TileShape,
    rows: Sequence[ir.Value],
    panel: ir.Value,
    stride: ir.Value | int,
    depth: ir.Value | int,
    tile: Tile,
    fetch: Callable[[ir.Value], None] | None = None,
) -> Tile:
    """tile[r][v] += sum of rows[r][k] * panel[k * stride + v * lanes ..], k < depth ascending.

    rows: pointers with unit steps along k; panel: pointer with `stride` elements per step of k;
    elements and steps are words where bytes are multiplied.
    fetch(k): what else a step does, for the caches alone.
    """
    count, vectors = len(tile), len(tile[0])
    instruction = dot(fn.target, shape.types)
    steps = fn.dim(depth) if isinstance(depth, int) else depth
    width = fn.dim(stride) if isinstance(stride, int) else stride
    flat = [value for row in tile for value in row]
    with fn.carry_loop(0, steps, 1, flat) as it:
        sums = list(it.values)
        source = fn.at(panel, fn.builder.mul(it.index, width), shape.panel_element)
        columns = [
            shape.from_panel(fn, fn.at(source, v * shape.lanes, shape.panel_element))
            for v in range(vectors)
        ]
        for r in range(count):
            where = fn.at(rows[r], it.index, shape.element)
            scalar = fn.builder.load(where, typ=shape.element, align=shape.row_align)
            a = broadcast(fn, scalar, shape.lanes)
            for v in range(vectors):
                at = r * vectors + v
                sums[at] = instruction.emit(fn, a, columns[v], sums[at])
        if fetch is not None:
            fetch(it.index)
        it.next = sums
    return [it.results[r * vectors : (r + 1) * vectors] for r in range(count)]
