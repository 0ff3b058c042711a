"""Normalisations of com.microsoft: with a residual in front, an embedding, an activation behind."""

from __future__ import annotations

from braze.core.dtypes import I32, I64
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.index.gather import Gather
from braze.ops.move.shape import reshape
from braze.ops.move.slice_pad import slice_axis
from braze.ops.norm.channel_norm import GroupNorm
from braze.ops.norm.normalization import LayerNorm, RmsNorm
from braze.ops.pointwise.activation import Silu
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare
from braze.ops.pointwise.constant import ConstantOfShape
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.reduce.reduce import Reduce
from braze.ops.writing.arguments import at_least, normalize_axis
from braze.ops.writing.precision import compute_type, require_float
from braze.ops.writing.vector import check_vector


def _inverse_deviation(g: GraphBuilder, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    """1 / sqrt(mean(x²) + epsilon), with size 1 along `axes`."""
    squares = g.add1(Reduce("mean", axes, True), g.add1(Binary("mul"), x, x))
    shifted = g.add1(Binary("add"), squares, constant_like(g, epsilon, x.dtype))
    return g.add1(Unary("reciprocal"), g.add1(Unary("sqrt"), shifted))


def import_simplified_layer_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """SimplifiedLayerNormalization: x / sqrt(mean(x²) + epsilon) * scale over the axes from `axis`
    on; the optional second output is the factor 1 / sqrt."""
    x = n.need(0)
    require_float(x.dtype, n.op_type)
    axis = normalize_axis(int(n.attr("axis", -1)), len(x.shape), n)
    epsilon = float(n.attr("epsilon", 1e-5))
    y = g.add1(RmsNorm(axis, epsilon), x, n.need(1))
    if n.num_outputs < 2:
        return (y,)
    wide = cast_to(g, x, compute_type(x.dtype))
    return y, _inverse_deviation(g, wide, tuple(range(axis, len(x.shape))), epsilon)


def _residual(n: OnnxNode, g: GraphBuilder, bias: Value | None) -> Value:
    """input + skip (+ bias) in the compute type."""
    x, skip = n.need(0), n.need(1)
    require_float(x.dtype, n.op_type)
    wide = compute_type(x.dtype)
    if not 2 <= len(skip.shape) <= len(x.shape):
        raise n.invalid(
            f"skip has rank {len(skip.shape)} and input {len(x.shape)}; give skip the shape of "
            "input, or of one of its batches"
        )
    for a, b in zip(x.shape[-2:], skip.shape[-2:], strict=True):
        g.unify(a, b, f"node {n.name!r} ({n.op_type}): the last axes of input and skip")
    if bias is not None:
        check_vector(n, g, bias, x.shape[-1], "elements on the last axis")
    check_vector(n, g, n.need(2), x.shape[-1], "elements on the last axis", "gamma")
    total = g.add1(Binary("add"), cast_to(g, x, wide), cast_to(g, skip, wide))
    return total if bias is None else g.add1(Binary("add"), total, cast_to(g, bias, wide))


def import_skip_layer_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """SkipLayerNormalization: LayerNormalization of input + skip (+ bias), which is output 3;
    outputs 1 and 2 are the mean and the inverse deviation."""
    x, gamma, beta = n.need(0), n.need(2), n.input(3)
    total, epsilon = _residual(n, g, n.input(4)), float(n.attr("epsilon", 1e-12))
    last = len(x.shape) - 1
    y = cast_to(g, g.add1(LayerNorm(last, epsilon), total, gamma, beta), x.dtype)
    if n.num_outputs == 1:
        return (y,)
    # where nobody reads the statistics, these nodes are dropped
    _, mean, inverse = g.add(LayerNorm(last, epsilon, True), total, gamma, beta)
    return (y, mean, inverse, cast_to(g, total, x.dtype))[: n.num_outputs]


def import_skip_simplified_layer_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """SkipSimplifiedLayerNormalization: the same with RMSNormalization; its mean is 0."""
    x, gamma = n.need(0), n.need(2)
    total, epsilon = _residual(n, g, n.input(3)), float(n.attr("epsilon", 1e-12))
    last = len(x.shape) - 1
    y = cast_to(g, g.add1(RmsNorm(last, epsilon), total, gamma), x.dtype)
    if n.num_outputs == 1:
        return (y,)
    inverse = _inverse_deviation(g, total, (last,), epsilon)
    mean = g.add1(ConstantOfShape(inverse.shape, 0.0, inverse.dtype))
    return (y, mean, inverse, cast_to(g, total, x.dtype))[: n.num_outputs]


def import_embed_layer_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """EmbedLayerNormalization: LayerNormalization of word + position (+ segment) embeddings.

    Outputs: the result, how many entries of the mask are 1 (0 without a mask), the sum.
    """
    ids, segments, words, places = n.need(0), n.input(1), n.need(2), n.need(3)
    dtype, wide = words.dtype, compute_type(words.dtype)
    require_float(dtype, n.op_type)
    if len(ids.shape) != 2 or len(places.shape) != 2:
        raise n.invalid("input_ids and position_embedding must have rank 2")
    total = cast_to(g, g.add1(Gather(0), words, ids), wide)
    where = n.input(8)
    if where is not None:
        place = g.add1(Gather(0), places, where)
    else:
        at_least(places.shape[0], ids.shape[1], g, f"node {n.name!r} position_embedding rows")
        place = slice_axis(g, places, 0, 0, ids.shape[1])
    total = g.add1(Binary("add"), total, cast_to(g, place, wide))
    if segments is not None:
        kind = g.add1(Gather(0), n.need(4), segments)
        total = g.add1(Binary("add"), total, cast_to(g, kind, wide))
    op = LayerNorm(2, float(n.attr("epsilon", 1e-12)))
    y = cast_to(g, g.add1(op, total, n.need(5), n.need(6)), dtype)
    return (y, _mask_index(g, ids, n.input(7)), cast_to(g, total, dtype))[: n.num_outputs]


def _mask_index(g: GraphBuilder, ids: Value, mask: Value | None) -> Value:
    """How many entries of each row of the mask are 1."""
    if mask is None:
        return g.add1(ConstantOfShape((ids.shape[0],), 0, I32))
    one = g.add1(Compare("eq"), mask, constant_like(g, 1, mask.dtype))
    return cast_to(g, g.add1(Reduce("sum", (1,), False), cast_to(g, one, I64)), I32)


def import_group_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """GroupNorm: of [N, H, W, C] or [N, C, H, W], with SiLU behind it if asked for."""
    x = n.need(0)
    require_float(x.dtype, n.op_type)
    y = _group_norm(n, g, cast_to(g, x, compute_type(x.dtype)))
    return (cast_to(g, y, x.dtype),)


def import_skip_group_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """SkipGroupNorm: GroupNorm of X + skip (+ bias), which is output 1."""
    x, skip, bias = n.need(0), n.need(3), n.input(4)
    require_float(x.dtype, n.op_type)
    wide = compute_type(x.dtype)
    first = not n.attr("channels_last", 1)
    if len(skip.shape) == 2:
        batch, channels = skip.shape
        skip = reshape(g, skip, (batch, channels, 1, 1) if first else (batch, 1, 1, channels))
    total = g.add1(Binary("add"), cast_to(g, x, wide), cast_to(g, skip, wide))
    if bias is not None:
        check_vector(n, g, bias, x.shape[1 if first else -1], "channels")
        if first:
            bias = reshape(g, bias, (*bias.shape, 1, 1))
        total = g.add1(Binary("add"), total, cast_to(g, bias, wide))
    y = cast_to(g, _group_norm(n, g, total), x.dtype)
    return (y, cast_to(g, total, x.dtype))[: n.num_outputs]


def _group_norm(n: OnnxNode, g: GraphBuilder, x: Value) -> Value:
    groups, activation = int(n.attr("groups", 0)), int(n.attr("activation", 0))
    if groups < 1 or activation not in (0, 1) or len(x.shape) != 4:
        raise n.invalid(
            f"groups={groups}, activation={activation}, rank {len(x.shape)}; they must be 1 or "
            "more, 0 or 1, and 4"
        )
    layout = "NHWC" if n.attr("channels_last", 1) else "NCHW"
    op = GroupNorm(groups, float(n.attr("epsilon", 1e-5)), layout=layout)
    y = g.add1(op, x, cast_to(g, n.need(1), x.dtype), cast_to(g, n.need(2), x.dtype))
    return g.add1(Silu(1.0), y) if activation else y
