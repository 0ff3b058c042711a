"""Loops that append a tensor to a sequence in each iteration: as loops that stack it.

A sequence is a list of values while a model is imported, so one that grows as often as only the run
knows could not be carried. But what an iteration appends is a slice of a scan output, and all that
is then asked of the sequence can be asked of the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from braze.frontend.onnx.bodies import Site
from braze.frontend.onnx.records import GraphRecord, NodeRecord, ValueRecord
from braze.frontend.onnx.scope import Bound, Listed
from braze.ir.graph import Value


def stacking(site: Site, graph: GraphRecord) -> tuple[Site, list[int]] | None:
    """The loop with what it appends as further scan outputs, and which outputs of the node those
    were; None where a sequence is not empty at first or is used for more."""
    node, first = site.node, site.bound[2:]
    grown = [k for k, v in enumerate(first) if isinstance(v, Listed)]
    items = [_appended(graph, k) if first[k] == Listed(()) else None for k in grown]
    if not grown or None in items:
        return None
    ends = {graph.outputs[1 + k].name for k in grown}
    outputs = [o for i, o in enumerate(graph.outputs) if i - 1 not in grown]
    body = replace(
        graph,
        inputs=tuple(v for i, v in enumerate(graph.inputs) if i - 2 not in grown),
        outputs=(*outputs, *(ValueRecord(item, None, None) for item in items if item)),
        nodes=tuple(n for n in graph.nodes if not ends & set(n.outputs)),
    )
    names = (*node.outputs, *[""] * (len(graph.outputs) - 1 - len(node.outputs)))
    kept = [name for i, name in enumerate(names) if i not in grown]
    stacking_node = replace(
        node,
        inputs=tuple(n for i, n in enumerate(node.inputs) if i - 2 not in grown),
        outputs=(*kept, *(names[k] for k in grown)),
        attributes={**node.attributes, "body": body},
    )
    bound = [v for i, v in enumerate(site.bound) if i - 2 not in grown]
    return replace(site, node=stacking_node, bound=bound), grown


def unstacked(made: list[Bound], grown: list[int]) -> list[Bound]:
    """The outputs of the loop as it was: those it stacked, as sequences, where they were."""
    count = len(made) - len(grown)
    outputs = made[:count]
    for k, stack in zip(grown, made[count:], strict=True):
        outputs.insert(k, Listed((), stack) if isinstance(stack, Value) else stack)
    return outputs


def _appended(graph: GraphRecord, k: int) -> str | None:
    """The tensor that each iteration appends to the k-th sequence, if it does no more with it."""
    start, end = graph.inputs[2 + k].name, graph.outputs[1 + k].name
    makers = [n for n in graph.nodes if end in n.outputs]
    uses = [n for n in graph.nodes if {start, end} & set(_read(n))]
    others = [o.name for i, o in enumerate(graph.outputs) if i != 1 + k]
    if len(makers) != 1 or uses != makers or {start, end} & set(others):
        return None
    (maker,) = makers
    at_the_end = len(maker.inputs) == 2 or not any(maker.inputs[2:])
    inserts = maker.op_type == "SequenceInsert" and maker.domain == "" and at_the_end
    return maker.inputs[1] if inserts and maker.inputs[0] == start != maker.inputs[1] else None


def _read(node: NodeRecord) -> Iterator[str]:
    """Names that a node reads, also those that its subgraphs take from around it."""
    yield from node.inputs
    for graph in node.subgraphs:
        yield from (o.name for o in graph.outputs)
        for inner in graph.nodes:
            yield from _read(inner)
