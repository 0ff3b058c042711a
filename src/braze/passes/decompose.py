"""Expand every op whose lowering is a subgraph, until none is left."""

from __future__ import annotations

from braze.core.errors import UnsupportedOpError
from braze.ir.editor import GraphEditor
from braze.ir.graph import Graph, Node
from braze.ops.abilities import refusal
from braze.ops.base import Op
from braze.ops.lowering import Anchor, Decompose
from braze.ops.norm.batch_norm import BatchNorm
from braze.passes.base import PassContext
from braze.passes.rewrite import describe

MAX_ROUNDS = 16


def decompose(graph: Graph, ctx: PassContext) -> Graph:
    """Replace all nodes whose `lower` gives Decompose by what it builds, and so every anchor that
    the backend has no template for and whose fallback is a subgraph.

    Runs last, so that earlier passes see LayerNorm as LayerNorm. Raises UnsupportedOpError when
    an op is still not expanded after MAX_ROUNDS rounds.
    """
    return _expand_all(graph, ctx, (Op,))


def expand_batchnorm(graph: Graph, ctx: PassContext) -> Graph:
    """Every BatchNorm as a factor and a shift, which rules can move."""
    return _expand_all(graph, ctx, (BatchNorm,))


def _expand_all(graph: Graph, ctx: PassContext, classes: tuple[type[Op], ...]) -> Graph:
    """Expand ops of these classes."""
    editor = GraphEditor(graph)
    settled: set[Node] = set()
    for _ in range(MAX_ROUNDS):
        pending = [n for n in editor.walk() if n not in settled and isinstance(n.op, classes)]
        expanded = [n for n in pending if _expand(n, editor, ctx)]
        if not expanded:
            break
        settled.update(set(pending) - set(expanded))
    else:
        raise UnsupportedOpError(
            f"{describe(expanded[0])}: the op keeps expanding into itself; please report this model"
        )
    return editor.finish()


def _expand(node: Node, editor: GraphEditor, ctx: PassContext) -> bool:
    lowering = _expansion(node, editor, ctx)
    if lowering is None:
        return False
    # an earlier expansion of this round may have redirected its inputs
    node = editor.producer_of(node.outputs[0]) or node
    built = editor.rewriter([node])
    new = lowering.build(built, *node.inputs)
    ctx.trace.decide("decompose", at=describe(node), into=[n.op.name for n in built.nodes])
    editor.commit(built, node, dict(zip(node.outputs, new, strict=True)))
    return True


def _expansion(node: Node, editor: GraphEditor, ctx: PassContext) -> Decompose | None:
    """The subgraph that stands for `node`; None when it stays."""
    lowering = node.op.lower(
        [None if v is None else v.type for v in node.inputs], [v.type for v in node.outputs]
    )
    if isinstance(lowering, Anchor) and isinstance(lowering.fallback, Decompose):
        why = refusal(ctx.backend, node, lowering, editor.constants)
        if why is not None:
            ctx.trace.decide("fallback", at=describe(node), reason=why)
            return lowering.fallback
    return lowering if isinstance(lowering, Decompose) else None
