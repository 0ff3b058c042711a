"""Nodes with other names for their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from braze.frontend.onnx.records import GraphRecord, NodeRecord


def renamed(node: NodeRecord, names: Mapping[str, str] | Any) -> NodeRecord:
    """A node whose tensors have other names, those that its bodies capture too."""
    attributes: dict[str, Any] = dict(node.attributes)
    for key, value in node.attributes.items():
        if isinstance(value, GraphRecord):
            attributes[key] = _renamed_body(value, names, frozenset())
    return replace(
        node,
        inputs=tuple(names[n] for n in node.inputs),
        outputs=tuple(names[n] for n in node.outputs),
        attributes=attributes,
    )


def _renamed_body(graph: GraphRecord, names: Any, outer: frozenset[str]) -> GraphRecord:
    own = outer | {i.name for i in graph.inputs} | set(graph.initializers)
    own |= {o for n in graph.nodes for o in n.outputs}
    inner = _Inner(names, own)
    return replace(
        graph,
        nodes=tuple(
            replace(
                n,
                inputs=tuple(inner[i] for i in n.inputs),
                attributes={
                    k: _renamed_body(v, names, own) if isinstance(v, GraphRecord) else v
                    for k, v in n.attributes.items()
                },
            )
            for n in graph.nodes
        ),
        outputs=tuple(replace(o, name=inner[o.name]) for o in graph.outputs),
    )


class _Inner:
    """Names within a body: its own stay."""

    def __init__(self, names: Any, own: frozenset[str]) -> None:
        self.names, self.own = names, own

    def __getitem__(self, name: str) -> str:
        return name if not name or name in self.own else self.names[name]
