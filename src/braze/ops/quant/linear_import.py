"""Importers of QuantizeLinear, DequantizeLinear (ONNX and com.microsoft), DynamicQuantizeLinear."""

from __future__ import annotations

from braze.core.dtypes import F8E8M0, F32, F64, U8, DType, from_onnx
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.pointwise.cast import Cast, CastToFloat8, cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.elementwise import Binary, constant_like
from braze.ops.quant.linear import Dequantize, Quantize
from braze.ops.quant.parameters import held, held_type, placed, zero_of_scale
from braze.ops.reduce.reduce import Reduce
from braze.ops.writing.minifloat import FORMATS


def import_quantize(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QuantizeLinear of every opset: per tensor, per axis and in blocks, to integers and floats."""
    x, scale = n.need(0), n.need(1)
    to = _quantized_type(n)
    axis, block = int(n.attr("axis", 1)), int(n.attr("block_size", 0))
    zero = zero_of_scale(n, g, 2, scale)
    division = _division_type(n, scale.dtype)
    if scale.dtype is F8E8M0 or scale.dtype.is_int:
        scale = cast_to(g, scale, division)
    scale_ = placed(n, g, scale, x, axis, block)
    if to.is_float:
        if to not in FORMATS:
            raise n.unsupported(f"nothing is quantized to {to} yet; use float8 or an integer type")
        assert scale_ is not None
        y = g.add1(Binary("div"), cast_to(g, x, division), cast_to(g, scale_, division))
        if zero is not None:
            y = g.add1(Binary("add"), cast_to(g, y, F32), _float32(n, g, zero, x))
        return (g.add1(CastToFloat8(to, bool(n.attr("saturate", 1))), y),)
    zero = placed(n, g, zero, x, axis, block)
    return (g.add1(Quantize(held_type(to), to.bits, division), x, scale_, zero),)


def _quantized_type(n: OnnxNode) -> DType:
    """The type of the zero point, else of `output_dtype`, else uint8."""
    given = int(n.attr("output_dtype", 0))
    asked = from_onnx(given, f"node {n.name!r} (QuantizeLinear)") if given else None
    zero = n.input(2)
    if zero is None:
        return asked or U8
    if asked is not None and held_type(asked) is not held_type(zero.dtype):
        raise n.invalid(f"output_dtype {asked} differs from the zero point's type {zero.dtype}")
    return asked or zero.dtype


def _division_type(n: OnnxNode, scale: DType) -> DType:
    """The type of x / scale: `precision`, else the scale's; integer scales divide in float64."""
    given = int(n.attr("precision", 0))
    if given:
        asked = from_onnx(given, f"node {n.name!r} (QuantizeLinear)")
        if not asked.is_float or asked.is_narrow:
            raise n.invalid(f"precision {asked} is no type to divide in")
        return asked
    if scale.is_int:
        return F64
    return F32 if scale is F8E8M0 else scale


def import_dequantize(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """DequantizeLinear of every opset: per tensor, per axis and in blocks."""
    x, scale = held(n, g, n.need(0)), n.need(1)
    axis, block = int(n.attr("axis", 1)), int(n.attr("block_size", 0))
    zero = zero_of_scale(n, g, 2, scale)
    given = int(n.attr("output_dtype", 0))
    to = scale.dtype
    if given:
        to = from_onnx(given, f"node {n.name!r} (DequantizeLinear)")
    if scale.dtype is F8E8M0:
        scale = cast_to(g, scale, F32)
    if not to.is_float or to.is_narrow:
        raise n.unsupported(f"nothing is dequantized to {to}; set output_dtype")
    scale_ = placed(n, g, scale, x, axis, block)
    if x.dtype.is_float:
        assert scale_ is not None
        wide = g.add1(Cast(F32), x)
        if zero is not None:
            wide = g.add1(Binary("sub"), wide, _float32(n, g, zero, x))
        return (cast_to(g, g.add1(Binary("mul"), wide, cast_to(g, scale_, F32)), to),)
    return (g.add1(Dequantize(to), x, scale_, placed(n, g, zero, x, axis, block)),)


def _float32(n: OnnxNode, g: GraphBuilder, zero: Value, x: Value) -> Value:
    """The zero point of an 8-bit float as an operand of x; ONNX keeps it for consistency."""
    wide = placed(
        n, g, g.add1(Cast(F32), zero), x, int(n.attr("axis", 1)), int(n.attr("block_size", 0))
    )
    assert wide is not None
    return wide


def import_dynamic_quantize(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """DynamicQuantizeLinear: uint8, its scale and its zero point from the range of the data."""
    return dynamic_quantize(g, n.need(0))


def dynamic_quantize(g: GraphBuilder, x: Value) -> tuple[Value, Value, Value]:
    """(q, scale, zero point) of float32 data; data of zeros alone has scale 1."""
    if 0 in x.shape:
        raise ShapeError("DynamicQuantizeLinear: the range of no elements is not defined")
    zero, steps = constant_like(g, 0, F32), constant_like(g, 255, F32)
    every = tuple(range(len(x.shape)))
    low = g.add1(Binary("min"), _extreme(g, x, "min", every), zero)
    high = g.add1(Binary("max"), _extreme(g, x, "max", every), zero)
    width = g.add1(Binary("sub"), high, low)
    none = g.add1(Compare("eq"), width, zero)
    scale = g.add1(Where(), none, constant_like(g, 1, F32), g.add1(Binary("div"), width, steps))
    # 0 - low / scale, rounded and saturated, is the quantized form of -low
    lowest = g.add1(Binary("sub"), zero, low)
    zero_point_ = g.add1(Quantize(U8, 8, F32), lowest, scale, None)
    return g.add1(Quantize(U8, 8, F32), x, scale, zero_point_), scale, zero_point_


def _extreme(g: GraphBuilder, x: Value, kind: str, every: tuple[int, ...]) -> Value:
    return g.add1(Reduce(kind, every, keepdims=False), x) if every else x
