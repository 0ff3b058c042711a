"""Importers of MatMulInteger, ConvInteger, QLinearMatMul and QLinearConv."""

from __future__ import annotations

from braze.core import dims
from braze.core.dtypes import F32
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.move.shape import reshape, transpose
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.elementwise import Binary
from braze.ops.pool.window import Window, import_window
from braze.ops.product.conv import checked_kernel, pad_explicitly
from braze.ops.quant.integer import IntegerConv, IntegerMatMul, Requantize
from braze.ops.quant.parameters import is_known_zero, placed, zero_point
from braze.ops.writing.axes import channels_first, inverse
from braze.ops.writing.broadcast import broadcast_to
from braze.ops.writing.vector import check_vector


def import_matmul_integer(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """MatMulInteger: int32 sums."""
    return (integer_product(n, g, n.need(0), n.need(1), (2, 3)),)


def import_qlinear_matmul(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QLinearMatMul: an integer product and one requantization."""
    a, b = n.need(0), n.need(3)
    if a.dtype.is_float or b.dtype.is_float:
        raise n.unsupported("products of 8-bit floats are not quantized; dequantize the operands")
    total = integer_product(n, g, a, b, (2, 5))
    scale = combined_scale(g, of_rows(n, g, 1, a), of_columns(n, g, 4, b), n.need(6))
    return (requantized(n, g, total, scale, 7),)


def integer_product(
    n: OnnxNode, g: GraphBuilder, a: Value, b: Value, zeros: tuple[int, int]
) -> Value:
    """The int32 product; `zeros`: the inputs that hold the zero points."""
    a_zero = n.input(zeros[0])
    if a_zero is not None:
        rows = of_rows(n, g, zeros[0], a)
        a_zero = None if is_known_zero(g, a_zero) else rows
    return g.add1(IntegerMatMul(), a, b, a_zero, zero_of_columns(n, g, zeros[1], b))


def zero_of_columns(n: OnnxNode, g: GraphBuilder, index: int, b: Value) -> Value | None:
    """The zero point of the right factor at input `index`; None where it is absent or known 0."""
    v = n.input(index)
    if v is None:
        return None
    columns = of_columns(n, g, index, b)
    return None if is_known_zero(g, v) else columns


def of_rows(n: OnnxNode, g: GraphBuilder, index: int, a: Value) -> Value:
    """The parameter of the left factor at input `index`: a vector has one element for each row."""
    v = n.need(index)
    where = f"node {n.name!r} ({n.op_type}): parameter {v.name!r} of rows"
    if len(v.shape) == 1 and v.shape[0] != 1 and len(a.shape) > 1:
        g.unify(v.shape[0], a.shape[-2], where)
        return reshape(g, v, (v.shape[0], 1))
    return _fitting(g, v, a, 1, where)


def of_columns(n: OnnxNode, g: GraphBuilder, index: int, b: Value) -> Value:
    """The parameter of the right factor at input `index`: a vector has one element a column."""
    v = n.need(index)
    where = f"node {n.name!r} ({n.op_type}): parameter {v.name!r} of columns"
    return _fitting(g, v, b, 2, where)


def _fitting(g: GraphBuilder, v: Value, of: Value, k: int, where: str) -> Value:
    """A parameter that broadcasts to the factor `of`, with one element on the k-th axis from the
    end, over which products are summed."""
    if all(d == 1 for d in v.shape):
        return reshape(g, v, ())
    broadcast_to(g, v.shape, of.shape, where)
    if len(v.shape) >= k or len(of.shape) < k:
        g.unify(v.shape[-min(k, len(v.shape))], 1, f"{where} over what is summed")
    return v


def _scalar(g: GraphBuilder, v: Value) -> Value:
    return reshape(g, v, ()) if all(d == 1 for d in v.shape) else v


def combined_scale(g: GraphBuilder, a: Value, b: Value, y: Value | None) -> Value:
    """a * b / y in float32, in this order, as ONNX Runtime computes it."""
    scale = g.add1(Binary("mul"), cast_to(g, a, F32), cast_to(g, b, F32))
    if y is None:
        return scale
    return g.add1(Binary("div"), scale, cast_to(g, _scalar(g, y), F32))


def requantized(n: OnnxNode, g: GraphBuilder, total: Value, scale: Value, zero: int) -> Value:
    """int32 sums as the type of the zero point at input `zero`."""
    to = n.need(zero).dtype
    offset: Value | None = _scalar(g, n.need(zero))
    assert offset is not None
    broadcast_to(g, offset.shape, total.shape, f"node {n.name!r} ({n.op_type}): {offset.name!r}")
    offset = None if is_known_zero(g, n.need(zero)) else offset
    return g.add1(Requantize(to), total, scale, offset)


def import_conv_integer(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """ConvInteger: int32 sums."""
    return (_integer_conv(n, g, n.need(0), n.need(1), (2, 3)),)


def import_qlinear_conv(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QLinearConv, also that of com.microsoft, whose data may have its channels last."""
    x, w, bias = n.need(0), n.need(3), n.input(8)
    rank = len(x.shape)
    last = bool(n.attr("channels_last", 0)) and rank > 2
    if last:
        x = transpose(g, x, channels_first(rank))
    total = _integer_conv(n, g, x, w, (2, 5))
    if bias is not None:
        check_vector(n, g, bias, total.shape[1], "filters")
        spread = reshape(g, bias, (total.shape[1], *(1,) * (rank - 2)))
        total = g.add1(Binary("add"), total, spread)
    x_scale = placed(n, g, n.need(1), x, 1, 0)
    w_scale = placed(n, g, n.need(4), total, 1, 0)
    assert x_scale is not None and w_scale is not None
    y = requantized(n, g, total, combined_scale(g, x_scale, w_scale, n.need(6)), 7)
    return (transpose(g, y, inverse(channels_first(rank))) if last else y,)


def _integer_conv(
    n: OnnxNode, g: GraphBuilder, x: Value, w: Value, zeros: tuple[int, int]
) -> Value:
    groups = int(n.attr("group", 1))
    kernel = checked_kernel(n, x, w, groups)
    x, window = _padded(n, g, x, import_window(n, g, kernel, x.shape[2:]), zeros[0])
    pads = dims.static(window.pads)
    x_zero = placed(n, g, zero_point(n, g, zeros[0]), x, 1, 0)
    w_zero = placed(n, g, n.input(zeros[1]), w, 0, 0)
    if w_zero is not None and is_known_zero(g, n.need(zeros[1])):
        w_zero = None
    return g.add1(IntegerConv(window.strides, window.dilations, pads, groups), x, w, x_zero, w_zero)


def _padded(
    n: OnnxNode, g: GraphBuilder, x: Value, window: Window, zero: int
) -> tuple[Value, Window]:
    """Paddings that are negative or symbolic as a Pad of the data with its zero point."""
    v = zero_point(n, g, zero)
    array = g.array(v)
    if v is not None and (array is None or array.size != 1):
        if all(isinstance(p, int) and p >= 0 for p in window.pads):
            return x, window
        raise n.unsupported(
            "paddings that are negative or depend on a dynamic size need a zero point of the data "
            "that is a constant; make it one or give pads"
        )
    return pad_explicitly(g, x, window, 0.0 if array is None else float(array.reshape(-1)[0]))
