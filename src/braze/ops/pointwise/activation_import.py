"""ONNX activations to IR classes."""

from __future__ import annotations

import math

from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Importer, OnnxNode
from braze.ops.move.shape import Reshape
from braze.ops.pointwise.activation import (
    SELU_ALPHA,
    SELU_GAMMA,
    Activation,
    Celu,
    Clip,
    Elu,
    Gelu,
    HardSigmoid,
    LeakyRelu,
    PRelu,
    Selu,
    Shrink,
    Silu,
    ThresholdedRelu,
)
from braze.ops.pointwise.elementwise import Binary


def activation_importer(op: Activation) -> Importer:
    """Importer of an activation without attributes."""

    def import_activation(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        return (g.add1(op, n.need(0)),)

    return import_activation


def import_leaky_relu(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """LeakyRelu, alpha 0.01 by default."""
    return (g.add1(LeakyRelu(float(n.attr("alpha", 0.01))), n.need(0)),)


def import_elu(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Elu, alpha 1 by default."""
    return (g.add1(Elu(float(n.attr("alpha", 1.0))), n.need(0)),)


def import_selu(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Selu with the constants of the ONNX text by default."""
    op = Selu(float(n.attr("alpha", SELU_ALPHA)), float(n.attr("gamma", SELU_GAMMA)))
    return (g.add1(op, n.need(0)),)


def import_celu(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Celu, alpha 1 by default."""
    return (g.add1(Celu(float(n.attr("alpha", 1.0))), n.need(0)),)


def import_hard_sigmoid(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """HardSigmoid, alpha 0.2 and beta 0.5 by default."""
    op = HardSigmoid(float(n.attr("alpha", 0.2)), float(n.attr("beta", 0.5)))
    return (g.add1(op, n.need(0)),)


def import_thresholded_relu(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """ThresholdedRelu, alpha 1 by default."""
    return (g.add1(ThresholdedRelu(float(n.attr("alpha", 1.0))), n.need(0)),)


def import_shrink(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Shrink, lambd 0.5 and bias 0 by default."""
    op = Shrink(float(n.attr("lambd", 0.5)), float(n.attr("bias", 0.0)))
    return (g.add1(op, n.need(0)),)


def import_swish(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Swish: x * sigmoid(alpha * x), alpha 1 by default."""
    return (g.add1(Silu(float(n.attr("alpha", 1.0))), n.need(0)),)


def import_gelu(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Gelu with approximate "none" (default) or "tanh"."""
    approximate = n.attr("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise n.invalid(f"approximate={approximate!r} is not none or tanh")
    return (g.add1(Gelu(approximate), n.need(0)),)


def import_prelu(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """PRelu: slope broadcasts one way to x."""
    return (g.add1(PRelu(), n.need(0), n.need(1)),)


def import_clip(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Clip: bounds are attributes up to opset 10, optional inputs from opset 11 on."""
    x = n.need(0)
    if n.opset < 11:
        lo = _attribute_bound(n, x, "min")
        hi = _attribute_bound(n, x, "max")
        return (g.add1(Clip(lo, hi), x),)
    lows, highs = n.input(1), n.input(2)
    lo, hi = _constant_bound(g, lows), _constant_bound(g, highs)
    if (lows is None or lo is not None) and (highs is None or hi is not None):
        return (g.add1(Clip(lo, hi), x),)
    y = x
    for op, bound in (("max", lows), ("min", highs)):
        if bound is not None:
            flat = bound if bound.type.rank == 0 else g.add1(Reshape(()), bound)
            y = g.add1(Binary(op), y, flat)
    return (y,)


def _attribute_bound(n: OnnxNode, x: Value, key: str) -> float | None:
    value = n.attr(key)
    if value is None or not x.dtype.is_int:
        return None if value is None else float(value)
    if abs(value) >= 2.0**63:
        return None  # the defaults of the ONNX text: no bound
    if value != int(value):
        raise n.unsupported(f"{key}={value} on an integer tensor is not a whole number")
    return int(value)


def _constant_bound(g: GraphBuilder, v: Value | None) -> float | None:
    """The number in a constant bound; None when it is absent, computed, or NaN."""
    array = g.array(v)
    if array is None or v is None:
        return None
    flat = array.reshape(-1)
    if v.dtype.is_int:
        return int(flat[0])
    number = float(flat[0])
    return None if math.isnan(number) else number
