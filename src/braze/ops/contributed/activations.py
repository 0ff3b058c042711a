"""Activations of the domain com.microsoft, some with a bias in front."""

from __future__ import annotations

from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Importer, OnnxNode
from braze.ops.pointwise.activation import Gelu, Silu
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.elementwise import Binary
from braze.ops.writing.precision import compute_type, require_float, same_dtype
from braze.ops.writing.vector import check_vector


def add_wide(g: GraphBuilder, x: Value, y: Value) -> Value:
    """x + y, of one type, in the compute type of x."""
    wide = compute_type(same_dtype([x.type, y.type], "Add"))
    return g.add1(Binary("add"), cast_to(g, x, wide), cast_to(g, y, wide))


def gelu_importer(approximate: str) -> Importer:
    """Importer of Gelu, BiasGelu ("none") and FastGelu ("tanh"): gelu(x + bias), bias optional."""

    def import_gelu(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        x, bias = n.need(0), n.input(1)
        require_float(x.dtype, n.op_type)
        if bias is None:
            return (g.add1(Gelu(approximate), x),)
        count = x.shape[-1] if x.shape else 1
        check_vector(n, g, bias, count, "elements on the last axis")
        return (cast_to(g, g.add1(Gelu(approximate), add_wide(g, x, bias)), x.dtype),)

    return import_gelu


def import_quick_gelu(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """QuickGelu: x * sigmoid(alpha * x), alpha 1.702 by default."""
    return (g.add1(Silu(float(n.attr("alpha", 1.702))), n.need(0)),)
