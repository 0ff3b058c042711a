"""Which tiles and weights Winograd's algorithm does not suit: numbers far apart in one patch.

The transforms add and subtract within a whole patch. An infinity or NaN therefore reaches outputs
whose own window does not hold it, and the error of an output is relative to the patch, where that
of the direct sum is relative to its window: both in the norm of their numbers, as errors add up
like random ones. So a patch is *spread* when its norm is more than `RATIO` times that of a window
in it, and its outputs are then summed directly. A patch of even numbers has twice the norm of its
windows, so that an error is at most RATIO / 2 times the usual one; in networks that classify and
find text, fed with noise, text and black images, no patch came near RATIO.

A window of zeros has no scale of its own: there the norm of the patch may be up to `ALONE`, or
maps that are mostly zero would leave the fast path at every border. Past `limit` the transforms
could overflow.

The same goes for the weights of an output channel, tap by tap: an input that is zero, or huge,
under some taps must not meet errors of the others. Where all weights of a tap are zero, what lies
under it counts for nothing, so that the norm of a patch may again be up to `ALONE` and no more.

What is decided depends on the numbers of the patch and of the weights alone, never on the tiles
around. Both are marked, patches with 2 (spread), 1 (a norm beyond `ALONE`) or 0, weights with 2
(spread), 1 (taps of zeros) or 0; where both come to `DIRECT` in sum, outputs are summed directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from braze.codegen.cpu.llvm.function import POINTER, KernelFunction, i64
from braze.codegen.cpu.llvm.vector import F64
from braze.codegen.cpu.product.dot import multiply_add
from braze.codegen.cpu.product.register_tile import TileShape, add, part, splat, vector_type, zero
from braze.codegen.cpu.product.stored import Stored
from braze.core.dtypes import DType

RATIO: Final = 2.0**4
WEIGHT_RATIO: Final = 2.0**8
ALONE: Final = 2.0**10
DIRECT: Final = 2.0
_CHAIN = 5  # squares that are added one after another: longer chains would be waited for
Channels = Callable[[], Iterator[tuple[TileShape, ir.Value]]]


def limit(dtype: DType) -> float:
    """The largest norm of a patch, and of a channel's weights, with which nothing overflows.

    A norm below 2**55 (2**500 in float64) on either side: products of points are below the product
    of both norms times 2**15, which is what the matrices of F(4, 3) make of it.
    """
    return 2.0 ** (55 if dtype.itemsize <= 4 else 500)


def weight_marks(weight: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """The mark of each output channel of [K, C, 3, 3]."""
    with np.errstate(all="ignore"):
        taps = np.square(weight.astype(np.float64)).sum(1).reshape(weight.shape[0], -1)
        whole = taps.sum(1)
        reach = np.where(taps == 0, ALONE**2, WEIGHT_RATIO**2 * taps)
        suits = whole <= np.minimum(reach.min(1), limit(dtype) ** 2)
    gaps = (taps == 0).any(1) & (whole != 0)
    return np.where(suits, np.where(gaps, 1.0, 0.0), DIRECT).astype(weight.dtype)


class Spread:
    """Emits the decision on a patch: a few sums of squares beside its transform, and a closer look
    at the few patches that these do not clear."""

    def __init__(self, fn: KernelFunction, shape: TileShape, size: int) -> None:
        self.fn, self.shape, self.size, self.patch = fn, shape, size, size + 2
        self.limit = limit(shape.dtype) ** 2
        # every window holds all 4 pixels of one of these squares: it has no less than their energy
        self.cells = [(1 + i, 1 + j) for i in range(0, size, 2) for j in range(0, size, 2)]
        inner = {pixel for cell in self.cells for pixel in _square(cell)}
        every = [(i, j) for i in range(self.patch) for j in range(self.patch)]
        self.parts = [*map(_square, self.cells), [p for p in every if p not in inner]]
        self.sums = fn.alloca(shape.element, len(self.parts) * shape.lanes)
        self.energies = fn.alloca(F64, self.patch * self.patch)
        self.wide = fn.alloca(F64, shape.lanes)

    def begin(self) -> None:
        """Before the first channels of a patch."""
        for k in range(len(self.parts)):
            self.fn.store(zero(self.shape.vector), self._sum(k))

    def _sum(self, k: int) -> ir.Value:
        return self.fn.at(self.sums, k * self.shape.lanes, self.shape.element)

    def see(self, lines: Sequence[Sequence[ir.Value]], shape: TileShape) -> None:
        """Some channels of all pixels of the patch."""
        fn = self.fn
        for k, pixels in enumerate(self.parts):
            values = [lines[i][j] for i, j in pixels]
            total = fn.load(self._sum(k), shape.vector)
            for start in range(0, len(values), _CHAIN):
                first, *rest = values[start : start + _CHAIN]
                energy = fn.builder.fmul(first, first)
                for value in rest:
                    energy = multiply_add(fn, value, value, energy)
                total = add(fn, total, energy)
            fn.store(total, self._sum(k))

    def loudness(self, rows: ir.Value, columns: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The mark of a patch if it is not spread, and whether that needs a closer look; after its
        last channels.

        rows, columns: how many of the tile's outputs exist; others need no energy in their windows.
        """
        fn, b, kind = self.fn, self.fn.builder, self.shape.element
        sums = [fn.load(self._sum(k), self.shape.vector) for k in range(len(self.parts))]
        *cells, total = (_across(fn, value) for value in sums)
        for value in cells:
            total = b.fadd(total, value)
        least = cells[0]
        for (i, j), energy in zip(self.cells[1:], cells[1:], strict=True):
            needed = b.and_(
                b.icmp_signed(">", rows, i64(i - 1)), b.icmp_signed(">", columns, i64(j - 1))
            )
            least = self._smaller(least, b.select(needed, energy, least))
        most = b.fmul(least, splat(kind, RATIO * RATIO))
        most = self._smaller(most, splat(kind, self.limit))
        loud = b.fcmp_ordered(">", total, splat(kind, ALONE * ALONE))
        mark = b.select(loud, splat(kind, 1.0), splat(kind, 0.0))
        return mark, b.not_(b.fcmp_ordered("<=", total, most))

    def _smaller(self, x: ir.Value, y: ir.Value) -> ir.Value:
        b = self.fn.builder
        return b.select(b.fcmp_ordered("<", x, y), x, y)

    def found(
        self,
        stored: Stored,
        pointers: ir.Value,
        channels: Channels,
        rows: ir.Value,
        columns: ir.Value,
    ) -> ir.Value:
        """Whether the patch is spread, from its pixels (in float64: no square overflows)."""
        fn, b, patch = self.fn, self.fn.builder, self.patch
        with fn.carry_loop(0, patch * patch, 1, [zero(F64)]) as it:
            source = b.load(fn.at(pointers, it.index, POINTER), typ=POINTER, align=8)
            energy = self._energy(stored, source, channels)
            fn.store(energy, fn.at(self.energies, it.index, F64))
            it.next = [b.fadd(it.values[0], energy)]
        (total,) = it.results
        most = splat(F64, self.limit)
        with fn.carry_loop(0, rows, 1, [most]) as line:
            with fn.carry_loop(0, columns, 1, line.values) as at:
                first = b.add(b.mul(line.index, i64(patch)), at.index)
                energy = zero(F64)
                for k in (i * patch + j for i in range(3) for j in range(3)):
                    where = fn.at(self.energies, b.add(first, i64(k)), F64)
                    energy = b.fadd(energy, fn.load(where, F64))
                reach = b.select(
                    b.fcmp_ordered("==", energy, zero(F64)),
                    splat(F64, ALONE * ALONE),
                    b.fmul(energy, splat(F64, RATIO * RATIO)),
                )
                at.next = [self._smaller(reach, at.values[0])]
            line.next = at.results
        return b.not_(b.fcmp_ordered("<=", total, line.results[0]))

    def _energy(self, stored: Stored, source: ir.Value, channels: Channels) -> ir.Value:
        """The sum of the squares of one pixel."""
        fn, lanes = self.fn, self.shape.lanes
        fn.store(zero(vector_type(F64, lanes)), self.wide)
        for shape, channel in channels():
            kind = vector_type(F64, shape.lanes)
            value = stored.load(stored.at(source, channel), shape.lanes)
            if value.type != kind:
                value = fn.builder.fpext(value, kind)
            total = fn.load(self.wide, kind)
            fn.store(multiply_add(fn, value, value, total), self.wide)
        return _across(fn, fn.load(self.wide, vector_type(F64, lanes)))


def _square(corner: tuple[int, int]) -> list[tuple[int, int]]:
    return [(corner[0] + i, corner[1] + j) for i in range(2) for j in range(2)]


def _across(fn: KernelFunction, vector: ir.Value) -> ir.Value:
    """The sum of a vector's elements, halves added to halves."""
    while isinstance(vector.type, ir.VectorType):
        half = vector.type.count // 2
        vector = add(fn, part(fn, vector, 0, half), part(fn, vector, half, half))
    return vector
