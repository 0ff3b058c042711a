"""Calling functions: attributes of the call take the place of references in the body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from braze.core.errors import ModelError
from braze.frontend.onnx.records import AttributeRef, FunctionRecord, GraphRecord, NodeRecord


def call_attributes(
    function: FunctionRecord, node: NodeRecord
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Attribute values and kinds of a call: those of the node over the function's defaults."""
    missing = [a for a in function.required if a not in node.attributes]
    if missing:
        raise ModelError(
            f"{node.where}: attribute {missing[0]!r} is missing; function {function.name!r} needs "
            "it"
        )
    return {**function.attributes, **node.attributes}, {**function.kinds, **node.kinds}


def bind_attributes(
    node: NodeRecord, attributes: Mapping[str, Any], kinds: Mapping[str, str]
) -> NodeRecord:
    """The node with every attribute reference resolved, in its subgraphs too.

    A reference to an attribute that the call does not give is dropped: the attribute is absent.
    """
    values: dict[str, Any] = {}
    new_kinds: dict[str, str] = {}
    for key, given in node.attributes.items():
        value, kind = given, node.kinds[key]
        if isinstance(value, AttributeRef):
            if value.name not in attributes:
                continue
            value, kind = attributes[value.name], kinds[value.name]
        elif isinstance(value, GraphRecord):
            inner = tuple(bind_attributes(n, attributes, kinds) for n in value.nodes)
            value = replace(value, nodes=inner)
        values[key], new_kinds[key] = value, kind
    return replace(node, attributes=values, kinds=new_kinds)
