"""Attention in one op, with the Transposes of its heads absorbed."""

from __future__ import annotations

from braze.ir.graph import Graph
from braze.ops.product.attention import FusedAttention
from braze.passes.base import PassContext
from braze.passes.rewrite import apply_rules, rewrite_nodes
from braze.passes.rules import attention
from braze.passes.shapes.simplify_shapes import simplify_shapes
from braze.passes.shapes.sink_transposes import sink_transposes, untangle_reshapes


def fuse_attention(graph: Graph, ctx: PassContext) -> Graph:
    """Recognise softmax(q k') v, then let it read its operands as they lie in memory.

    Some exporters wrap the Transpose of k in Reshapes, others transpose q, k and v as one tensor
    before they take it apart: Transposes are untangled before and sunk behind.
    """
    straight = simplify_shapes(untangle_reshapes(graph, ctx), ctx)
    fused = apply_rules(straight, attention.RULES, ctx)
    sunk = graph if fused is straight else sink_transposes(fused, ctx)
    absorb = {FusedAttention: attention.absorbed_operands}
    return rewrite_nodes(sunk, absorb, ctx, "AbsorbOperands")
