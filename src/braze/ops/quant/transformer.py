"""Importers of QAttention and QEmbedLayerNormalization (com.microsoft).

The projection to queries, keys and values is an exact integer product; all else is float32, as in
ONNX Runtime.
"""

from __future__ import annotations

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import F32, I32
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat, Split
from braze.ops.move.shape import Expand, reshape, transpose
from braze.ops.move.slice_pad import slice_axis
from braze.ops.norm.normalization import LayerNorm
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.elementwise import Binary, constant_like
from braze.ops.product.attention import CausalMask
from braze.ops.product.matmul import MatMul
from braze.ops.quant.contributed import scalar, scalar_zero
from braze.ops.quant.integer import IntegerMatMul
from braze.ops.quant.integer_import import of_columns, zero_of_columns
from braze.ops.quant.linear import Dequantize
from braze.ops.reduce.reduce import Reduce
from braze.ops.reduce.softmax import Softmax
from braze.ops.writing.vector import check_vector


def import_qattention(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QAttention: [batch, length, hidden] codes to attention of `num_heads` heads, and its keys
    and values joined with the past ones."""
    x, heads = n.need(0), int(n.attr("num_heads", 0))
    if len(x.shape) != 3 or heads < 1:
        raise ShapeError(
            f"node {n.name!r} (QAttention): data of rank {len(x.shape)} and {heads} heads; give "
            "[batch, length, hidden] and num_heads"
        )
    if n.attr("do_rotary", 0) or n.attr("past_present_share_buffer", 0):
        raise n.unsupported("rotary positions and shared buffers; export them as nodes")
    batch, length, _ = x.shape
    width = n.need(1).shape[-1]
    if not isinstance(width, int) or width % (3 * heads):
        raise ShapeError(
            f"node {n.name!r} (QAttention): {width} columns of weights are not queries, keys and "
            f"values of {heads} heads"
        )
    size = width // (3 * heads)
    parts = g.add(Split(2, (width // 3,) * 3), _projected(n, g))
    q, k, v = (
        transpose(g, reshape(g, part, (batch, length, heads, size)), (0, 2, 1, 3))
        for part in parts
    )
    past = n.input(8)
    if past is not None:
        old = (reshape(g, slice_axis(g, past, 0, i, 1), past.shape[1:]) for i in (0, 1))
        k, v = (g.add1(Concat(2), o, new) for o, new in zip(old, (k, v), strict=True))
    mixed = _attended(n, g, q, k, v)
    y = reshape(g, transpose(g, mixed, (0, 2, 1, 3)), (batch, length, width // 3))
    y = cast_to(g, y, n.need(3).dtype)
    if n.num_outputs < 2:
        return (y,)
    stacked = [reshape(g, cast_to(g, part, y.dtype), (1, *part.shape)) for part in (k, v)]
    return y, g.add1(Concat(0), *stacked)


def _projected(n: OnnxNode, g: GraphBuilder) -> Value:
    """float32 queries, keys and values side by side."""
    w = n.need(1)
    weight_zero = zero_of_columns(n, g, 7, w)
    total = g.add1(IntegerMatMul(), n.need(0), w, scalar_zero(n, g, 6), weight_zero)
    scale = of_columns(n, g, 4, w)
    check_vector(n, g, n.need(2), total.shape[-1], "columns")
    both = g.add1(Binary("mul"), cast_to(g, scalar(g, n.need(3)), F32), cast_to(g, scale, F32))
    y = g.add1(Binary("mul"), cast_to(g, total, F32), both)
    return g.add1(Binary("add"), y, cast_to(g, n.need(2), F32))


def _attended(n: OnnxNode, g: GraphBuilder, q: Value, k: Value, v: Value) -> Value:
    """softmax(scale * q kᵀ + mask) v."""
    size, total = dims.number(q.shape[3]), k.shape[2]
    scale = float(n.attr("scale", 0.0)) or 1.0 / float(np.sqrt(np.float32(size)))
    scores = g.add1(MatMul(), q, transpose(g, k, (0, 1, 3, 2)))
    scores = g.add1(Binary("mul"), scores, constant_like(g, scale, F32))
    least = constant_like(g, float(n.attr("mask_filter_value", -10000.0)), F32)
    mask = n.input(5)
    if mask is not None:
        scores = g.add1(Binary("add"), scores, _mask(n, g, mask, least, total))
    if n.attr("unidirectional", 0):
        scores = g.add1(CausalMask(), scores)
    return g.add1(MatMul(), g.add1(Softmax(3), scores), v)


def _mask(n: OnnxNode, g: GraphBuilder, mask: Value, least: Value, total: Dim) -> Value:
    """A mask of 0 and 1 for each key [batch, keys], or the number of keys [batch], as what is
    added to scores."""
    zero = constant_like(g, 0, F32)
    if len(mask.shape) == 2:
        g.unify(mask.shape[1], total, f"node {n.name!r} (QAttention) keys of the mask")
        kept = g.add1(Compare("lt"), constant_like(g, 0, I32), mask)
        kept = reshape(g, kept, (mask.shape[0], 1, 1, mask.shape[1]))
        return g.add1(Where(), kept, zero, least)
    if len(mask.shape) != 1 or not isinstance(total, int):
        raise n.unsupported(
            f"a mask of shape {list(mask.shape)}; give one number for each of a batch's keys"
        )
    g.unify(mask.shape[0], n.need(0).shape[0], f"node {n.name!r} (QAttention) mask")
    places = g.constant(np.arange(total, dtype=np.int32))
    kept = g.add1(Compare("lt"), places, reshape(g, mask, (*mask.shape, 1, 1, 1)))
    return g.add1(Where(), kept, zero, least)


def import_qembed_layer_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QEmbedLayerNormalization: a norm of the sum of dequantized rows, and the sums of the mask."""
    ids = n.need(0)
    if len(ids.shape) != 2:
        raise ShapeError(f"node {n.name!r} ({n.op_type}): ids of rank {len(ids.shape)}, not 2")
    batch, length = ids.shape
    words = g.add1(Gather(0), n.need(2), ids)
    total = _numbers(n, g, words, 8, 13)
    places = slice_axis(g, n.need(3), 0, 0, length)
    total = g.add1(Binary("add"), total, _numbers(n, g, places, 9, 14))
    if n.input(1) is not None:
        segments = g.add1(Gather(0), n.need(4), n.need(1))
        total = g.add1(Binary("add"), total, _numbers(n, g, segments, 10, 15))
    gamma, beta = (_numbers(n, g, n.need(i), i + 6, i + 11) for i in (5, 6))
    op = LayerNorm(2, float(n.attr("epsilon", 1e-12)))
    y = g.add1(op, total, gamma, beta)
    if n.num_outputs < 2:
        return (y,)
    mask = n.input(7)
    if mask is not None:
        return y, g.add1(Reduce("sum", (1,), keepdims=False), mask)
    return y, g.add1(Expand((batch,)), g.constant(np.zeros(1, np.int32)))


def _numbers(n: OnnxNode, g: GraphBuilder, codes: Value, scale: int, zero: int) -> Value:
    """float32 numbers of codes whose parameters are the inputs `scale` and `zero`."""
    return g.add1(Dequantize(F32), codes, scalar(g, n.need(scale)), scalar_zero(n, g, zero))
