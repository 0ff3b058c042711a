"""Importers of quantized ops of com.microsoft that are no products.

Where ONNX Runtime computes with integers (QLinearMul, QLinearGlobalAveragePool) so does braze, to
the same bits. The others are defined by dequantized numbers: the op on those, quantized once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from braze.core import dims
from braze.core.dtypes import F32, I32
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Importer, OnnxNode
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import SizeTensor, reshape, transpose
from braze.ops.move.single import one_number
from braze.ops.pointwise.activation import LeakyRelu, Sigmoid
from braze.ops.pointwise.cast import Cast, cast_to
from braze.ops.pointwise.compare import Where
from braze.ops.pointwise.elementwise import Binary
from braze.ops.pool.pool import import_average_pool
from braze.ops.quant.integer import Requantize
from braze.ops.quant.linear import Dequantize, Quantize
from braze.ops.quant.parameters import zero_point
from braze.ops.reduce.reduce import Reduce
from braze.ops.reduce.softmax import softmax_importer
from braze.ops.writing.arguments import normalize_axis
from braze.ops.writing.axes import channels_first, inverse


def scalar(g: GraphBuilder, v: Value) -> Value:
    """A parameter, which must have one element, as a tensor of rank 0."""
    return reshape(g, one_number(g, v, "scale or zero point"), ())


def scalar_zero(n: OnnxNode, g: GraphBuilder, index: int) -> Value | None:
    """The zero point at input `index`, which has one element; None where it is absent or 0."""
    given = n.input(index)
    if given is not None:
        one_number(g, given, "zero point")
    v = zero_point(n, g, index)
    return None if v is None else scalar(g, v)


def real(n: OnnxNode, g: GraphBuilder, index: int) -> Value:
    """The float32 numbers of input `index`, behind which its scale and zero point stand."""
    scale = scalar(g, n.need(index + 1))
    return g.add1(Dequantize(F32), n.need(index), scale, scalar_zero(n, g, index + 2))


def as_codes(n: OnnxNode, g: GraphBuilder, y: Value, like: Value, index: int) -> Value:
    """float32 numbers in the type of `like`, with the scale at input `index` and the zero point
    behind it."""
    scale = scalar(g, n.need(index))
    return g.add1(Quantize(like.dtype, 8, F32), y, scale, scalar_zero(n, g, index + 1))


def import_qlinear_add(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QLinearAdd: the sum of both operands' numbers."""
    total = g.add1(Binary("add"), real(n, g, 0), real(n, g, 3))
    return (as_codes(n, g, total, n.need(0), 6),)


def import_qlinear_mul(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QLinearMul: an exact product of 9-bit factors, scaled once; a tie goes to the even code."""
    product = g.add1(Binary("mul"), _shifted(n, g, 0), _shifted(n, g, 3))
    scale = g.add1(Binary("mul"), scalar(g, n.need(1)), scalar(g, n.need(4)))
    scale = g.add1(Binary("div"), scale, scalar(g, n.need(6)))
    op = Requantize(n.need(0).dtype, offset_first=True)
    return (g.add1(op, product, scale, scalar_zero(n, g, 7)),)


def _shifted(n: OnnxNode, g: GraphBuilder, index: int) -> Value:
    """Input `index` less its zero point, in int32."""
    x, zero = g.add1(Cast(I32), n.need(index)), scalar_zero(n, g, index + 2)
    return x if zero is None else g.add1(Binary("sub"), x, g.add1(Cast(I32), zero))


def _of_numbers(function: Callable[[OnnxNode, GraphBuilder, Value], Value]) -> Importer:
    """Importer of an op of X, its scale and zero point, and those of Y: `function` of numbers."""

    def import_op(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        return (as_codes(n, g, function(n, g, real(n, g, 0)), n.need(0), 3),)

    return import_op


def _sigmoid(n: OnnxNode, g: GraphBuilder, x: Value) -> Value:
    return g.add1(Sigmoid(), x)


def _leaky_relu(n: OnnxNode, g: GraphBuilder, x: Value) -> Value:
    return g.add1(LeakyRelu(float(n.attr("alpha", 0.01))), x)


def _softmax(n: OnnxNode, g: GraphBuilder, x: Value) -> Value:
    """`opset` says whether the axes behind `axis` are taken together, as before 13."""
    inner = replace(n, opset=int(n.attr("opset", 13)), inputs=(x,), num_outputs=1)
    return softmax_importer("softmax")(replace(inner, op_type="Softmax"), g)[0]


def _average_pool(n: OnnxNode, g: GraphBuilder, x: Value) -> Value:
    rank = len(x.shape)
    if not n.attr("channels_last", 0):
        return import_average_pool(replace(n, inputs=(x,)), g)[0]
    x = transpose(g, x, channels_first(rank))
    (y,) = import_average_pool(replace(n, inputs=(x,)), g)
    return transpose(g, y, inverse(channels_first(rank)))


import_qlinear_sigmoid = _of_numbers(_sigmoid)
import_qlinear_leaky_relu = _of_numbers(_leaky_relu)
import_qlinear_softmax = _of_numbers(_softmax)
import_qlinear_average_pool = _of_numbers(_average_pool)


def import_qlinear_global_average_pool(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QLinearGlobalAveragePool: an int32 sum, scaled by x_scale / (y_scale * pixels)."""
    x = n.need(0)
    rank = len(x.shape)
    if rank < 3:
        raise ShapeError(f"node {n.name!r} ({n.op_type}): {x.name!r} has no spatial axes")
    first = 1 if n.attr("channels_last", 0) else 2
    spatial = tuple(range(first, first + rank - 2))
    total = g.add1(Reduce("sum", spatial, keepdims=True), _shifted(n, g, 0))
    pixels = g.add1(SizeTensor((dims.product(x.shape[k] for k in spatial),), ()))
    wide = g.add1(Binary("mul"), scalar(g, n.need(3)), cast_to(g, pixels, F32))
    scale = g.add1(Binary("div"), scalar(g, n.need(1)), wide)
    return (g.add1(Requantize(x.dtype), total, scale, scalar_zero(n, g, 4)),)


def import_qlinear_concat(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QLinearConcat: operands that already have the result's grid are taken as they are."""
    like = n.need(1)
    parts = []
    for i in range(2, len(n.inputs), 3):
        same = _same(g, n.need(i + 1), n.need(0)) and _same(g, n.need(i + 2), like)
        parts.append(n.need(i) if same else as_codes(n, g, real(n, g, i), like, 0))
    axis = normalize_axis(int(n.attr("axis", 0)), len(parts[0].shape), n)
    return (parts[0] if len(parts) == 1 else g.add1(Concat(axis), *parts),)


def _same(g: GraphBuilder, a: Value, b: Value) -> bool:
    """Whether two parameters are one value, or constants of equal content."""
    x, y = g.array(a), g.array(b)
    if x is None or y is None:
        return a is b
    return x.size == y.size == 1 and bool(x.reshape(()) == y.reshape(()))


def import_qlinear_where(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QLinearWhere: both branches on the grid of the result."""
    like = n.need(1)
    branches = [as_codes(n, g, real(n, g, i), like, 7) for i in (1, 4)]
    return (g.add1(Where(), n.need(0), *branches),)
