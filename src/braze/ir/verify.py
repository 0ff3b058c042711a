"""verify: the invariants of a Graph, checked between all passes.

Cheap enough to be always on: nodes that an earlier, verified graph already held are immutable and
are not inferred again.
"""

from __future__ import annotations

from collections.abc import Mapping

from braze.core.bounds import bounds
from braze.core.dims import Dim, Interval
from braze.core.errors import BrazeError, VerifyError
from braze.ir.graph import Graph, Node, Value, bodies_of

WIDE: Interval = (0, 2**31)


class _Checker:
    """An InferContext that accepts only size equalities the graph already guards."""

    def __init__(self, graph: Graph) -> None:
        self.bounds: Mapping[str, Interval] = _WideBounds(graph.bounds)
        self.guarded = {frozenset((g.lhs, g.rhs)) for g in graph.guards}

    def range_of(self, d: Dim) -> Interval:
        return bounds(d, self.bounds)

    def unify(self, a: Dim, b: Dim, what: str) -> Dim:
        if a == b:
            return a
        if frozenset((a, b)) not in self.guarded:
            raise VerifyError(f"{what}: sizes {a} and {b} are assumed equal without a guard")
        return a if isinstance(a, int) else b if isinstance(b, int) else a

    def broadcast(self, a: Dim, b: Dim, what: str) -> Dim:
        if b in (a, 1):
            return a
        return b if a == 1 else self.unify(a, b, what)


class _WideBounds(dict[str, Interval]):
    """Symbol bounds as GraphBuilder.range_of sees them."""

    def __missing__(self, key: str) -> Interval:
        return WIDE

    def __contains__(self, key: object) -> bool:
        return True


def verify(graph: Graph, before: Graph | None = None, stage: str = "graph") -> None:
    """Raise VerifyError, naming `stage` and the node, when an invariant of `graph` is broken.

    Invariants: value names are unique; every node reads only inputs, constants and outputs of
    earlier nodes; no value is made twice; constants are stored with the dtype and shape their
    value has; graph outputs exist and their names are unique; node output types equal what the op
    infers, with no size equality that is not guarded. Nodes that `before` (a verified graph) holds
    are not inferred again.
    """
    try:
        _verify_values(graph)
        _verify_types(graph, frozenset(before.nodes) if before is not None else frozenset())
    except VerifyError as e:
        raise VerifyError(f"after {stage}: {e}; please report this model") from e


def accepts(graph: Graph, node: Node) -> bool:
    """Whether a node of another graph needs no size equality that `graph` does not guard."""
    try:
        node.op.infer([None if v is None else v.type for v in node.inputs], _Checker(graph))
    except BrazeError:
        return False
    return True


def _verify_values(graph: Graph) -> None:
    seen: set[Value] = set()
    names: set[str] = set()

    def define(value: Value, where: str) -> None:
        if value in seen:
            raise VerifyError(f"{where}: value %{value.name} is defined twice")
        if value.name in names:
            raise VerifyError(f"{where}: the name %{value.name} is used by two values")
        seen.add(value)
        names.add(value.name)

    for value in graph.inputs:
        define(value, "graph inputs")
    for value, key in graph.constants.items():
        define(value, "graph constants")
        if key not in graph.weights:
            raise VerifyError(f"constant %{value.name} has no stored content")
        array = graph.weights.get(key)
        if tuple(array.shape) != value.shape or array.dtype != value.dtype.numpy:
            raise VerifyError(f"constant {value!r} is stored as {array.dtype}{list(array.shape)}")
    for node in graph.nodes:
        for operand in node.inputs:
            if operand is not None and operand not in seen:
                raise VerifyError(f"node {node.op} reads %{operand.name} before it is made")
        for value in node.outputs:
            define(value, f"node {node.op}")
    for name, value in graph.outputs:
        if value not in seen:
            raise VerifyError(f"graph output {name!r} is %{value.name}, which nothing makes")
    if len({name for name, _ in graph.outputs}) != len(graph.outputs):
        raise VerifyError("two graph outputs have the same name")


def _verify_types(graph: Graph, verified: frozenset[Node]) -> None:
    checker = _Checker(graph)
    for node in graph.nodes:
        if node in verified:
            continue
        for body in bodies_of(node):
            verify(body, None, f"body {body.name!r}")
        try:
            types = node.op.infer([None if v is None else v.type for v in node.inputs], checker)
        except BrazeError as e:
            raise VerifyError(f"node {node.op} does not accept its inputs: {e}") from e
        if tuple(types) != tuple(v.type for v in node.outputs):
            raise VerifyError(
                f"node {node.op} has outputs {', '.join(map(repr, node.outputs))} but infers "
                f"{', '.join(map(str, types))}"
            )
