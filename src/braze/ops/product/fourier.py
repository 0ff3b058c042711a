"""DFT and STFT as products with a matrix of cosines and sines; MelWeightMatrix of constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import F64, from_onnx
from braze.core.errors import ShapeError
from braze.expr.index import iadd, imul
from braze.expr.scalar import axis
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.lowering import Lowering, View
from braze.ops.move.shape import reshape, transpose
from braze.ops.move.slice_pad import slice_axis
from braze.ops.pointwise.cast import cast_from_float64
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.fourier_fast import fast_transform
from braze.ops.product.fourier_open import open_transform
from braze.ops.product.matmul import MatMul
from braze.ops.writing.arguments import (
    Types,
    array_of,
    at_least,
    known_sizes,
    normalize_axis,
    run_sizes,
    type_of,
)
from braze.ops.writing.precision import require_float
from braze.ops.writing.run_contents import settled

# of the product with one matrix, which is faster than shorter transforms below
MATRIX_POINTS = 512
# elements and columns of a MelWeightMatrix
MAX_MEL_ELEMENTS, MAX_MEL_BINS = 1 << 24, 1 << 14


def dft_matrix(length: int, size: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """[length * parts, results * 2 or 1] float64: rows are (sample, re/im), columns (bin, re/im).

    Samples beyond `length` count as 0. A onesided inverse takes the first half of a Hermitian
    spectrum and gives real values.
    """
    sign = 1.0 if inverse else -1.0
    n = np.arange(min(length, size)).reshape(-1, 1)
    if inverse and onesided:
        k = np.arange(size).reshape(1, -1)
        n = n[: size // 2 + 1]
        cos, sin = _circle(n * k, size)
        # inner bins stand for themselves and their conjugate
        weight = np.where((n == 0) | (2 * n == size), 1.0, 2.0) / size
        rows = np.stack([weight * cos, -weight * sin], axis=1)
        out = np.zeros((length, 2, size))
        out[: len(rows)] = rows
        return out.reshape(length * 2, size)
    results = size // 2 + 1 if onesided else size
    k = np.arange(results).reshape(1, -1)
    cos, sin = _circle(n * k, size)
    sin = sign * sin
    out = np.zeros((length, parts, results, 2))
    out[: len(n), 0, :, 0], out[: len(n), 0, :, 1] = cos, sin
    if parts == 2:
        out[: len(n), 1, :, 0], out[: len(n), 1, :, 1] = -sin, cos
    return out.reshape(length * parts, results * 2) / (size if inverse else 1)


def _circle(steps: Array, size: int) -> tuple[Array, Array]:
    """Cosine and sine of steps / size turns; whole numbers at quarter turns, where the angle's
    rounding would leave 1e-16 for 0."""
    place = steps % size
    angle, quarter = 2 * np.pi * place / size, 4 * place % size == 0
    cos, sin = np.cos(angle), np.sin(angle)
    return np.where(quarter, np.rint(cos), cos), np.where(quarter, np.rint(sin), sin)


def _complex_matrix(size: int, inverse: bool) -> Array:
    """The matrix of complex samples without the factor of the inverse."""
    return dft_matrix(size, size, 2, inverse, False) * (size if inverse else 1)


def _transform(
    n: OnnxNode, g: GraphBuilder, x: Value, size: Dim, inverse: bool, onesided: bool
) -> Value:
    """The DFT of [.., length, parts] along the second axis from the end."""
    *front, length, parts = x.shape
    if parts not in (1, 2):
        raise n.unsupported(f"samples of {parts} parts; 1 (real) or 2 (complex) are meant")
    if inverse and onesided and parts != 2:
        raise n.unsupported("a onesided inverse transform of real data; give complex data")
    require_float(x.dtype, n.op_type)
    if not (isinstance(length, int) and isinstance(size, int)):
        return open_transform(g, x, size, inverse, onesided, dims.number(parts))
    if size > MATRIX_POINTS:
        return fast_transform(g, x, size, inverse, onesided, _complex_matrix)
    length = min(length, size)
    x = slice_axis(g, x, len(front), 0, length)
    matrix = dft_matrix(length, size, 1 if parts == 1 else 2, inverse, onesided)
    constant = g.constant(cast_from_float64(matrix, x.dtype), "dft")
    y = g.add1(MatMul(), reshape(g, x, (*front, length * parts)), constant)
    width = 1 if inverse and onesided else 2
    return reshape(g, y, (*front, matrix.shape[1] // width, width))


def import_dft(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """DFT: the axis is an attribute in opset 17 and an input from 20."""
    x = n.need(0)
    rank = len(x.shape)
    if n.opset < 20:
        where = int(n.attr("axis", 1))
    elif n.input(2) is None:
        where = -2
    else:
        where = dims.number(known_sizes(n, g, 2, "axis")[0])
    k = normalize_axis(where, rank, n)
    if k == rank - 1:
        raise ShapeError(f"node {n.name!r} (DFT): the last axis holds re and im; choose another")
    inverse, onesided = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    size: Dim = x.shape[k]
    if n.input(1) is not None:
        size = settled(g, run_sizes(n, g, 1, "dft_length")[0], None, f"{n.name}_length")
    elif inverse and onesided:
        size = 2 * (size - 1)
    return (transformed(n, g, x, k, size, inverse, onesided),)


def transformed(
    n: OnnxNode, g: GraphBuilder, x: Value, k: int, size: Dim, inverse: bool, onesided: bool
) -> Value:
    """The DFT of `size` points along axis k of [.., 1 or 2]."""
    rank = len(x.shape)
    perm = [a for a in range(rank) if a not in (k, rank - 1)] + [k, rank - 1]
    y = _transform(n, g, transpose(g, x, perm), size, inverse, onesided)
    return transpose(g, y, [perm.index(a) for a in range(rank)])


@dataclass(frozen=True)
class Frames(Op):
    """[B, L, P] -> [B, frames, size, P]: windows of `size` samples that start every `step`."""

    size: int
    step: int

    def _frames(self, length: Dim) -> Dim:
        return dims.floordiv(length - self.size, self.step) + 1

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        if x.rank != 3 or self.size < 1 or self.step < 1:
            raise ShapeError(f"Frames: windows of {self.size} every {self.step} over {x}")
        count = self._frames(x.shape[1])
        at_least(count, 0, ctx, "Frames")
        return (TensorType(x.dtype, (x.shape[0], count, self.size, x.shape[2])),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = array_of(inputs, 0)
        starts = self.step * np.arange(dims.number(self._frames(x.shape[1])))
        return (x[:, starts[:, None] + np.arange(self.size)],)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        return View((axis(0), iadd(imul(axis(1), self.step), axis(2)), axis(3)))


def import_stft(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """STFT (opset 17 on): frames, times the window, transformed."""
    x, window = n.need(0), n.input(2)
    if len(x.shape) == 2:
        x = reshape(g, x, (*x.shape, 1))
    step = known_sizes(n, g, 1, "frame_step")[0]
    size: Dim = x.shape[1]
    if n.input(3) is not None:
        size = known_sizes(n, g, 3, "frame_length")[0]
    elif window is not None:
        size = window.shape[0]
    if not isinstance(size, int) or not isinstance(step, int):
        raise n.unsupported("frames of dynamic size; fix frame_length and frame_step")
    frames = g.add1(Frames(size, step), x)
    if window is not None:
        frames = g.add1(Binary("mul"), frames, reshape(g, window, (size, 1)))
    onesided = bool(n.attr("onesided", 1)) and x.shape[2] == 1
    return (_transform(n, g, frames, size, False, onesided),)


def _scalar(n: OnnxNode, g: GraphBuilder, index: int) -> float:
    content = g.array(n.need(index))
    if content is None:
        raise n.needs_content(index, f"input {index} is computed; make it a constant")
    return float(content.reshape(-1)[0])


def import_mel_weight_matrix(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """MelWeightMatrix (opset 17 on) of constants: triangles on the scale 2595 log10(1 + f/700)."""
    bins, length, rate = (int(_scalar(n, g, i)) for i in range(3))
    if min(bins, length, rate) < 1:
        raise n.invalid(f"{bins} bins, DFT length {length} and rate {rate} must be 1 or more")
    if bins * (length // 2 + 1) > MAX_MEL_ELEMENTS or bins > MAX_MEL_BINS:
        raise n.unsupported(
            f"a matrix of {length // 2 + 1} by {bins} is too large to compute at import; make it "
            "an initializer"
        )
    low, high = (2595 * np.log10(1 + _scalar(n, g, i) / 700) for i in (3, 4))
    mels = low + np.arange(bins + 2) * ((high - low) / (bins + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = ((length + 1) * hertz // rate).astype(int)
    out = np.zeros((length // 2 + 1, bins))
    for i in range(bins):
        left, centre, right = edges[i : i + 3]
        if centre == left:
            out[centre, i] = 1
        else:
            rise = np.arange(left, centre + 1)
            out[rise, i] = (rise - left) / (centre - left)
        if right > centre:
            fall = np.arange(centre, right)
            out[fall, i] = (right - fall) / (right - centre)
    dtype = from_onnx(int(n.attr("output_datatype", 1)), n.name)
    if dtype is F64:
        return (g.constant(out, "mel"),)
    return (g.constant(cast_from_float64(out, dtype), "mel"),)
