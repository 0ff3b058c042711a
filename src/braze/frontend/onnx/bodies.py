"""Subgraphs of ONNX nodes as bodies: graphs of their own whose every input is explicit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from braze.core.dtypes import BOOL
from braze.core.errors import ModelError, UnsupportedOpError
from braze.frontend.onnx.assemble import assemble
from braze.frontend.onnx.findings import Finding, NoSuchOpError
from braze.frontend.onnx.order import order_nodes
from braze.frontend.onnx.records import GraphRecord, NodeRecord
from braze.frontend.onnx.scope import BodyScope, Bound, Scope
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, Value
from braze.ops.flow.base import FlowOp

if TYPE_CHECKING:
    from braze.frontend.onnx.nodes import NodeImporter


@dataclass(frozen=True)
class Site:
    """A node of control flow or of sequences and where it stands. bound: its inputs."""

    node: NodeRecord
    bound: Sequence[Bound]
    scope: Scope
    opsets: Mapping[str, int]
    nodes: NodeImporter

    @property
    def builder(self) -> GraphBuilder:
        """What the node is imported into."""
        return self.nodes.builder

    @property
    def inputs(self) -> list[Value | None]:
        """The tensors among the inputs, None for those left out."""
        return [v if isinstance(v, Value) else None for v in self.bound]

    def graph(self, attribute: str) -> GraphRecord:
        """The subgraph in an attribute."""
        found = self.node.attributes.get(attribute)
        if not isinstance(found, GraphRecord):
            raise ModelError(f"{self.node.where}: attribute {attribute!r} must be a graph")
        return found

    def input(self, index: int) -> Value | None:
        """The tensor in the input at `index`, None where there is none."""
        value = self.bound[index] if index < len(self.bound) else None
        return value if isinstance(value, Value) else None

    def add(self, op: FlowOp, *inputs: Value) -> tuple[Value, ...]:
        """The outputs of a new node."""
        builder, node = self.builder, self.node
        first = len(builder.nodes)
        names = tuple(filter(None, node.outputs))
        builder.origins, builder.tensors = (node.name,), names
        made = builder.add(op, *inputs, names=names)
        self.nodes.sources.add(builder.nodes[first:])
        self.supported()
        return made

    def supported(self) -> None:
        """Note that the node runs."""
        node = self.node
        self.nodes.findings.append(Finding(node.name, node.op_type, node.domain, supported=True))

    def inline(
        self, graph: GraphRecord, bound: Sequence[Bound], prefix: str, count: int
    ) -> list[Bound]:
        """The first `count` outputs of a subgraph that runs once, imported into this graph."""
        scope = Scope(self.builder, graph.initializers, self.scope, prefix)
        for declared, value in zip(graph.inputs, bound, strict=True):
            scope.bind(declared.name, value)
        names = [o.name for o in graph.outputs[:count]]
        where = f"subgraph of {self.node.where}"
        ordered = order_nodes(graph.nodes, names, scope.__contains__, where)
        self.nodes.run(ordered, scope, self.opsets, names)
        return [scope[name] for name in names]


# the outputs of the node; None where something in it does not run (and is reported)
FlowImporter = Callable[[Site], "Sequence[Bound] | None"]


@dataclass
class Body:
    """A subgraph as imported into a builder of its own. outputs: those of the subgraph."""

    site: Site
    builder: GraphBuilder
    nodes: NodeImporter
    scope: BodyScope
    outputs: list[Bound]

    @property
    def findings(self) -> list[Finding]:
        """What was found in it."""
        return self.nodes.findings

    @property
    def runs(self) -> bool:
        """Whether all of it is supported."""
        return all(f.supported for f in self.findings) and all(
            isinstance(v, Value) for v in self.outputs
        )

    @property
    def values(self) -> list[Value]:
        """The outputs of a body that runs."""
        return [v for v in self.outputs if isinstance(v, Value)]

    def report(self, lifting: Collection[str] = ()) -> None:
        """Add its findings to those of the graph around it.

        lifting: graph inputs whose content would make each iteration known.
        """
        self.site.nodes.findings += [
            f if f.supported else _possible(f, lifting) for f in self.findings
        ]


def _possible(finding: Finding, lifting: Collection[str]) -> Finding:
    """A finding in a body, which may never run with other sizes or content."""
    error = UnsupportedOpError if finding.error is NoSuchOpError else finding.error
    inputs = tuple(sorted({*finding.inputs, *lifting}))
    return replace(finding, inputs=inputs, error=error)


def import_body(
    site: Site, graph: GraphRecord, name: str, bind: Callable[[Body], None], count: int
) -> Body:
    """Import a subgraph for its first `count` outputs; `bind` gives its inputs their values."""
    outer = site.nodes
    builder = GraphBuilder(outer.builder.weights, name=name)
    builder.bounds, builder.symbol_names = outer.builder.bounds, outer.builder.symbol_names
    builder.promises = outer.builder.promises
    nodes = outer.of_body(builder)

    def noted(outside: Value, inside: Value) -> None:
        nodes.sources.captured(inside, outer.sources.of(outside))

    prefix = f"{site.node.name}/"
    scope = BodyScope(builder, graph.initializers, site.scope, prefix, noted)
    body = Body(site, builder, nodes, scope, [])
    bind(body)
    names = [o.name for o in graph.outputs[:count]]
    where = f"{name} of {site.node.where}"
    ordered = order_nodes(graph.nodes, names, scope.__contains__, where)
    nodes.run(ordered, scope, site.opsets, names)
    body.outputs = [scope[n] for n in names]
    return body


def close_bodies(
    bodies: Sequence[Body], outputs: Sequence[Sequence[Value]], fixed: int
) -> tuple[list[Graph], list[Value]]:
    """Bodies as graphs with the same captured inputs behind `fixed` others, and what is captured.

    outputs: of each body.
    """
    outside = list(dict.fromkeys(v for b in bodies for v in b.scope.captured))
    graphs = []
    for body, made in zip(bodies, outputs, strict=True):
        inputs = [body.scope.capture(v) for v in outside]
        graph = assemble(
            body.builder, [(f"output{i}", v) for i, v in enumerate(made)], body.nodes.names
        )
        graphs.append(replace(graph, inputs=(*graph.inputs[:fixed], *inputs)))
    return used_inputs(graphs, outside, fixed)


def used_inputs(
    graphs: Sequence[Graph], captured: Sequence[Value], fixed: int
) -> tuple[list[Graph], list[Value]]:
    """Bodies and what they capture without what none of them reads."""
    read = [{v for n in g.nodes for v in n.inputs} | g.kept_values for g in graphs]
    kept = [
        i
        for i in range(len(captured))
        if any(g.inputs[fixed + i] in r for g, r in zip(graphs, read, strict=True))
    ]
    slim = [
        replace(g, inputs=(*g.inputs[:fixed], *(g.inputs[fixed + i] for i in kept))) for g in graphs
    ]
    return slim, [captured[i] for i in kept]


def known_flag(*contents: np.ndarray[Any, Any] | None) -> bool | None:
    """The bool in the first content that is known."""
    for content in contents:
        if content is not None and content.size == 1:
            return bool(content.reshape(-1)[0])
    return None


def flag_of(site: Site, value: Value) -> bool | None:
    """The condition where it is known; raises ModelError where it is no condition."""
    if value.dtype is not BOOL or any(d != 1 for d in value.shape):
        raise ModelError(
            f"{site.node.where}: the condition must be one bool, not {value.dtype}"
            f"{list(value.shape)}"
        )
    return known_flag(site.builder.array(value), site.builder.sizes(value))
