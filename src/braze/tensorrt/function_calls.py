"""Which node within the functions of a model an error is about, and the calls on the way there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from braze.frontend.onnx.findings import Finding
from braze.frontend.onnx.records import FunctionRecord, NodeRecord

Functions = Mapping[tuple[str, str, str], FunctionRecord]


def innermost(functions: Functions, node: NodeRecord, path: str) -> tuple[list[str], NodeRecord]:
    """The functions that are called, the outermost first, and the node that is called so.

    path: the name of the node as the importer says it, behind the names of the calls.
    """
    names: list[str] = []
    rest = path.removeprefix(node.name).removeprefix("/")
    while rest:
        function = functions.get((node.domain, node.op_type, node.overload))
        inner = None if function is None else owner(function.nodes, rest)
        if function is None or inner is None:
            break  # what is left are nodes of a branch, or of a function of the op itself
        names.append(function.name)
        node, rest = inner, rest.removeprefix(inner.name).removeprefix("/")
    return names, node


def owner(nodes: Sequence[NodeRecord], path: str) -> NodeRecord | None:
    """The node that a path is about or within; names of nodes may have slashes themselves."""
    found = [n for n in nodes if path == n.name or path.startswith(f"{n.name}/")]
    return max(found, key=lambda n: len(n.name), default=None)


def path_of(findings: Sequence[Finding], reason: str) -> str:
    """The node that a refusal is about, as the importer says it; "" where none is known."""
    return next((f.node for f in findings if not f.supported and f.reason == reason), "")
