"""Remove nodes and constants that no graph output depends on."""

from __future__ import annotations

from dataclasses import replace

from braze.ir.graph import Graph
from braze.passes.base import PassContext


def eliminate_dead(graph: Graph, ctx: PassContext) -> Graph:
    """The graph without what its outputs do not need. Graph inputs always stay."""
    needed = {v for _, v in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs):
            kept.append(node)
            needed.update(v for v in node.inputs if v is not None)
    constants = {v: key for v, key in graph.constants.items() if v in needed}
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return replace(graph, nodes=tuple(reversed(kept)), constants=constants)
