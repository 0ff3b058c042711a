"""Apply rewrite rules: pattern, check, rewrite, each refusal recorded with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Union

from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ir.pattern import Call, Match, OneOf, match
from braze.passes.base import PassContext

MAX_SWEEPS = 10


@dataclass(frozen=True)
class Refusal:
    """Why a rule must not be applied although its pattern matches."""

    reason: str


class Rule(Protocol):
    """One idea of a rewrite. Rules are stateless; `name` is what traces show."""

    @property
    def name(self) -> str: ...

    @property
    def pattern(self) -> Call | OneOf: ...

    def check(self, m: Match, graph: GraphEditor) -> Refusal | None:
        """None when the rewrite is right for this match, else the reason why not."""
        ...

    def rewrite(self, m: Match, g: Rewriter) -> Value:
        """Build the replacement of the root's only output."""
        ...


# What to put in the place of a node's only output, built with the rewriter; None leaves the node.
NodeRewrite = Callable[[Node, GraphEditor, Rewriter], Union[Value, None]]


def rewrite_nodes(
    graph: Graph, table: Mapping[type[Any], NodeRewrite], ctx: PassContext, rule: str
) -> Graph:
    """Apply the rewrite of each node's op class all over the graph until nothing changes."""
    editor = GraphEditor(graph)
    for _ in range(MAX_SWEEPS):
        applied = False
        for node in editor.walk():
            rewrite = table.get(type(node.op))
            if rewrite is None:
                continue
            built = editor.rewriter([node])
            new = rewrite(node, editor, built)
            if new is None or new.type != node.outputs[0].type:
                continue
            editor.commit(built, node, {node.outputs[0]: new})
            ctx.trace.decide("rewrite", rule=rule, at=describe(node), nodes=1)
            applied = True
        if not applied:
            break
    return editor.finish()


def apply_rules(graph: Graph, rules: Sequence[Rule], ctx: PassContext) -> Graph:
    """Apply `rules` (in order of preference) all over the graph until none applies."""
    editor = GraphEditor(graph)
    by_root = _by_root(rules)
    refused: dict[tuple[str, str, str], None] = {}
    for _ in range(MAX_SWEEPS):
        applied = False
        for node in editor.walk():
            for rule in by_root.get(type(node.op), ()):
                if _apply(rule, node, editor, refused, ctx):
                    applied = True
                    break
        if not applied:
            break
    for rule_name, where, reason in refused:
        ctx.trace.decide("refusal", rule=rule_name, at=where, reason=reason)
    return editor.finish()


def _by_root(rules: Sequence[Rule]) -> dict[type[Any], list[Rule]]:
    out: dict[type[Any], list[Rule]] = {}
    for rule in rules:
        pattern = rule.pattern
        roots = pattern.alternatives if isinstance(pattern, OneOf) else (pattern,)
        for op in dict.fromkeys(r.op for r in roots if isinstance(r, Call)):
            out.setdefault(op, []).append(rule)
    return out


def _apply(
    rule: Rule,
    node: Node,
    editor: GraphEditor,
    refused: dict[tuple[str, str, str], None],
    ctx: PassContext,
) -> bool:
    where = describe(node)
    found = match(rule.pattern, node, editor)
    if not isinstance(found, Match):
        if not found.structural:
            refused[rule.name, where, found.reason] = None
        return False
    refusal = rule.check(found, editor)
    if refusal is not None:
        refused[rule.name, where, refusal.reason] = None
        return False
    built = editor.rewriter(found.nodes)
    new = rule.rewrite(found, built)
    if new.type != node.output.type:
        reason = f"the result would be {new.type} instead of {node.output.type}"
        refused[rule.name, where, reason] = None
        return False
    editor.commit(built, node, {node.output: new})
    ctx.trace.decide("rewrite", rule=rule.name, at=where, nodes=len(found.nodes))
    return True


def describe(node: Node) -> str:
    """A node for people: its op and the ONNX nodes it came from."""
    origins = ", ".join(node.origins[:3]) + (", ..." if len(node.origins) > 3 else "")
    return f"{node.op.name} ({origins})" if origins else f"{node.op.name} %{node.outputs[0].name}"


def operand(node: Node) -> Value:
    """The first operand, of a node that always has one."""
    value = node.inputs[0]
    assert value is not None, node.op
    return value


def producer(editor: GraphEditor, value: Value | None, op: type[Any]) -> Node | None:
    """The node that makes `value` if it is of class `op`."""
    node = editor.producer_of(value)
    return node if node is not None and type(node.op) is op else None
