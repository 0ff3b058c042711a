"""Products and convolutions of 8-bit integers with exact int32 results, and their requantization.

Without zero points they are anchors whose sums are int32 (`passes/rules/multiply_bytes.py` takes
zero points out). Where there is no template for that they run in float64: (a - a_zero) *
(b - b_zero) has at most 17 bits, so that sums of up to 2^36 of them are exact in whatever order
they are taken; the result is rounded (a transform of a convolution leaves errors far below one
half) and wrapped to 32 bits. A depthwise window of few taps is exact in float32 already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from braze.core import dims
from braze.core.dims import product
from braze.core.dtypes import F32, F64, I32, I64, DType
from braze.core.errors import DTypeError, ShapeError
from braze.expr.scalar import binary, cast, hole, unary
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, Op
from braze.ops.lowering import Anchor, ConvSpec, Decompose, Lowering, MatmulSpec, Pointwise
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.pool.window import Window, channels_first, from_channels_first
from braze.ops.product.conv import Conv, convolve
from braze.ops.product.matmul import MatMul
from braze.ops.quant.linear import saturate_array, saturated
from braze.ops.writing.arguments import Types, array_of, type_of
from braze.ops.writing.broadcast import broadcast_to
from braze.ops.writing.layout import LayoutOp


def _checked(inputs: Types, ctx: InferContext, where: str) -> tuple[TensorType, TensorType]:
    """The types of both factors: 8-bit integers whose zero points broadcast to them."""
    a, b = type_of(inputs, 0), type_of(inputs, 1)
    for t in (a, b):
        if not t.dtype.is_int or t.dtype.bits != 8:
            raise DTypeError(f"{where}: element type {t.dtype} is no 8-bit integer; insert a Cast")
    for zero, of in zip(inputs[2:], (a, b), strict=False):
        if zero is None:
            continue
        broadcast_to(ctx, zero.shape, of.shape, f"{where} zero point")
        if zero.dtype is not of.dtype:
            raise DTypeError(f"{where}: a zero point is {zero.dtype} but its data is {of.dtype}")
    return a, b


def _shifted(x: Array, zero: Array | None) -> Array:
    """x - zero in float64."""
    wide = x.astype(np.float64)
    return wide if zero is None else wide - zero


def _wrapped(x: Array) -> Array:
    """Whole numbers in float64 as int32, which keeps the low 32 bits."""
    return np.rint(x).astype(np.int64).astype(np.int32)


def _widened(g: GraphBuilder, x: Value, zero: Value | None, wide: DType = F64) -> Value:
    """x - zero as a float value; constants at once."""
    array, offset = g.array(x), g.array(zero)
    if array is not None and (zero is None or offset is not None):
        return g.constant(_shifted(array, offset).astype(wide.numpy), x.name)
    shifted = g.add1(Cast(wide), x)
    return shifted if zero is None else g.add1(Binary("sub"), shifted, g.add1(Cast(wide), zero))


def _of_integers(low: Lowering, fallback: Decompose) -> Lowering:
    """The anchor of a float product, with int32 sums."""
    if not isinstance(low, Anchor) or not isinstance(low.spec, (MatmulSpec, ConvSpec)):
        return fallback
    return Anchor(replace(low.spec, acc=I32), fallback)


def _no_zeros(inputs: Types) -> bool:
    return all(t is None for t in inputs[2:])


def _narrowed(g: GraphBuilder, x: Value) -> Value:
    """Whole numbers in float64 as int32, by way of int64: to integers of fewer bits it wraps."""
    return g.add1(Cast(I32), g.add1(Cast(I64), g.add1(Unary("round"), x)))


@dataclass(frozen=True)
class IntegerMatMul(Op):
    """numpy.matmul of (a - a_zero) and (b - b_zero) in int32, which wraps.

    Inputs: a, b of 8 bits, and zero points of their types that broadcast to them, or none.
    """

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        a, b = _checked(inputs, ctx, "integer product")
        wide = [TensorType(I32, t.shape) for t in (a, b)]
        return MatMul().infer(wide, ctx)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        zeros = (*inputs[2:], None, None)
        a, b = (_shifted(array_of(inputs, i), zeros[i]) for i in (0, 1))
        return (np.asarray(_wrapped(np.matmul(a, b))),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        def build(g: GraphBuilder, *v: Value | None) -> tuple[Value, ...]:
            a, b, a_zero, b_zero = (*v, None, None)[:4]
            assert a is not None and b is not None
            total = g.add1(MatMul(), _widened(g, a, a_zero), _widened(g, b, b_zero))
            return (_narrowed(g, total),)

        if not _no_zeros(inputs):
            return Decompose(build)
        floats = [TensorType(F32, type_of(inputs, i).shape) for i in (0, 1)]
        out = [TensorType(F32, outputs[0].shape)]
        return _of_integers(MatMul().lower(floats, out), Decompose(build))


@dataclass(frozen=True)
class IntegerConv(LayoutOp):
    """Conv of (x - x_zero) and (w - w_zero) in int32, which wraps; paddings count as x_zero.

    Inputs: x and w [K, C/groups, *kernel] of 8 bits; a scalar zero point of x, and one of w that
    broadcasts to it, or none. The fields are those of Conv. fill: what paddings hold instead where
    there is no x_zero.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int = 1
    layout: str = "NCHW"
    fill: int = 0

    @property
    def _conv(self) -> Conv:
        return Conv(self.strides, self.dilations, self.pads, self.groups, self.layout)

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, w = _checked(inputs, ctx, "integer convolution")
        zero = inputs[2] if len(inputs) > 2 else None
        if zero is not None and zero.rank:
            raise ShapeError("integer convolution: the zero point of the data must be a scalar")
        (y,) = self._conv.infer([TensorType(F64, t.shape) for t in (x, w)], ctx)
        return (TensorType(I32, y.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        zeros = (*inputs[2:], None, None)
        x, w = (_shifted(array_of(inputs, i), zeros[i]) for i in (0, 1))
        x = channels_first(x, self.layout)
        rank = len(self.strides)
        begin, end = self.pads[:rank], self.pads[rank:]
        widths = [(0, 0), (0, 0), *zip(begin, end, strict=True)]
        x = np.pad(x, widths, constant_values=self.fill)
        window = Window(w.shape[2:], self.strides, self.dilations, (0,) * 2 * rank)
        y = convolve(x, w, window, self.groups)
        return (_wrapped(from_channels_first(y, self.layout)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        def build(g: GraphBuilder, *v: Value | None) -> tuple[Value, ...]:
            x, w, x_zero, w_zero = (*v, None, None)[:4]
            assert x is not None and w is not None
            wide = self._sums(type_of(inputs, 1))
            data = _widened(g, x, x_zero, wide)
            if self.fill:  # what is padded with zeros is what lies above the padding
                level = g.constant(np.asarray(self.fill, wide.numpy), "fill")
                data = g.add1(Binary("sub"), data, level)
            weight = _widened(g, w, w_zero, wide)
            y = g.add1(self._conv, data, weight)
            if self.fill:
                y = g.add1(Binary("add"), y, _of_level(g, self, w, wide))
            return (_narrowed(g, y),)

        if not _no_zeros(inputs):
            return Decompose(build)
        floats = [TensorType(F32, type_of(inputs, i).shape) for i in (0, 1)]
        out = [TensorType(F32, outputs[0].shape)]
        low = _of_integers(self._conv.lower(floats, out), Decompose(build))
        if isinstance(low, Anchor) and isinstance(low.spec, ConvSpec):
            return replace(low, spec=replace(low.spec, fill=self.fill))
        return low

    def _sums(self, w: TensorType) -> DType:
        """A float in which every sum is exact: 24 bits are enough for a small depthwise window.

        Only that, as other convolutions of float32 may be transformed.
        """
        terms = product(dims.static(w.shape[1:]))
        few = isinstance(terms, int) and terms * 255 * 255 <= 1 << 24
        return F32 if few and w.shape[1] == 1 and self.groups > 1 else F64


def _of_level(g: GraphBuilder, op: IntegerConv, w: Value, wide: DType) -> Value:
    """What a convolution gives for data that is `fill` everywhere, by output channel."""
    array = g.array(w)
    assert array is not None, "a padding other than zero belongs to a constant weight"
    sums = array.reshape(len(array), -1).sum(1, dtype=np.int64) * op.fill
    trailing = (1,) * len(op.strides) if op.layout == "NCHW" else ()
    return g.constant(sums.astype(wide.numpy).reshape(-1, *trailing), "level")


@dataclass(frozen=True)
class Requantize(Op):
    """q = saturate(round(float32(sum) * scale) + zero_point), ties to even.

    Inputs: int32 sums, a float32 scale and a zero point (or none), which broadcast to them; `to`
    is an 8-bit type. offset_first: the zero point is added before it is rounded, so that a tie
    goes to the even code.
    """

    to: DType
    offset_first: bool = False

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, scale = type_of(inputs, 0), type_of(inputs, 1)
        if x.dtype is not I32 or scale.dtype is not F32:
            raise DTypeError(f"requantization: sums are {x.dtype} and their scale {scale.dtype}")
        for t in inputs[1:]:
            if t is not None:
                broadcast_to(ctx, t.shape, x.shape, "requantization")
        return (TensorType(self.to, x.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        scale = array_of(inputs, 1)
        wide = np.result_type(scale.dtype, np.float32)
        with np.errstate(all="ignore"):
            q = array_of(inputs, 0).astype(wide) * scale
            offset = 0 if inputs[2] is None else inputs[2].astype(wide)
            q = np.rint(q + offset) if self.offset_first else np.rint(q) + offset
        return (saturate_array(q, self.to, self.to.bits),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        q = binary("mul", cast(hole(0, I32), F32), hole(1, F32))
        offset = inputs[2] if len(inputs) > 2 else None
        q = q if self.offset_first else unary("round", q)
        if offset is not None:
            q = binary("add", q, cast(hole(2, offset.dtype), F32))
        q = unary("round", q) if self.offset_first else q
        return Pointwise(saturated(q, self.to, self.to.bits))
