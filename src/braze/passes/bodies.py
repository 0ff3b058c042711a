"""Bodies of control flow seen from the graph around them: what enters and leaves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from braze.ir.graph import Graph, Node, Value, bodies_of


def map_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The graph with every body of its nodes changed; the same object where none is."""
    nodes = []
    for node in graph.nodes:
        bodies = bodies_of(node)
        changed = [change(body) for body in bodies]
        same = all(a is b for a, b in zip(bodies, changed, strict=True))
        nodes.append(node if same else replace(node, op=node.op.with_bodies(changed)))
    return _with_nodes(graph, nodes)


def enter_constants(graph: Graph) -> Graph:
    """Make captured constants constants of the bodies that read them."""
    return _with_nodes(graph, [_entered(graph, n) if bodies_of(n) else n for n in graph.nodes])


def _with_nodes(graph: Graph, nodes: list[Node]) -> Graph:
    if all(a is b for a, b in zip(graph.nodes, nodes, strict=True)):
        return graph
    used = {v for n in nodes for v in n.inputs} | graph.kept_values
    constants = {v: key for v, key in graph.constants.items() if v in used}
    return replace(graph, nodes=tuple(nodes), constants=constants)


def _entered(graph: Graph, node: Node) -> Node:
    """The node without captured inputs that are constant."""
    captured = node.op.captured
    first = len(node.inputs) - captured
    passed = list(enumerate(node.inputs))[first:]
    known = {i: graph.constants[v] for i, v in passed if v is not None and v in graph.constants}
    if not known:
        return node
    bodies = []
    for body in bodies_of(node):
        at = len(body.inputs) - captured - first  # where the same input stands in the body
        moved = {body.inputs[at + i]: key for i, key in known.items()}
        inputs = tuple(v for v in body.inputs if v not in moved)
        read: set[Value | None] = set(body.kept_values)
        read.update(v for n in body.nodes for v in n.inputs)
        constants = {**body.constants, **{v: k for v, k in moved.items() if v in read}}
        bodies.append(replace(body, inputs=inputs, constants=constants))
    kept = tuple(v for i, v in enumerate(node.inputs) if i not in known)
    return replace(node, op=node.op.with_bodies(bodies), inputs=kept)
