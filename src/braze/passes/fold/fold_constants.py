"""Evaluate at build time what does not depend on the graph's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braze.core.dims import is_static, static_size
from braze.core.elements import size_of
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.evaluate import evaluate_constants
from braze.ir.graph import Graph, Node, Value
from braze.ops.base import Array
from braze.passes.base import PassContext
from braze.passes.rewrite import describe

# A result may always be this large; a larger one (an Expand or a fill) is folded only when it is
# at most GROWTH times its constant inputs (a Cast of weights), so that folding cannot make an
# engine explode.
SMALL_BYTES: Final = 1 << 16
GROWTH: Final = 4


def fold_constants(graph: Graph, ctx: PassContext) -> Graph:
    """Replace nodes with constant inputs, and sizes that are known, by constants."""
    editor = GraphEditor(graph)
    for node in editor.walk():
        if not all(is_static(v.shape) for v in node.outputs):
            continue
        built = editor.rewriter([node])
        results = _evaluate(node, editor) or _known_sizes(node, built)
        if results is None or not _fits(node, results):
            continue
        new = {v: built.constant(a, v.name) for v, a in zip(node.outputs, results, strict=True)}
        ctx.trace.decide("fold", at=describe(node))
        editor.commit(built, node, new)
    return editor.finish()


def _evaluate(node: Node, editor: GraphEditor) -> Sequence[Array] | None:
    """Results in storage form, or None when an input is not constant or the op refuses."""
    given = [v for v in node.inputs if v is not None]
    if any(v not in editor.constants for v in given):
        return None
    small = sum(_bytes(v) for v in node.outputs) <= SMALL_BYTES
    if not small and sum(map(_bytes, node.outputs)) > GROWTH * sum(map(_bytes, given)):
        return None
    arrays = [editor.array(v) for v in node.inputs]
    return evaluate_constants(node.op, arrays, [v.type for v in node.outputs])


def _bytes(value: Value) -> int:
    count = static_size(tuple(int(d) for d in value.shape if isinstance(d, int)))
    return size_of(count, value.dtype)


def _known_sizes(node: Node, built: Rewriter) -> Sequence[Array] | None:
    """Integer results that follow from static shapes alone (Shape of a static tensor)."""
    if not all(v.dtype.is_int for v in node.outputs):
        return None
    types = [None if v is None else v.type for v in node.inputs]
    contents = node.op.known([built.sizes(v) for v in node.inputs], types, built)
    if contents is None or not all(is_static(c.reshape(-1)) for c in contents):
        return None
    return [c.astype(v.dtype.numpy) for v, c in zip(node.outputs, contents, strict=True)]


def _fits(node: Node, results: Sequence[Array]) -> bool:
    """Whether results are what the node's types promise (a data-dependent shape is not)."""
    return all(
        a.shape == v.shape and a.dtype == v.dtype.numpy
        for v, a in zip(node.outputs, results, strict=True)
    )
