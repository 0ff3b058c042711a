"""What passes over moved axes ask of nodes: are they elementwise, and what two Transposes make."""

from __future__ import annotations

from braze.core.errors import BrazeError
from braze.expr.fold import leaves
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Node, Value
from braze.ops.lowering import Pointwise
from braze.ops.move.shape import Reshape, Transpose
from braze.passes.rewrite import operand, producer


def is_elementwise(node: Node) -> bool:
    """Whether each output element depends on the operands' elements under broadcasting alone."""
    if len(node.outputs) != 1 or not node.inputs or isinstance(node.op, (Transpose, Reshape)):
        return False
    types = [None if v is None else v.type for v in node.inputs]
    try:
        lowering = node.op.lower(types, [node.output.type])
    except BrazeError:
        return False
    if not isinstance(lowering, Pointwise) or leaves(lowering.expr, "axis"):
        return False
    present = sum(v is not None for v in node.inputs)
    return len(leaves(lowering.expr, "hole")) == present


def compose_transposes(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    """One Transpose (or none) in the place of a Transpose of a Transpose."""
    x, perm = operand(node), node.op.perm
    if perm == tuple(range(len(perm))):
        return x
    inner = producer(editor, x, Transpose)
    if inner is None:
        return None
    both = tuple(inner.op.perm[p] for p in perm)
    source = operand(inner)
    return source if both == tuple(range(len(both))) else g.add1(Transpose(both), source)
