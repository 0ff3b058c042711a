"""Give every graph output a value of its own, made by a node: each binding has its own memory."""

from __future__ import annotations

from dataclasses import replace

from braze.ir.graph import Graph, Node, Value
from braze.ops.flow.base import FlowOp, late_outputs
from braze.ops.move.shape import Reshape
from braze.passes.base import PassContext


def separate_outputs(graph: Graph, ctx: PassContext) -> Graph:
    """Copy an output that is a graph input or a constant, that appears twice, or that control flow
    makes with a size that only the run knows.

    The copy is a Reshape to the same shape; passes that remove such run before this one.
    """
    names = {v.name for v in (*graph.inputs, *graph.constants, *graph.producer)}
    seen: set[Value] = set()
    late = {v for n in graph.nodes if isinstance(n.op, FlowOp) for v in late_outputs(n)}
    nodes, outputs = list(graph.nodes), []
    for name, v in graph.outputs:
        own = v
        if v in seen or v not in graph.producer or v in late:
            own = Value(_fresh(f"{v.name}_as_{name}", names), v.type)
            nodes.append(Node(Reshape(v.shape), (v,), (own,), ()))
        seen.add(own)
        outputs.append((name, own))
    if len(nodes) == len(graph.nodes):
        return graph
    return replace(graph, nodes=tuple(nodes), outputs=tuple(outputs))


def _fresh(hint: str, names: set[str]) -> str:
    name, number = hint, 1
    while name in names:
        name, number = f"{hint}_{number}", number + 1
    names.add(name)
    return name
