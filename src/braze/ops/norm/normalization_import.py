"""ONNX normalisation ops to IR classes."""

from __future__ import annotations

from braze.core.dtypes import BF16, F16, F32, F64, DType, from_onnx
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.move.shape import reshape
from braze.ops.norm.batch_norm import BatchNorm
from braze.ops.norm.channel_norm import GroupNorm, InstanceNorm
from braze.ops.norm.local_norm import LpNormalize, Lrn
from braze.ops.norm.normalization import LayerNorm, RmsNorm
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.reduce.reduce import Reduce
from braze.ops.writing.broadcast import normalize_axes, normalize_axis
from braze.ops.writing.precision import compute_type


def _where(n: OnnxNode) -> str:
    return f"node {n.name!r} ({n.op_type})"


def _stash(n: OnnxNode) -> DType:
    """The type of stage one; statistics are never taken in less than float32."""
    stash = from_onnx(int(n.attr("stash_type", 1)), _where(n))
    if stash not in (F32, F64, F16, BF16):
        raise n.invalid(f"stash_type {stash} is not a floating-point type")
    return stash


def import_layer_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """LayerNormalization with its optional outputs Mean and InvStdDev."""
    x = n.need(0)
    axis = normalize_axis(n.attr("axis", -1), x.type.rank, _where(n))
    op = LayerNorm(axis, float(n.attr("epsilon", 1e-5)), n.num_outputs > 1, _stash(n))
    return g.add(op, x, n.need(1), n.input(2))


def import_rms_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """RMSNormalization."""
    x = n.need(0)
    _stash(n)
    axis = normalize_axis(n.attr("axis", -1), x.type.rank, _where(n))
    return (g.add1(RmsNorm(axis, float(n.attr("epsilon", 1e-5))), x, n.need(1)),)


def import_group_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """GroupNormalization: scale and bias a group in opset 18, a channel from opset 21 on."""
    _stash(n)
    op = GroupNorm(
        int(n.attr("num_groups", 0)), float(n.attr("epsilon", 1e-5)), per_group=n.opset < 21
    )
    if op.num_groups < 1:
        raise n.invalid("num_groups must be at least 1")
    return (g.add1(op, n.need(0), n.need(1), n.need(2)),)


def import_instance_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """InstanceNormalization."""
    op = InstanceNorm(float(n.attr("epsilon", 1e-5)))
    return (g.add1(op, n.need(0), n.need(1), n.need(2)),)


def import_batch_norm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """BatchNormalization with given statistics, or with those of x (training_mode, opset 14 on).

    The five outputs of training before opset 14 are refused; so is spatial=0 (opset 7, 8), one
    statistic an element.
    """
    training = n.opset >= 14 and bool(n.attr("training_mode", 0))
    if n.num_outputs > 1 and not training:
        raise n.unsupported(
            "statistics are outputs of training mode only (training_mode=1, opset 14 or later); "
            "export the model for inference"
        )
    if n.opset < 9 and not n.attr("spatial", 1):
        raise n.unsupported("spatial=0 is not supported; export with opset 9 or later")
    op = BatchNorm(float(n.attr("epsilon", 1e-5)))
    x, scale, bias, *given = (n.need(i) for i in range(5))
    if not training:
        return (g.add1(op, x, scale, bias, *given),)
    statistics = _channel_statistics(n, g, x)
    keep = float(n.attr("momentum", 0.9))
    running = (_running(g, old, new, keep) for old, new in zip(given, statistics, strict=True))
    return (g.add1(op, x, scale, bias, *statistics), *running)


def _channel_statistics(n: OnnxNode, g: GraphBuilder, x: Value) -> tuple[Value, Value]:
    """Mean and variance (of the population, around the mean) of each channel of [N, C, ...]."""
    if x.type.rank < 2:
        raise n.unsupported("training mode of a vector; give x a batch axis and a channel axis")
    axes = (0, *range(2, x.type.rank))
    x = cast_to(g, x, compute_type(x.dtype))
    mean = g.add1(Reduce("mean", axes, True), x)
    deviation = g.add1(Binary("sub"), x, mean)
    variance = g.add1(Reduce("mean", axes, False), g.add1(Binary("mul"), deviation, deviation))
    return reshape(g, mean, (x.shape[1],)), variance


def _running(g: GraphBuilder, old: Value, new: Value, keep: float) -> Value:
    """old * keep + new * (1 - keep), in the type of `old`."""
    wide = compute_type(old.dtype)
    parts = [
        g.add1(Binary("mul"), cast_to(g, v, wide), constant_like(g, share, wide))
        for v, share in ((old, keep), (new, 1 - keep))
    ]
    return cast_to(g, g.add1(Binary("add"), *parts), old.dtype)


def import_lrn(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """LRN across channels."""
    op = Lrn(
        int(n.attr("size", 0)),
        float(n.attr("alpha", 1e-4)),
        float(n.attr("beta", 0.75)),
        float(n.attr("bias", 1.0)),
    )
    if op.size < 1:
        raise n.invalid("size must be at least 1")
    return (g.add1(op, n.need(0)),)


def import_lp_normalization(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """LpNormalization, p 1 or 2."""
    p = int(n.attr("p", 2))
    if p not in (1, 2):
        raise n.invalid(f"p={p} is not 1 or 2")
    x = n.need(0)
    axis = normalize_axis(n.attr("axis", -1), x.type.rank, _where(n))
    return (g.add1(LpNormalize(axis, p), x),)


def import_mean_variance_normalization(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """MeanVarianceNormalization: (x - mean) / (deviation + 1e-9) over `axes` (default 0, 2, 3).

    The variance is taken around the mean, not as E[x^2] - E[x]^2, which cancels.
    """
    source = n.need(0)
    x = cast_to(g, source, compute_type(source.dtype))
    axes = normalize_axes(n.attr("axes", (0, 2, 3)), x.type.rank, _where(n))
    mean = Reduce("mean", axes, True)
    deviation = g.add1(Binary("sub"), x, g.add1(mean, x))
    variance = g.add1(mean, g.add1(Binary("mul"), deviation, deviation))
    spread = g.add1(Binary("add"), g.add1(Unary("sqrt"), variance), constant_like(g, 1e-9, x.dtype))
    return (cast_to(g, g.add1(Binary("div"), deviation, spread), source.dtype),)
