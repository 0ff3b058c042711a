"""Attention in one op, which reads its operands as they lie in memory."""

from __future__ import annotations

from braze.ir.graph import Graph
from braze.ops.product.attention import FusedAttention
from braze.passes.base import PassContext
from braze.passes.rewrite import apply_rules, rewrite_nodes
from braze.passes.rules import attention


def fuse_attention(graph: Graph, ctx: PassContext) -> Graph:
    """Recognise softmax(q k') v."""
    return apply_rules(graph, attention.rules(ctx.backend), ctx)


def absorb_heads(graph: Graph, ctx: PassContext) -> Graph:
    """The Transposes of heads before and behind attention become its layouts."""
    absorb = {FusedAttention: attention.absorbed_operands}
    return rewrite_nodes(graph, absorb, ctx, "AbsorbOperands")
