"""GraphEditor: change a Graph by replacing, redirecting and erasing nodes.

Graphs are immutable; an editor holds the nodes of one as a linked list, so that a rewrite costs
the nodes it touches and not the graph. `finish` gives the new Graph, or the old object when
nothing was changed. Values keep their identity; a node whose inputs are redirected becomes a new
Node with the same outputs, so hold on to values rather than to nodes between edits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from braze.core.errors import VerifyError
from braze.ir.builder import MAX_KNOWN_ELEMENTS, GraphBuilder
from braze.ir.graph import Graph, Node, Value


class Rewriter(GraphBuilder):
    """A GraphBuilder whose nodes will be spliced into a graph that is being edited.

    It sees the constants of that graph, gives names that are free in it, and collects guards of
    its own until the editor commits it.
    """

    def __init__(self, editor: GraphEditor, origins: tuple[str, ...]) -> None:
        graph = editor.graph
        super().__init__(graph.weights, graph.bounds, graph.name)
        self.editor = editor
        self.constants = editor.constants
        self.origins = origins
        self._names = editor.names

    def sizes(self, value: Value | None) -> np.ndarray[Any, Any] | None:
        """As GraphBuilder.sizes; small integer constants of the edited graph are known too."""
        found = super().sizes(value)
        if found is not None or value is None or value not in self.constants:
            return found
        if not value.dtype.is_int:
            return None
        array = self.weights.get(self.constants[value])
        return array.astype(object) if array.size <= MAX_KNOWN_ELEMENTS else None


class GraphEditor:
    """A working copy of `graph` (see the module text)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants: dict[Value, str] = dict(graph.constants)
        self.guards = dict.fromkeys(graph.guards)
        self.changed = False
        self._outputs = list(graph.outputs)
        self._sizes = list(graph.sizes)
        self._kept = set(graph.kept_values)
        self._producer: dict[Value, Node] = {}
        self._users: dict[Value, dict[Node, None]] = {}
        # None is both ends of the list
        self._next: dict[Node | None, Node | None] = {None: None}
        self._prev: dict[Node | None, Node | None] = {None: None}
        self.names: dict[str, int] = {v.name: 0 for v in (*graph.inputs, *graph.constants)}
        for node in graph.nodes:
            self.names.update((v.name, 0) for v in node.outputs)
            self._link(node, before=None)

    def nodes(self) -> Iterator[Node]:
        """All nodes in topological order; do not edit while iterating (see `walk`)."""
        node = self._next[None]
        while node is not None:
            yield node
            node = self._next[node]

    def walk(self) -> Iterator[Node]:
        """Nodes in the order they had when the walk began, as they are now; safe under edits.

        Nodes erased meanwhile are left out, and so are nodes that were added.
        """
        for value in [n.outputs[0] for n in self.nodes()]:
            node = self._producer.get(value)
            if node is not None:
                yield node

    def producer_of(self, value: Value | None) -> Node | None:
        """The node that makes `value`; None for inputs, constants and absent operands."""
        return None if value is None else self._producer.get(value)

    def users_of(self, value: Value) -> tuple[Node, ...]:
        """Distinct nodes that read `value`."""
        return tuple(self._users.get(value, ()))

    def is_output(self, value: Value) -> bool:
        """Whether it must exist: an output, or what a size is read from."""
        return value in self._kept

    def array(self, value: Value | None) -> np.ndarray[Any, Any] | None:
        """The content of a constant, or None when not constant."""
        if value is None or value not in self.constants:
            return None
        return self.graph.weights.get(self.constants[value])

    def rewriter(self, nodes: Iterable[Node]) -> Rewriter:
        """A builder for the replacement of `nodes`, with the union of their origins."""
        origins = dict.fromkeys(o for n in nodes for o in n.origins)
        return Rewriter(self, tuple(origins))

    def commit(self, built: Rewriter, at: Node, replacement: Mapping[Value, Value]) -> None:
        """Insert the nodes of `built` before `at`, then put new values in the place of old ones.

        Everything the new nodes read must come before `at`. A new value must have exactly the
        type of the old one; raises VerifyError otherwise. Nodes that nothing reads any more are
        erased.
        """
        for old, new in replacement.items():
            if old.type != new.type:
                raise VerifyError(
                    f"a rewrite of node {at.op} replaces {old!r} by {new!r} of another type; "
                    "please report this model"
                )
        for node in built.nodes:
            self._link(node, before=at)
        self.guards.update(built.guards)
        self.changed = True
        for old, new in replacement.items():
            self._redirect(old, new)
        for old in replacement:
            self._erase_dead(old)
        for node in reversed(built.nodes):
            for value in node.outputs:
                self._erase_dead(value)

    def set_inputs(self, node: Node, inputs: Sequence[Value | None]) -> Node:
        """The node with other inputs, in the same place and with the same outputs."""
        return self._swap(node, replace(node, inputs=tuple(inputs)))

    def erase(self, node: Node) -> None:
        """Remove a node that nothing reads, and what only it kept alive."""
        for value in node.outputs:
            self._erase_dead(value)

    def finish(self) -> Graph:
        """The edited graph; the original object when there was no edit."""
        if not self.changed:
            return self.graph
        used = {v for _, v in self._outputs} | {s.value for s in self._sizes}
        nodes = tuple(self.nodes())
        for node in nodes:
            used.update(v for v in node.inputs if v is not None)
        return replace(
            self.graph,
            outputs=tuple(self._outputs),
            nodes=nodes,
            constants={v: k for v, k in self.constants.items() if v in used},
            guards=tuple(self.guards),
            sizes=tuple(self._sizes),
        )

    def _link(self, node: Node, before: Node | None) -> None:
        prev = self._prev[before]
        self._next[prev], self._next[node] = node, before
        self._prev[before], self._prev[node] = node, prev
        self._attach(node)

    def _unlink(self, node: Node) -> None:
        prev, following = self._prev.pop(node), self._next.pop(node)
        self._next[prev], self._prev[following] = following, prev

    def _attach(self, node: Node) -> None:
        for made in node.outputs:
            self._producer[made] = node
        for v in node.inputs:
            if v is not None:
                self._users.setdefault(v, {})[node] = None

    def _detach_inputs(self, node: Node) -> None:
        for v in node.inputs:
            if v is not None:
                self._users[v].pop(node, None)

    def _swap(self, old: Node, new: Node) -> Node:
        prev, following = self._prev.pop(old), self._next.pop(old)
        self._next[prev], self._next[new] = new, following
        self._prev[following], self._prev[new] = new, prev
        self._detach_inputs(old)
        self._attach(new)
        self.changed = True
        return new

    def _redirect(self, old: Value, new: Value) -> None:
        for user in self.users_of(old):
            self._swap(user, replace(user, inputs=_substituted(user.inputs, old, new)))
        if old in self._kept:
            self._outputs = [(name, new if v is old else v) for name, v in self._outputs]
            self._sizes = [replace(s, value=new) if s.value is old else s for s in self._sizes]
            self._kept.discard(old)
            self._kept.add(new)

    def _erase_dead(self, value: Value) -> None:
        stack: list[Value] = [value]
        while stack:
            node = self._producer.get(stack.pop())
            if node is None or any(self._users.get(v) or self.is_output(v) for v in node.outputs):
                continue
            self._unlink(node)
            self._detach_inputs(node)
            for dead in node.outputs:
                del self._producer[dead]
                self._users.pop(dead, None)
            self.changed = True
            stack.extend(v for v in node.inputs if v is not None)


def _substituted(
    inputs: tuple[Value | None, ...], old: Value, new: Value
) -> tuple[Value | None, ...]:
    return tuple(new if v is old else v for v in inputs)
