"""Move Reshapes behind elementwise ops, so that those stand next to what computes their operand.

A bias, activation or residual can join the kernel of a matrix product only if it reads the product
itself and not a Reshape of it. Elements keep their row-major order; nothing is computed otherwise.
"""

from __future__ import annotations

from typing import Final

from braze.core.dims import Shape, is_static, static
from braze.core.errors import BrazeError
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.move.shape import Expand, Reshape, Transpose
from braze.ops.move.slice_pad import Slice
from braze.ops.writing.axes import reshape_groups
from braze.passes.base import PassContext
from braze.passes.rewrite import describe, operand, producer
from braze.passes.shapes.axes import is_elementwise

# what moves elements has no kernel that an elementwise op could join
MOVERS: Final = (Reshape, Transpose, Expand, Slice)


def sink_reshapes(graph: Graph, ctx: PassContext) -> Graph:
    """`f(Reshape(x), y)` -> `Reshape(f(x, Reshape(y)))` where x is computed, not moved."""
    editor = GraphEditor(graph)
    for node in editor.walk():
        source = _sinkable(node, editor)
        if source is None or not is_elementwise(node):
            continue
        built = editor.rewriter([node])
        inputs = [
            None if v is None else _under(v, source.shape, node.output.shape, editor, built)
            for v in node.inputs
        ]
        if any(v is not None and w is None for v, w in zip(node.inputs, inputs, strict=True)):
            continue
        try:
            result = built.add1(node.op, *inputs)
        except BrazeError:
            continue  # an op that broadcasts one way only
        if result.shape != source.shape:
            continue
        restored = built.add1(Reshape(node.output.shape), result)
        editor.commit(built, node, {node.output: restored})
        ctx.trace.decide("rewrite", rule="sink_reshapes", at=describe(node), nodes=1)
    return editor.finish()


def _sinkable(node: Node, editor: GraphEditor) -> Value | None:
    """What an operand of the result's shape is a Reshape of, if a node computes it.

    None when another operand is computed for this node alone and in its shape: then the op can
    join the kernel of that one. Of two Reshapes, the one of a value made for this node alone wins.
    """
    if len(node.outputs) != 1 or isinstance(node.op, MOVERS):
        return None
    found: list[Value] = []
    for v in node.inputs:
        if v is None or v.shape != node.output.shape:
            continue
        inner = producer(editor, v, Reshape)
        if inner is None:
            if _is_computed(v, editor) and _is_private(v, editor):
                return None
        elif _is_computed(operand(inner), editor):
            private = _is_private(v, editor) and _is_private(operand(inner), editor)
            found.insert(0 if private else len(found), operand(inner))
    return found[0] if found else None


def _is_computed(v: Value, editor: GraphEditor) -> bool:
    made_by = editor.producer_of(v)
    return made_by is not None and not isinstance(made_by.op, MOVERS)


def _is_private(v: Value, editor: GraphEditor) -> bool:
    return len(editor.users_of(v)) == 1 and not editor.is_output(v)


def _under(
    v: Value, source: Shape, target: Shape, editor: GraphEditor, g: Rewriter
) -> Value | None:
    """The operand `v` of a result of shape `target` for one of shape `source`, else None."""
    if v.type.rank == 0 or all(d == 1 for d in v.shape):
        return v if v.type.rank <= len(source) else g.add1(Reshape(()), v)
    if v.shape == target:
        shape: Shape | None = source
    else:
        shape = _broadcast_under(v.shape, source, target)
    if shape is None:
        return None
    inner = producer(editor, v, Reshape)
    if inner is not None and operand(inner).shape == shape:
        return operand(inner)
    array = editor.array(v)
    if array is not None and is_static(shape):
        return g.constant(array.reshape(static(shape)), v.name)
    return g.add1(Reshape(shape), v)


def _broadcast_under(shape: Shape, source: Shape, target: Shape) -> Shape | None:
    """The broadcast shape for `source`: each group of axes is there as a whole or not at all."""
    groups = reshape_groups(source, target)
    if groups is None or len(shape) > len(target):
        return None
    full = (1,) * (len(target) - len(shape)) + shape
    out = [*source]
    for left, right in groups:
        if all(full[j] == target[j] for j in right):
            continue
        if any(full[j] != 1 for j in right):
            return None
        for i in left:
            out[i] = 1
    while len(out) > 1 and out[0] == 1:
        out.pop(0)
    return tuple(out)
