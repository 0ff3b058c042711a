"""Elementwise ops with a constant move from behind a Concat to its pieces.

    Concat(a, b, ..) + c  ->  Concat(a + c[part of a], b + c[part of b], ..)

There they are computed where the pieces are made, or copied; behind it they are a kernel more. The
position embeddings of a vision transformer are such an addend.
"""

from __future__ import annotations

from braze.core.dims import Dim, is_static, number
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.base import Array
from braze.ops.move.concat_split import Concat
from braze.ops.pointwise.elementwise import Binary
from braze.passes.base import PassContext
from braze.passes.rewrite import producer, rewrite_nodes


def enter_concats(graph: Graph, ctx: PassContext) -> Graph:
    """Compute with pieces what is computed with a Concat of them and a constant."""
    return rewrite_nodes(graph, {Binary: _entered}, ctx, "enter_concats")


def _entered(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    concats = [producer(editor, v, Concat) for v in node.inputs]
    arrays = [editor.array(v) for v in node.inputs]
    for concat, array, joined in zip(concats, reversed(arrays), node.inputs, strict=True):
        if concat is None or array is None or joined is None:
            continue
        alone = len(editor.users_of(joined)) == 1 and not editor.is_output(joined)
        pieces = [v for v in concat.inputs if v is not None]
        axis = concat.op.axis - joined.type.rank  # from the end, as constants may lack axes
        sizes = [v.shape[axis] for v in pieces]
        if not alone or node.output.type != joined.type or not is_static(sizes):
            return None
        parts = _parts(array, axis, sizes)
        swapped = node.inputs[1] is joined
        made: list[Value] = []
        for piece, part in zip(pieces, parts, strict=True):
            constant = g.constant(part, "part")
            made.append(g.add1(node.op, *((constant, piece) if swapped else (piece, constant))))
        return g.add1(concat.op, *made)
    return None


def _parts(array: Array, axis: int, sizes: list[Dim]) -> list[Array]:
    """What each piece meets of a constant that broadcasts to the whole."""
    if array.ndim < -axis or array.shape[axis] == 1:
        return [array for _ in sizes]
    parts, start = [], 0
    for size in sizes:
        stop = start + number(size)
        parts.append(array.take(range(start, stop), axis))
        start = stop
    return parts
