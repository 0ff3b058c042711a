"""An If whose branches give tensors of different rank: what reads them runs in the branches too.

Where what follows takes both (a Reshape, say), the ranks are the same behind it. Where it takes one
of them only, that branch is taken for good, and the run checks that it is the one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from braze.core.dtypes import I64
from braze.frontend.onnx.bodies import Body, Site
from braze.frontend.onnx.order import read_names
from braze.frontend.onnx.records import GraphRecord, NodeRecord, ValueRecord
from braze.frontend.onnx.scope import Bound
from braze.ir.graph import Value
from braze.ops.base import ContentNeededError
from braze.ops.move.shape import reshape
from braze.ops.pointwise.cast import cast_to

BRANCHES = ("then_branch", "else_branch")


class RanksDifferError(ContentNeededError):
    """Outputs of an If differ in rank. names: theirs."""

    def __init__(self, message: str, names: Collection[str]) -> None:
        super().__init__(message, 0)
        self.names = frozenset(names)


def continued(
    node: NodeRecord, unlike: Collection[str], rest: Sequence[NodeRecord], wanted: Collection[str]
) -> list[NodeRecord] | None:
    """The node and those behind it, with all that reads the outputs in `unlike` in its branches.

    None where nothing reads them, or something outside must: `wanted` are outputs of the graph.
    """
    readers = [i for i, n in enumerate(rest) if not read_names(n).isdisjoint(unlike)]
    if not readers or not frozenset(unlike).isdisjoint(wanted):
        return None
    own = dict.fromkeys(filter(None, (*node.continued, *node.outputs)))
    before: list[NodeRecord] = []
    taken: list[NodeRecord] = []
    for n in rest[: readers[-1] + 1]:
        depends = not read_names(n).isdisjoint(own)
        (taken if depends else before).append(n)
        own |= dict.fromkeys(filter(None, n.outputs)) if depends else {}
    after = rest[readers[-1] + 1 :]
    read = set(wanted).union(*map(read_names, after))
    outputs = tuple(name for name in own if name in read)
    graphs = {}
    for key in BRANCHES:
        branch = node.attributes[key]
        assert isinstance(branch, GraphRecord)
        graph = _longer(branch, node, taken, outputs)
        if graph is None:
            return None
        graphs[key] = graph
    attributes = {**node.attributes, **graphs}
    longer = replace(node, outputs=outputs, attributes=attributes, continued=tuple(own))
    return [*before, longer, *after]


def _longer(
    branch: GraphRecord, node: NodeRecord, taken: Sequence[NodeRecord], outputs: Sequence[str]
) -> GraphRecord | None:
    """The branch with further nodes; None where names in it and around it are the same."""
    inside = set(branch.initializers).union(*(n.outputs for n in branch.nodes))
    inside -= {"", *node.continued}
    around = set(node.outputs).union(*(read_names(n) | set(n.outputs) for n in taken))
    if not inside.isdisjoint(around):
        return None
    passed = [
        NodeRecord("Identity", "", f"{node.name}_{name}", (given.name,), (name,))
        for given, name in zip(branch.outputs, node.outputs, strict=False)
        if name and name not in node.continued
    ]
    values = tuple(ValueRecord(name, None, None) for name in outputs)
    return replace(branch, nodes=(*branch.nodes, *passed, *taken), outputs=values)


def only_branch(site: Site, bodies: Sequence[Body], condition: Value) -> Sequence[Bound] | None:
    """The outputs of the branch that what follows takes; None where it takes both or none."""
    runs = [body.runs for body in bodies]
    if not site.node.continued or all(runs) or not any(runs):
        return None
    k = runs.index(True)
    g, node = site.builder, site.node
    g.origins = (node.name,)
    flag = reshape(g, cast_to(g, condition, I64), (1,))
    g.guard(
        g.read_size(flag, 0, 0, 1, f"{node.name}_branch"),
        1 - k,
        f"{node.where}: what follows it takes the rank of its {('first', 'second')[k]} branch "
        f"only, so that its condition and {1 - k} must be equal",
    )
    return site.inline(site.graph(BRANCHES[k]), (), f"{node.name}/", len(node.outputs))
