"""A DFT of many points as shorter ones, in n log n operations (Cooley and Tukey, 1965).

Of a * b points: transforms of a points each, a turn of every result, transforms of b points each.
Where the number of points has a large prime factor, a convolution with a chirp takes its place,
which is computed by transforms of a power of two (Bluestein, 1970). Values are complex: [.., n, 2].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Array
from braze.ops.index.gather import Gather
from braze.ops.move.shape import reshape, transpose
from braze.ops.move.slice_pad import Pad, slice_axis
from braze.ops.pointwise.cast import cast_from_float64
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.matmul import MatMul

DIRECT: Final = 128  # points that are transformed by a matrix
Matrix = Callable[[int, bool], Array]  # of n points, complex, [2n, 2n]


def fast_transform(
    g: GraphBuilder, x: Value, size: int, inverse: bool, onesided: bool, matrix: Matrix
) -> Value:
    """The DFT of [.., length, 1 or 2] of `size` points along the second axis from the end.

    A onesided inverse takes the first half of a Hermitian spectrum and gives real values.
    """
    rank, half = len(x.shape), size // 2 + 1
    mirrors = inverse and onesided
    x = _of_length(g, _complex(g, x), half if mirrors else size)
    if mirrors:
        x = _mirrored(g, x, size)
    y = _Fast(g, inverse, matrix).transformed(x, size)
    if inverse:
        y = g.add1(Binary("mul"), y, _constant(g, np.array(1 / size), x))
    if mirrors:
        return slice_axis(g, y, rank - 1, 0, 1)
    return slice_axis(g, y, rank - 2, 0, half) if onesided else y


def _constant(g: GraphBuilder, values: Array, like: Value) -> Value:
    return g.constant(cast_from_float64(values, like.dtype), "dft")


def _complex(g: GraphBuilder, x: Value) -> Value:
    """Real values with imaginary parts of 0."""
    rank = len(x.shape)
    if x.shape[-1] == 2:
        return x
    return g.add1(Pad("constant", (0,) * rank, (0,) * (rank - 1) + (1,), 0.0), x)


def _of_length(g: GraphBuilder, x: Value, size: int) -> Value:
    """The first `size` samples, with zeros behind those that there are."""
    rank, length = len(x.shape), x.shape[-2]
    if length == size:
        return x
    return g.add1(Pad("constant", (0,) * rank, (*(0,) * (rank - 2), size - length, 0), 0.0), x)


def _mirrored(g: GraphBuilder, x: Value, size: int) -> Value:
    """The whole of a Hermitian spectrum of which the first half is given."""
    bins = np.arange(size)
    upper = 2 * bins > size
    whole = g.add1(Gather(len(x.shape) - 2), x, g.constant(np.where(upper, size - bins, bins)))
    signs = np.ones((size, 2))
    signs[upper, 1] = -1
    return g.add1(Binary("mul"), whole, _constant(g, signs, x))


def _divisor(size: int) -> int:
    """The largest divisor up to DIRECT; 1 for a prime number above."""
    return next(d for d in range(min(DIRECT, size), 0, -1) if size % d == 0)


class _Fast:
    """Transforms of one direction without the factor of the inverse."""

    def __init__(self, g: GraphBuilder, inverse: bool, matrix: Matrix) -> None:
        self.g, self.matrix = g, matrix
        self.sign = 1.0 if inverse else -1.0

    def transformed(self, x: Value, size: int) -> Value:
        """The DFT of `size` points of x."""
        g, front = self.g, x.shape[:-2]
        if size <= DIRECT:
            flat = reshape(g, x, (*front, 2 * size))
            matrix = self.matrix(size, self.sign > 0)
            return reshape(g, g.add1(MatMul(), flat, _constant(g, matrix, x)), x.shape)
        a = _divisor(size)
        return self._chirped(x, size) if a == 1 else self._split(x, a, size // a)

    def _split(self, x: Value, a: int, b: int) -> Value:
        """Sample i * b + j and result k + a * l: over i, a turn by j * k, over j."""
        g, front = self.g, x.shape[:-2]
        rank = len(front) + 3
        swap = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
        y = transpose(g, reshape(g, x, (*front, a, b, 2)), swap)
        y = self.transformed(y, a)
        y = self._turned(y, np.outer(np.arange(b), np.arange(a)) / (a * b))
        y = self.transformed(transpose(g, y, swap), b)
        return reshape(g, transpose(g, y, swap), x.shape)

    def _turned(self, x: Value, turns: Array) -> Value:
        """Each value times exp(sign * 2 pi i * turns)."""
        angle = self.sign * 2 * np.pi * (turns % 1)
        return self._product(x, np.cos(angle) + 1j * np.sin(angle))

    def _product(self, x: Value, factor: Array) -> Value:
        g, last = self.g, len(x.shape) - 1
        real = np.stack([factor.real, factor.real], -1)
        imaginary = np.stack([-factor.imag, factor.imag], -1)
        swapped = g.add1(Gather(last), x, g.constant(np.array([1, 0])))
        own = g.add1(Binary("mul"), x, _constant(g, real, x))
        return g.add1(
            Binary("add"), own, g.add1(Binary("mul"), swapped, _constant(g, imaginary, x))
        )

    def _chirped(self, x: Value, size: int) -> Value:
        """n k = (n^2 + k^2 - (k - n)^2) / 2: a convolution, which may be cyclic of 2 size - 1."""
        g, axis = self.g, len(x.shape) - 2
        n = np.arange(size)
        turns = (n * n % (2 * size)) / (2 * size)
        wide = 1 << (2 * size - 2).bit_length()
        chirp = np.zeros(wide, np.complex128)
        chirp[:size] = np.exp(-self.sign * 2j * np.pi * turns)
        chirp[wide - size + 1 :] = chirp[size - 1 : 0 : -1]
        y = _of_length(g, self._turned(x, turns), wide)
        spectrum = _Fast(g, False, self.matrix).transformed(y, wide)
        spectrum = self._product(spectrum, np.fft.fft(chirp) / wide)
        y = _Fast(g, True, self.matrix).transformed(spectrum, wide)
        return self._turned(slice_axis(g, y, axis, 0, size), turns)
