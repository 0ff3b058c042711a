"""Move what is the same in every iteration of a loop in front of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from braze.expr.fold import leaves
from braze.expr.loops import LoopKernel
from braze.ir.graph import Graph, Node, Value, bodies_of
from braze.ir.run_sizes import node_symbols
from braze.ir.verify import accepts
from braze.ops.flow.loop import Loop
from braze.ops.lowering import Anchor, Lowering, Nest, Pointwise, View
from braze.passes.base import PassContext
from braze.passes.bodies import map_bodies
from braze.passes.rewrite import describe


def hoist_invariant(graph: Graph, ctx: PassContext) -> Graph:
    """The graph, and every body in it, with invariant nodes of loops in front of them.

    A node that may fail (an index out of range, sizes that must be equal) stays: the loop may not
    run at all. So does what only moves elements, and what makes more elements than it reads, unless
    a node that moves reads it: inside it is computed where it is read.
    """
    graph = map_bodies(graph, lambda body: hoist_invariant(body, ctx))
    mover = _Mover(graph, ctx)
    for node in graph.nodes:
        mover.nodes.append(mover.hoisted(node) if isinstance(node.op, Loop) else node)
    if not mover.moved:
        return graph
    return replace(graph, nodes=tuple(mover.nodes), constants=mover.constants)


@dataclass
class _Mover:
    """The nodes of a graph so far, with those that were moved into it."""

    graph: Graph
    ctx: PassContext
    nodes: list[Node] = field(default_factory=list)
    moved: int = 0

    def __post_init__(self) -> None:
        values = (*self.graph.inputs, *self.graph.constants, *self.graph.producer)
        self.constants = dict(self.graph.constants)
        self._names = {v.name for v in values}

    def hoisted(self, node: Node) -> Node:
        """The loop without what was moved in front of it."""
        (body,) = bodies_of(node)
        captured = body.inputs[len(body.inputs) - node.op.captured :]
        outside = dict(
            zip(captured, node.inputs[len(node.inputs) - node.op.captured :], strict=True)
        )
        moving = _moving(body, set(captured), self.graph)
        if not moving:
            return node
        here: dict[Value, Value] = {v: x for v, x in outside.items() if x is not None}
        for inner in moving:
            self._move(body, inner, here)
        gone = set(moving)
        left = tuple(n for n in body.nodes if n not in gone)
        read = {v for n in left for v in n.inputs} | body.kept_values
        fresh = [v for n in moving for v in n.outputs if v in read]
        constants = {v: k for v, k in body.constants.items() if v in read}
        slim = replace(body, inputs=(*body.inputs, *fresh), nodes=left, constants=constants)
        inputs = (*node.inputs, *(here[v] for v in fresh))
        return replace(node, op=node.op.with_bodies([slim]), inputs=inputs)

    def _move(self, body: Graph, inner: Node, here: dict[Value, Value]) -> None:
        for v in inner.inputs:
            if v is not None and v in body.constants and v not in here:
                here[v] = self._renamed(v)
                self.constants[here[v]] = body.constants[v]
        for v in inner.outputs:
            here[v] = self._renamed(v)
        inputs = tuple(None if v is None else here[v] for v in inner.inputs)
        outputs = tuple(here[v] for v in inner.outputs)
        self.nodes.append(replace(inner, inputs=inputs, outputs=outputs))
        self.moved += 1
        self.ctx.trace.decide("hoist", at=describe(inner))

    def _renamed(self, v: Value) -> Value:
        name, number = v.name, 0
        while name in self._names:
            number += 1
            name = f"{v.name}_{number}"
        self._names.add(name)
        return Value(name, v.type)


def _moving(body: Graph, known: set[Value], graph: Graph) -> list[Node]:
    """The nodes of a body to move into `graph`, in order; known: what is the same in every
    iteration.
    """
    guarded = set(graph.guards).issuperset(body.guards)
    same = known | body.constants.keys()
    own = {s.symbol for s in body.sizes}
    candidates: dict[Node, bool] = {}  # and whether it is worth moving by itself
    for node in body.nodes:
        given = [v for v in node.inputs if v is not None]
        if bodies_of(node) or not given or not same.issuperset(given) or own & node_symbols(node):
            continue
        low = _lowered(node)
        if _may_fail(low) or not (guarded or accepts(graph, node)):
            continue
        candidates[node] = _is_worth_moving(node, low)
        same.update(node.outputs)
    needed: set[Value] = set()
    moving = []
    for node in reversed(candidates):
        if candidates[node] or not needed.isdisjoint(node.outputs):
            moving.append(node)
            needed.update(v for v in node.inputs if v is not None)
    return moving[::-1]


def _lowered(node: Node) -> Lowering:
    types = [None if v is None else v.type for v in node.inputs]
    low: Lowering = node.op.lower(types, [v.type for v in node.outputs])
    return low


def _may_fail(low: Lowering) -> bool:
    """Whether a kernel may find its data wrong; so may what a subgraph stands for."""
    if isinstance(low, (Pointwise, View, Anchor)):
        return False
    return not isinstance(low, Nest) or _reads_by_data(low.kernel)


def _reads_by_data(kernel: LoopKernel) -> bool:
    for nest in kernel.nests:
        roots = [r.expr for r in nest.reduces]
        roots += [e for s in nest.stores for e in (*s.index, s.expr)]
        for root in roots:
            for e in leaves(root, "load"):
                if any(any(leaves(i, "load")) for i in e.args):
                    return True
        if any(any(leaves(i, "load")) for s in nest.stores for i in s.index):
            return True
    return False


def _is_worth_moving(node: Node, low: Lowering) -> bool:
    if isinstance(low, View):
        return False
    sizes: list[Sequence[object]] = [v.shape for v in node.inputs if v is not None]
    return not isinstance(low, Pointwise) or node.output.shape in sizes
