"""Remove nodes and constants that no graph output depends on."""

from __future__ import annotations

from dataclasses import replace

from braze.ir.graph import Graph
from braze.ir.run_sizes import sizes_of_nodes
from braze.passes.base import PassContext


def eliminate_dead(graph: Graph, ctx: PassContext) -> Graph:
    """The graph without what its outputs do not need. Graph inputs always stay."""
    needed = set(graph.kept_values)
    kept = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs):
            kept.append(node)
            needed.update(v for v in node.inputs if v is not None)
    sizes = sizes_of_nodes(graph, kept)
    constants = {v: key for v, key in graph.constants.items() if v in needed}
    done = replace(graph, nodes=tuple(reversed(kept)), constants=constants, sizes=sizes)
    if len(sizes) < len(graph.sizes):  # what only they needed
        return eliminate_dead(done, ctx)
    same = len(kept) == len(graph.nodes) and len(constants) == len(graph.constants)
    return graph if same else done
