"""Move Transposes towards the outputs, so that they meet and cancel.

A Transpose of the operand becomes a Transpose of the result: `op(T(x))` -> `T(op'(x))`, where
`op'` is the op with its axes renamed. Only the place of elements changes, never a value: the
elements of a reduction are added in another order only where the op itself fixes none.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from braze.core.bounds import bounds
from braze.core.dims import Shape
from braze.core.errors import BrazeError
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.base import Perm
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.writing.axes import inverse, moves_only_unit_axes
from braze.passes.base import PassContext
from braze.passes.rewrite import describe, operand, producer
from braze.passes.shapes.axes import compose_transposes, is_elementwise

UNBOUNDED_SIZE: Final = 64  # stands for a symbol without bounds when costs are compared


def sink_transposes(graph: Graph, ctx: PassContext) -> Graph:
    """Push every Transpose as far down as it goes, and cancel those that meet."""
    editor = GraphEditor(graph)
    for node in editor.walk():
        if type(node.op) is Transpose:
            sunk = _merge(node, editor)
        elif type(node.op) is Concat:
            sunk = _sink_concat(node, editor)
        else:
            sunk = _sink_unary(node, editor) or _sink_pointwise(node, editor)
        if sunk:
            ctx.trace.decide("rewrite", rule="sink_transposes", at=describe(node), nodes=1)
    return editor.finish()


def untangle_reshapes(graph: Graph, ctx: PassContext) -> Graph:
    """Turn Reshape, Transpose, Reshape into fewer ops where the Transpose tears no group apart."""
    editor = GraphEditor(graph)
    for node in editor.walk():
        if type(node.op) is Transpose:
            _merge(node, editor)
        elif type(node.op) is Reshape and _sink_unary(node, editor):
            ctx.trace.decide("rewrite", rule="untangle_reshapes", at=describe(node), nodes=2)
    return editor.finish()


def _merge(node: Node, editor: GraphEditor) -> bool:
    built = editor.rewriter([node])
    merged = compose_transposes(node, editor, built)
    return merged is not None and _commit(editor, built, node, {node.output: merged})


def _sink_unary(node: Node, editor: GraphEditor) -> bool:
    transposed = producer(editor, node.inputs[0], Transpose) if node.inputs else None
    if transposed is None:
        return False
    outputs = len(node.outputs)
    renamed = node.op.permuted(transposed.op.perm, operand(node).type, outputs)
    if renamed is None:
        return False
    op, perm = renamed
    built = editor.rewriter([node])
    results = built.add(op, operand(transposed), *node.inputs[1:])
    new = {
        old: built.add1(Transpose(perm), r) if perm != tuple(range(len(perm))) else r
        for old, r in zip(node.outputs, results, strict=True)
    }
    return _commit(editor, built, node, new)


def _commit(editor: GraphEditor, built: Rewriter, node: Node, new: dict[Value, Value]) -> bool:
    if any(old.type != v.type for old, v in new.items()):
        return False
    editor.commit(built, node, new)
    return True


# ------------------------------------------------------------------ ops with several operands


def _sink_pointwise(node: Node, editor: GraphEditor) -> bool:
    if not any(producer(editor, v, Transpose) for v in node.inputs) or not is_elementwise(node):
        return False
    rank = node.output.type.rank
    perm = _common_perm(node, editor, rank)
    if perm is None:
        return False
    built = editor.rewriter([node])
    inputs = [None if v is None else _in_layout(v, perm, rank, editor, built) for v in node.inputs]
    try:
        (result,) = built.add(node.op, *inputs)
    except BrazeError:
        return False  # an op that broadcasts one way only
    return _commit(editor, built, node, {node.output: built.add1(Transpose(perm), result)})


def _sink_concat(node: Node, editor: GraphEditor) -> bool:
    rank = node.output.type.rank
    perm = _common_perm(node, editor, rank)
    if perm is None:
        return False
    built = editor.rewriter([node])
    inputs = [_in_layout(v, perm, rank, editor, built) for v in node.inputs if v is not None]
    result = built.add1(Concat(perm[node.op.axis]), *inputs)
    return _commit(editor, built, node, {node.output: built.add1(Transpose(perm), result)})


def _common_perm(node: Node, editor: GraphEditor, rank: int) -> Perm | None:
    """The perm worth sinking: operands that have it outweigh those that would get a Transpose."""
    gain: dict[Perm, int] = {}
    for v in node.inputs:
        inner = producer(editor, v, Transpose)
        if inner is not None and len(inner.op.perm) == rank:
            gain[inner.op.perm] = gain.get(inner.op.perm, 0) + _cost(inner.output, editor)
    if not gain:
        return None
    perm = max(gain, key=lambda p: gain[p])
    loss = 0
    for v in node.inputs:
        if v is None or v in editor.constants:
            continue
        inner = producer(editor, v, Transpose)
        if inner is None or inner.op.perm != perm:
            full = (1,) * (rank - v.type.rank) + v.shape
            loss += 0 if moves_only_unit_axes(full, inverse(perm)) else _cost(v, editor)
    return perm if loss == 0 or loss < gain[perm] else None


def _cost(value: Value, editor: GraphEditor) -> int:
    """Elements of `value`, symbols at their upper bounds."""
    env = {s: (hi, hi) for s, (_, hi) in editor.graph.bounds.items()}
    total = 1
    for d in value.shape:
        try:
            total *= max(bounds(d, env)[1], 1)
        except BrazeError:
            total *= UNBOUNDED_SIZE
    return total


def _in_layout(v: Value, perm: Perm, rank: int, editor: GraphEditor, g: Rewriter) -> Value:
    """A value x with T(x) = v, for T of `perm`; v of lower rank broadcasts."""
    inner = producer(editor, v, Transpose)
    if inner is not None and inner.op.perm == perm:
        return operand(inner)
    if v.type.rank == 0 or all(d == 1 for d in v.shape):
        return v
    full: Shape = (1,) * (rank - v.type.rank) + v.shape
    back = inverse(perm)
    array = editor.array(v)
    if array is not None:
        moved = array.reshape(full).transpose(back)
        while moved.ndim > 1 and moved.shape[0] == 1 and v.type.rank < rank:
            moved = moved[0]
        return g.constant(np.ascontiguousarray(moved), v.name)
    wide = v if v.type.rank == rank else g.add1(Reshape(full), v)
    return g.add1(Transpose(back), wide)
