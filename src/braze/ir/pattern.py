"""Patterns over a graph, and a matcher that says why it refuses.

A pattern is a tree (with shared leaves) that is matched from its root node upwards:

    x = Var("x")
    silu = Call(Binary, x, Call(Sigmoid, x), commutative=True, where=is_mul)

`match(silu, node, graph)` returns a Match (bound values, matched nodes) or a MatchFailure with a
reason and the node at fault. Inner values, that is results of matched nodes other than the root,
must have no user outside of the match and must not be graph outputs: else removing them would
change what somebody else sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Union

import numpy as np

from braze.ir.graph import Node, Value

Array = np.ndarray[Any, Any]


class GraphView(Protocol):
    """What matching asks of a graph (a GraphEditor)."""

    def producer_of(self, value: Value | None) -> Node | None: ...

    def users_of(self, value: Value) -> tuple[Node, ...]: ...

    def is_output(self, value: Value) -> bool: ...

    def array(self, value: Value | None) -> Array | None: ...


@dataclass(frozen=True, eq=False)
class Var:
    """Any value; the same leaf (or the same name) must meet the same value everywhere."""

    name: str


@dataclass(frozen=True, eq=False)
class Const:
    """A constant value, bound under `name`, whose content satisfies `accept`."""

    name: str
    accept: Callable[[Array], bool] | None = None


@dataclass(frozen=True, eq=False)
class Call:
    """A node of class `op` (its result number `result`) with these operands.

    where: a predicate on the op; commutative: the two operands may be swapped; name: binds the
    node (a name met twice must be one node, or nodes with equal attributes). Operands that the
    node has beyond the pattern must be absent.
    """

    op: type[Any]
    operands: tuple[Pattern, ...]
    where: Callable[[Any], bool] | None = None
    commutative: bool = False
    name: str = ""
    result: int = 0


@dataclass(frozen=True, eq=False)
class OneOf:
    """The first alternative with which the whole pattern matches."""

    alternatives: tuple[Pattern, ...]


Pattern = Union[Var, Const, Call, OneOf]


def call(
    op: type[Any],
    *operands: Pattern,
    where: Callable[[Any], bool] | None = None,
    commutative: bool = False,
    name: str = "",
    result: int = 0,
) -> Call:
    """A Call with its operands as arguments."""
    return Call(op, operands, where, commutative, name, result)


def one_of(*alternatives: Pattern) -> OneOf:
    """A OneOf with its alternatives as arguments."""
    return OneOf(alternatives)


@dataclass(frozen=True)
class Match:
    """values: what the leaves met; calls: named nodes; nodes: all matched nodes, root last."""

    root: Node
    values: Mapping[str, Value]
    calls: Mapping[str, Node]
    nodes: tuple[Node, ...]

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def has(self, name: str) -> bool:
        """Whether the alternative that binds `name` was taken."""
        return name in self.values


@dataclass(frozen=True)
class MatchFailure:
    """Why a pattern does not match. `structural` is False when only users forbid it."""

    reason: str
    node: Node | None = None
    structural: bool = True


@dataclass(frozen=True)
class _Bindings:
    """What is bound so far; extended by copying, so that alternatives can be undone."""

    values: Mapping[str, Value] = field(default_factory=dict)
    calls: Mapping[str, Node] = field(default_factory=dict)
    nodes: dict[Node, None] = field(default_factory=dict)


class _Matcher:
    def __init__(self, graph: GraphView) -> None:
        self.graph = graph
        self.failure = MatchFailure("the root node is of another op")

    def value(self, pattern: Pattern, value: Value | None, b: _Bindings) -> Iterator[_Bindings]:
        if isinstance(pattern, OneOf):
            for alternative in pattern.alternatives:
                yield from self.value(alternative, value, b)
        elif value is None:
            self.failure = MatchFailure("an operand is absent")
        elif isinstance(pattern, Call):
            node = self.graph.producer_of(value)
            if node is None or node.outputs[pattern.result :][:1] != (value,):
                self.failure = MatchFailure(f"%{value.name} is not made by a {pattern.op.__name__}")
            else:
                yield from self.node(pattern, node, b)
        else:
            yield from self.leaf(pattern, value, b)

    def leaf(self, pattern: Var | Const, value: Value, b: _Bindings) -> Iterator[_Bindings]:
        bound = b.values.get(pattern.name)
        if bound is not None and bound is not value and not self.same(bound, value):
            self.failure = MatchFailure(f"{pattern.name} would be two different values")
            return
        if isinstance(pattern, Const):
            content = self.graph.array(value)
            if content is None:
                self.failure = MatchFailure(f"%{value.name} is not constant")
                return
            if pattern.accept is not None and not pattern.accept(content):
                self.failure = MatchFailure(f"constant %{value.name} has another content")
                return
        yield _Bindings({**b.values, pattern.name: value}, b.calls, b.nodes)

    def same(self, a: Value, b: Value) -> bool:
        """Two constants of one content count as the same value."""
        x, y = self.graph.array(a), self.graph.array(b)
        return x is not None and x is y and a.type == b.type

    def node(self, pattern: Call, node: Node, b: _Bindings) -> Iterator[_Bindings]:
        if type(node.op) is not pattern.op or not (pattern.where is None or pattern.where(node.op)):
            self.failure = MatchFailure(f"{node.op} is not the op that is looked for", node)
            return
        extra = node.inputs[len(pattern.operands) :]
        if len(node.inputs) < len(pattern.operands) or any(v is not None for v in extra):
            self.failure = MatchFailure(f"{node.op} has another number of operands", node)
            return
        twin = b.calls.get(pattern.name)
        if twin is not None and twin is not node and str(twin.op) != str(node.op):
            self.failure = MatchFailure(f"{pattern.name} would be {twin.op} and {node.op}", node)
            return
        calls = {**b.calls, pattern.name: node} if pattern.name else b.calls
        start = _Bindings(b.values, calls, {**b.nodes, node: None})
        orders = [node.inputs[: len(pattern.operands)]]
        if pattern.commutative:
            orders.append((node.inputs[1], node.inputs[0]))
        for order in orders:
            yield from self.operands(pattern.operands, order, start)

    def operands(
        self, patterns: tuple[Pattern, ...], values: tuple[Value | None, ...], b: _Bindings
    ) -> Iterator[_Bindings]:
        if not patterns:
            yield b
            return
        for first in self.value(patterns[0], values[0], b):
            yield from self.operands(patterns[1:], values[1:], first)

    def closed(self, root: Node, b: _Bindings) -> MatchFailure | None:
        """None when no inner value is visible outside of the match."""
        for node in b.nodes:
            if node is root:
                continue
            for value in node.outputs:
                if self.graph.is_output(value):
                    return MatchFailure(
                        f"inner value %{value.name} is a graph output", node, structural=False
                    )
                if any(user not in b.nodes for user in self.graph.users_of(value)):
                    return MatchFailure(
                        f"inner value %{value.name} has another user", node, structural=False
                    )
        return None


def match(pattern: Call | OneOf, root: Node, graph: GraphView) -> Match | MatchFailure:
    """Match `pattern` with `root` as its last node.

    Returns the first complete match that is closed (see the module text), else a MatchFailure:
    with structural=False when the pattern is there but an inner value is seen from outside.
    """
    matcher = _Matcher(graph)
    visible: MatchFailure | None = None
    alternatives = pattern.alternatives if isinstance(pattern, OneOf) else (pattern,)
    for alternative in alternatives:
        assert isinstance(alternative, Call), alternative
        for found in matcher.node(alternative, root, _Bindings()):
            failure = matcher.closed(root, found)
            if failure is None:
                inner = tuple(n for n in reversed(found.nodes) if n is not root)
                return Match(root, found.values, found.calls, (*inner, root))
            visible = visible or failure
    return visible or matcher.failure
