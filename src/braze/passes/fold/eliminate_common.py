"""Common subexpressions: compute equal nodes on equal inputs once."""

from __future__ import annotations

from collections.abc import Hashable

from braze.ir.editor import GraphEditor
from braze.ir.graph import Graph, Node, Value
from braze.passes.base import PassContext


def eliminate_common(graph: Graph, ctx: PassContext) -> Graph:
    """Redirect users of a node to the first equal node, and of a constant to the first equal one.

    Ops are compared by their text, in which -0.0 and 0.0, 1 and True differ (as dataclasses they
    would be equal). Absent operands must be absent in both.
    """
    editor = GraphEditor(graph)
    first: dict[Hashable, tuple[Value, ...]] = {}
    canonical = _equal_constants(graph)
    for found in editor.walk():
        node = found
        inputs = [canonical.get(v, v) if v is not None else None for v in node.inputs]
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            node = editor.set_inputs(node, inputs)
        known = first.setdefault(_key(node), node.outputs)
        if known is not node.outputs and all(
            a.type == b.type for a, b in zip(known, node.outputs, strict=True)
        ):
            built = editor.rewriter([node])
            editor.commit(built, node, dict(zip(node.outputs, known, strict=True)))
    return editor.finish()


def _equal_constants(graph: Graph) -> dict[Value, Value]:
    first: dict[Hashable, Value] = {}
    out = {}
    for value, key in graph.constants.items():
        kept = first.setdefault((key, value.type), value)
        if kept is not value:
            out[value] = kept
    return out


def _key(node: Node) -> Hashable:
    return type(node.op), str(node.op), tuple(None if v is None else id(v) for v in node.inputs)
