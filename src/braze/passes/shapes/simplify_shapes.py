"""Remove and merge ops that only move or rename elements.

Every rewrite here is exact: not one element changes its value, for any element type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from braze.core.dims import Dim, Shape
from braze.core.dtypes import BF16, F16, F32, F64, DType
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import MAX_PIECES, Concat, Split
from braze.ops.move.shape import Expand, Reshape, Tile, Transpose, reshape
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.writing.axes import moves_only_unit_axes
from braze.passes.base import PassContext
from braze.passes.rewrite import NodeRewrite, operand, producer, rewrite_nodes
from braze.passes.shapes.axes import compose_transposes

# every value of the first type is a value of the second
EXACT_CASTS: Final[frozenset[tuple[DType, DType]]] = frozenset(
    {(F16, F32), (BF16, F32), (F16, F64), (BF16, F64), (F32, F64)}
)


def simplify_shapes(graph: Graph, ctx: PassContext) -> Graph:
    """Merge chains of Reshape, Transpose, Expand, Slice and Cast, and drop those without effect."""
    return rewrite_nodes(graph, REWRITES, ctx, "simplify_shapes")


def _reshape(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    x = operand(node)
    if x.shape == node.output.shape:
        return x
    inner = producer(editor, x, Reshape)
    if inner is None:
        return None
    source = operand(inner)
    return source if source.shape == node.op.shape else g.add1(node.op, source)


def _transpose(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    composed = compose_transposes(node, editor, g)
    if composed is not None:
        return composed
    x = operand(node)
    if moves_only_unit_axes(x.shape, node.op.perm):
        return g.add1(Reshape(node.output.shape), x)
    return None


def _expand(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    x = operand(node)
    if x.shape == node.output.shape:
        return x
    inner = producer(editor, x, Expand)
    return None if inner is None else g.add1(node.op, operand(inner))


def _tile(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    x = operand(node)
    if all(r == 1 for r in node.op.repeats):
        return x
    if all(r == 1 or d == 1 for d, r in zip(x.shape, node.op.repeats, strict=True)):
        return g.add1(Expand(node.output.shape), x)
    return None


def _slice(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    x, op = operand(node), node.op
    if x.shape == op.sizes and all(s == 1 for s in op.steps) and all(s == 0 for s in op.starts):
        return x
    inner = producer(editor, x, Slice)
    if inner is None:
        return None
    starts: list[Dim] = [
        a + s * b for a, s, b in zip(inner.op.starts, inner.op.steps, op.starts, strict=True)
    ]
    steps = tuple(a * b for a, b in zip(inner.op.steps, op.steps, strict=True))
    return g.add1(Slice(tuple(starts), op.sizes, steps), operand(inner))


def _gather(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    """Constant indices in equal steps are a Slice, the same one many times an Expand of it."""
    x, axis = operand(node), node.op.axis
    indices, size = editor.array(node.inputs[1]), x.shape[axis]
    if indices is None or not indices.size or not isinstance(size, int):
        return None
    places = [int(i) for i in indices.reshape(-1)]
    places = [i + size if i < 0 else i for i in places]
    if min(places) < 0 or max(places) >= size:
        return None  # an error that the engine reports when it runs
    step = places[1] - places[0] if len(places) > 1 else 1
    if any(b - a != step for a, b in pairwise(places)):
        return None
    count = len(places) if step else 1
    starts, sizes, steps = [0] * x.type.rank, list(x.shape), [1] * x.type.rank
    starts[axis], sizes[axis], steps[axis] = places[0], count, step or 1
    y = g.add1(Slice(tuple(starts), tuple(sizes), tuple(steps)), x)
    if step:
        return reshape(g, y, node.output.shape)
    y = reshape(g, y, (*x.shape[:axis], *(1,) * indices.ndim, *x.shape[axis + 1 :]))
    return g.add1(Expand(node.output.shape), y)


def _pad(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    return operand(node) if all(p == 0 for p in (*node.op.begins, *node.op.ends)) else None


def _concat(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    axis = node.op.axis
    parts = [v for v in node.inputs if v is not None]
    kept = [v for v in parts if v.shape[axis] != 0] or parts[:1]
    flat: list[Value] = []
    count, times = len(kept), Counter(kept)
    for v in kept:
        inner = producer(editor, v, Concat)
        alone = len(editor.users_of(v)) == 1 and not editor.is_output(v) and times[v] == 1
        grown = count if inner is None else count + len(inner.inputs) - 1
        if inner is not None and inner.op.axis == axis and alone and grown <= MAX_PIECES:
            flat += [u for u in inner.inputs if u is not None]
            count = grown
        else:
            flat.append(v)
    if len(flat) == 1:
        return flat[0]
    return g.add1(node.op, *flat) if flat != parts else None


def _split(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    return operand(node) if len(node.outputs) == 1 else None


def _cast(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    x, to = operand(node), node.op.to
    if x.dtype == to:
        return x
    later = _expanded_later(node, editor, g)
    if later is not None:
        return later
    inner = producer(editor, x, Cast)
    if inner is None or (operand(inner).dtype, x.dtype) not in EXACT_CASTS:
        return None
    source = operand(inner)
    return source if source.dtype == to else g.add1(Cast(to), source)


def _broadcast_operands(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    """Read through Expands that the op's own broadcasting repeats; where every operand can do with
    less than the whole shape, the result is what is repeated."""
    for i, v in enumerate(node.inputs):
        inner = producer(editor, v, Expand)
        if inner is None:
            continue
        inputs = [*node.inputs[:i], operand(inner), *node.inputs[i + 1 :]]
        shapes = [u.shape for u in inputs if u is not None]
        if _broadcasts_without_guard(shapes, node.output.shape):
            return g.add1(node.op, *inputs)
    return _expanded_later(node, editor, g)


def _expanded_later(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    """op(Expand(x), ..) as Expand(op(x, ..)) in front of ops that broadcast: a mask stays small."""
    target, users = node.output.shape, editor.users_of(node.output)
    if editor.is_output(node.output) or not all(type(u.op) in BROADCASTING for u in users):
        return None
    inner = [producer(editor, v, Expand) for v in node.inputs]
    inputs = [
        v if n is None else operand(n) for v, n in zip(node.inputs, inner, strict=True)
    ]
    shapes = [v.shape for v in inputs if v is not None]
    if not any(inner) or any(len(s) > len(target) for s in shapes):
        return None
    for i in range(1, len(target) + 1):
        if any(s[-i] not in (1, target[-i]) for s in shapes if len(s) >= i):
            return None
    small = g.add1(node.op, *inputs)
    return None if small.shape == target else g.add1(Expand(target), small)


def _broadcasts_without_guard(shapes: Sequence[Shape], target: Shape) -> bool:
    """Whether each size of `target` is given by some shape and all others are equal to it or 1."""
    for i in range(1, len(target) + 1):
        sizes = [s[-i] for s in shapes if len(s) >= i]
        if any(d not in (1, target[-i]) for d in sizes) or target[-i] not in sizes:
            return False
    return all(len(s) <= len(target) for s in shapes)


BROADCASTING: Final = (Binary, Compare, Where, Unary, Cast)

REWRITES: Final[Mapping[type[Any], NodeRewrite]] = {
    Reshape: _reshape,
    Transpose: _transpose,
    Expand: _expand,
    Tile: _tile,
    Slice: _slice,
    Gather: _gather,
    Pad: _pad,
    Concat: _concat,
    Split: _split,
    Cast: _cast,
    Binary: _broadcast_operands,
    Compare: _broadcast_operands,
    Where: _broadcast_operands,
    Unary: _expanded_later,
}
