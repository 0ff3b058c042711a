"""Make the projections of one tensor to queries, keys and values one product.

    FusedAttention(x @ wq + bq, x @ wk + bk, x @ wv + bv)
        ->  FusedAttention<packed>(x @ [wq wk wv] + [bq bk bv])

Each element is the same sum as before. One product of many columns fills a device that three
narrow ones leave idle, and x is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.base import Array
from braze.ops.move.shape import Reshape
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.attention import FusedAttention
from braze.ops.product.matmul import MatMul
from braze.passes.base import PassContext
from braze.passes.rewrite import producer, rewrite_nodes


def merge_projections(graph: Graph, ctx: PassContext) -> Graph:
    """Join products whose results are the queries, keys and values of one attention alone."""
    if not ctx.backend.preferences.joint_projections:
        return graph
    return rewrite_nodes(graph, {FusedAttention: _merged}, ctx, "merge_projections")


@dataclass(frozen=True)
class Projection:
    """x @ weight + bias of constants; bias: None, or one number a column."""

    x: Value
    weight: Array
    bias: Array | None


def _merged(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    op = node.op
    layouts = {op.q_layout, op.k_layout, op.v_layout}
    operands = [v for v in node.inputs[:3] if v is not None]
    if op.packed or layouts != {"BSHD"} or len({v.type for v in operands}) > 1:
        return None
    found = [_projection(v, editor) for v in operands]
    parts = [p for p in found if p is not None]
    if len(set(operands)) < 3 or len(parts) < 3 or len({p.x for p in parts}) > 1:
        return None
    if len({p.bias is None for p in parts}) > 1:
        return None
    y = g.add1(MatMul(), parts[0].x, _joined(g, [p.weight for p in parts], "weights"))
    biases = [p.bias for p in parts if p.bias is not None]
    if biases:
        y = g.add1(Binary("add"), y, _joined(g, biases, "biases"))
    batch, rows, heads, size = operands[0].shape
    y = g.add1(Reshape((batch, rows, 3 * heads, size)), y)
    return g.add1(replace(op, packed=True), y, *node.inputs[3:])


def _joined(g: Rewriter, arrays: Sequence[Array], name: str) -> Value:
    return g.constant(np.concatenate(arrays, axis=-1), name)


def _projection(v: Value, editor: GraphEditor) -> Projection | None:
    """The product that `v`, [B, S, heads, size], is a reshape of; None where others read it."""
    reshaped = producer(editor, v, Reshape)
    if reshaped is None or not _is_private(v, editor):
        return None
    result = reshaped.inputs[0]
    columns = v.shape[2] * v.shape[3]
    if result is None or result.shape[-1] != columns or not _is_private(result, editor):
        return None
    bias: Array | None = None
    added = producer(editor, result, Binary)
    if added is not None:
        constants = [i for i in added.inputs if i is not None and editor.array(i) is not None]
        others = [i for i in added.inputs if i is not None and editor.array(i) is None]
        if added.op.op != "add" or len(constants) != 1 or len(others) != 1:
            return None
        bias, result = editor.array(constants[0]), others[0]
        assert bias is not None
        if bias.size != columns or result.type != added.output.type:
            return None
        bias = bias.reshape(-1)
        if not _is_private(result, editor):
            return None
    product = producer(editor, result, MatMul)
    if product is None:
        return None
    x, weight = product.inputs
    array = None if weight is None else editor.array(weight)
    if x is None or array is None or array.ndim != 2 or array.shape[1] != columns:
        return None
    return Projection(x, array, bias)


def _is_private(v: Value, editor: GraphEditor) -> bool:
    return len(editor.users_of(v)) == 1 and not editor.is_output(v)
