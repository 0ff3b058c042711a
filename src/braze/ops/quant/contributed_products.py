"""Importers of quantized products of com.microsoft: exact int32 sums, then float32 arithmetic."""

from __future__ import annotations

from braze.core.dtypes import F32
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.move.shape import reshape, transpose
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.elementwise import Binary, constant_like
from braze.ops.quant.contributed import scalar, scalar_zero
from braze.ops.quant.integer import IntegerMatMul, Requantize
from braze.ops.quant.integer_import import integer_product, of_columns, zero_of_columns
from braze.ops.quant.linear_import import dynamic_quantize
from braze.ops.writing.broadcast import broadcast_to
from braze.ops.writing.vector import check_vector


def import_matmul_integer_to_float(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """MatMulIntegerToFloat: sums times a_scale * b_scale, plus a bias."""
    total = integer_product(n, g, n.need(0), n.need(1), (4, 5))
    scale = _product_scale(g, n.need(2), of_columns(n, g, 3, n.need(1)))
    return (_real(n, g, total, scale, 6),)


def import_dynamic_quantize_matmul(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """DynamicQuantizeMatMul: MatMulIntegerToFloat of data that is quantized by its range."""
    q, a_scale, a_zero = dynamic_quantize(g, n.need(0))
    b = n.need(1)
    total = g.add1(IntegerMatMul(), q, b, a_zero, zero_of_columns(n, g, 3, b))
    return (_real(n, g, total, _product_scale(g, a_scale, of_columns(n, g, 2, b)), 4),)


def _product_scale(g: GraphBuilder, a: Value, b: Value) -> Value:
    """a * b in float32; b may have one element for each column."""
    return g.add1(Binary("mul"), cast_to(g, scalar(g, a), F32), cast_to(g, b, F32))


def _real(n: OnnxNode, g: GraphBuilder, total: Value, scale: Value, bias: int) -> Value:
    """int32 sums times `scale` and plus the bias at input `bias`, in the type of the bias's op."""
    y = g.add1(Binary("mul"), cast_to(g, total, F32), scale)
    added = n.input(bias)
    if added is not None:
        check_vector(n, g, added, total.shape[-1], "columns")
        y = g.add1(Binary("add"), y, cast_to(g, added, F32))
    to = n.need(2).dtype if n.op_type == "MatMulIntegerToFloat" else F32
    return cast_to(g, y, to)


def import_qgemm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QGemm: alpha * (A' B' + C) on grids; without y_scale the result is float32."""
    a, b, c = n.need(0), n.need(3), n.input(6)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ShapeError(f"node {n.name!r} (QGemm): A and B must be matrices")
    if n.attr("transA", 0):
        a = transpose(g, a, (1, 0))
    if n.attr("transB", 0):
        b = transpose(g, b, (1, 0))
    total = g.add1(IntegerMatMul(), a, b, scalar_zero(n, g, 2), zero_of_columns(n, g, 5, b))
    if c is not None:
        if len(c.shape) == 1 and c.shape[0] != 1 and b.shape[1] == 1:
            c = reshape(g, c, (*c.shape, 1))
        broadcast_to(g, c.shape, total.shape, f"node {n.name!r} (QGemm): C {c.name!r}")
        total = g.add1(Binary("add"), total, c)
    alpha = constant_like(g, float(n.attr("alpha", 1.0)), F32)
    scale = g.add1(Binary("mul"), alpha, scalar(g, n.need(1)))
    scale = g.add1(Binary("mul"), scale, of_columns(n, g, 4, b))
    if n.input(7) is None:
        return (g.add1(Binary("mul"), cast_to(g, total, F32), scale),)
    scale = g.add1(Binary("div"), scale, scalar(g, n.need(7)))
    y_zero = n.input(8)
    to = a.dtype if y_zero is None else y_zero.dtype
    return (g.add1(Requantize(to), total, scale, scalar_zero(n, g, 8)),)
