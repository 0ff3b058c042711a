"""Heads that share their keys and values become rows of one head.

    Attention(q [b, g * r, 1, d], k repeated r times, v repeated r times)
        ->  Attention(q [b, g, r, d], k [b, g, s, d], v [b, g, s, d])

What a decoder with grouped queries does for its next token (Ainslie et al., "GQA", 2023). Rows of
an attention do not know of each other, so that each row is what it was; keys and values are not
written out r times, and read once for all their queries.
"""

from __future__ import annotations

from dataclasses import replace

from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.move.shape import Expand, Reshape, reshape
from braze.ops.product.attention import LAYOUTS, FusedAttention
from braze.passes.base import PassContext
from braze.passes.rewrite import rewrite_nodes


def group_queries(graph: Graph, ctx: PassContext) -> Graph:
    """Attention of one query a head whose keys and values are repeated over heads."""
    if not ctx.backend.preferences.grouped_queries:
        return graph
    return rewrite_nodes(graph, {FusedAttention: _grouped}, ctx, "group_queries")


def _grouped(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    op, (q, k, v, *masks) = node.op, node.inputs
    if q is None or k is None or v is None or any(m is not None for m in masks):
        return None
    batch, _, rows, size = (q.shape[i] for i in LAYOUTS[op.q_layout])
    keys, values = (
        _repeated(x, LAYOUTS[layout][1], editor, g)
        for x, layout in ((k, op.k_layout), (v, op.v_layout))
    )
    if rows != 1 or keys is None or values is None or keys[1] != values[1]:
        return None
    few = keys[0].shape[LAYOUTS[op.k_layout][1]]
    # with one row a head, heads lie one behind the other in both layouts
    new = replace(op, causal=False, q_layout="BHSD", out_layout="BHSD")
    grouped = reshape(g, q, (batch, few, keys[1], size))
    return reshape(g, g.add1(new, grouped, keys[0], values[0]), node.output.shape)


def _repeated(
    value: Value, heads: int, editor: GraphEditor, g: Rewriter
) -> tuple[Value, int] | None:
    """(x, r) where `value` has each head of x, along axis `heads`, r times in a row."""
    outer = editor.producer_of(value)
    inner = editor.producer_of(outer.inputs[0]) if outer and isinstance(outer.op, Reshape) else None
    if inner is None or not isinstance(inner.op, Expand) or inner.inputs[0] is None:
        return None
    few, many = inner.inputs[0], inner.output.shape
    at = heads + 1
    if few.type.rank != len(many) or len(many) != value.type.rank + 1 or few.shape[at] != 1:
        return None
    count, kept = many[at], few.shape[:at] + few.shape[at + 1 :]
    same = few.shape[:at] == many[:at] and few.shape[at + 1 :] == many[at + 1 :]
    merged = (*many[:heads], many[heads] * count, *many[at + 1 :])
    if not same or merged != value.shape or not isinstance(count, int):
        return None
    return reshape(g, few, kept), count
