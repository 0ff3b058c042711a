"""Which nodes of a graph are needed, and in which order they run."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from braze.core.errors import ModelError
from braze.frontend.onnx.records import GraphRecord, NodeRecord

MAX_NAMED_NODES = 8


def captured_names(graph: GraphRecord) -> set[str]:
    """Names that a subgraph reads from the graphs around it."""
    own = {i.name for i in graph.inputs} | set(graph.initializers)
    for n in graph.nodes:
        own.update(n.outputs)
    read = {o.name for o in graph.outputs}
    for n in graph.nodes:
        read |= read_names(n)
    return read - own - {""}


def read_names(node: NodeRecord) -> set[str]:
    """Names of all tensors a node needs, including those its subgraphs capture."""
    names = set(node.inputs)
    for g in node.subgraphs:
        names |= captured_names(g)
    return names - {""}


def order_nodes(
    nodes: Sequence[NodeRecord],
    outputs: Iterable[str],
    is_defined: Callable[[str], bool],
    where: str,
) -> tuple[NodeRecord, ...]:
    """The nodes that `outputs` need, in topological order (file order among independent ones).

    is_defined: tells whether a name is an input, an initializer or a tensor of an outer graph.
    Raises ModelError for a tensor written twice, a tensor nobody writes, and cycles.
    """
    producer = _producers(nodes, where)
    reads = [sorted(read_names(n)) for n in nodes]
    needed = _needed(nodes, reads, list(outputs), producer, is_defined, where)
    waiting: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    for i in needed:
        sources = {producer[name] for name in reads[i] if name in producer}
        waiting[i] = len(sources)
        for s in sources:
            users.setdefault(s, []).append(i)
    ready = [i for i, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    ordered: list[NodeRecord] = []
    while ready:
        i = heapq.heappop(ready)
        del waiting[i]
        ordered.append(nodes[i])
        for u in users.get(i, ()):
            waiting[u] -= 1
            if waiting[u] == 0:
                heapq.heappush(ready, u)
    if waiting:
        raise ModelError(f"{where}: {_cycle_text(nodes, reads, waiting, producer)}")
    return tuple(ordered)


def _producers(nodes: Sequence[NodeRecord], where: str) -> dict[str, int]:
    producer: dict[str, int] = {}
    for i, n in enumerate(nodes):
        for name in n.outputs:
            if not name:
                continue
            if name in producer:
                raise ModelError(
                    f"{where}: tensor {name!r} is written by {nodes[producer[name]].where} and by "
                    f"{n.where}; every tensor must have one producer"
                )
            producer[name] = i
    return producer


def _needed(
    nodes: Sequence[NodeRecord],
    reads: Sequence[Sequence[str]],
    outputs: Sequence[str],
    producer: dict[str, int],
    is_defined: Callable[[str], bool],
    where: str,
) -> set[int]:
    needed: set[int] = set()
    stack: list[int] = []
    for name in outputs:
        if name in producer:
            stack.append(producer[name])
        elif not is_defined(name):
            raise ModelError(f"{where}: output {name!r} is written by no node; fix the model")
    while stack:
        i = stack.pop()
        if i in needed:
            continue
        needed.add(i)
        for name in nodes[i].outputs:
            if name and is_defined(name):
                raise ModelError(
                    f"{where}: tensor {name!r} is written by {nodes[i].where} but is also an "
                    "input, an initializer or a tensor of an outer graph; rename one of them"
                )
        for name in reads[i]:
            if name in producer:
                stack.append(producer[name])
            elif not is_defined(name):
                raise ModelError(
                    f"{where}: {nodes[i].where} reads tensor {name!r}, which is no input, no "
                    "initializer and no node's output; fix the model"
                )
    return needed


def _cycle_text(
    nodes: Sequence[NodeRecord],
    reads: Sequence[Sequence[str]],
    waiting: dict[int, int],
    producer: dict[str, int],
) -> str:
    """Follow producers among the blocked nodes until one repeats: that is a cycle."""
    path: list[int] = []
    i = min(waiting)
    while i not in path:
        path.append(i)
        i = next(producer[r] for r in reads[i] if producer.get(r) in waiting)
    cycle = path[path.index(i) :][::-1]
    names = [nodes[k].where for k in cycle[:MAX_NAMED_NODES]]
    more = f" and {len(cycle) - len(names)} more" if len(cycle) > len(names) else ""
    return f"the graph has a cycle through {', '.join(names)}{more}; fix the model"
