"""Graph -> regions: which node each kernel is built around, and what it computes on the way.

Three steps, each deterministic:
1. Decide which values get memory (braze.fusion.placement).
2. In reverse order, let each anchor or loop nest absorb the pointwise kernel that reads its result
   element by element (epilogue): bias, activation, residual and norms' affine parts.
3. Order the regions.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from braze.core.errors import CompileError
from braze.core.trace import Trace
from braze.expr.index import axes
from braze.expr.loops import LoopKernel
from braze.expr.scalar import Expr, hole
from braze.fusion.growth import Home
from braze.fusion.inline import Index, Inliner
from braze.fusion.placement import Placement, Question, place_values
from braze.fusion.region import Partition, Region
from braze.fusion.strided import strided_reads
from braze.ir.graph import Graph, Node, Value
from braze.ir.run_sizes import node_symbols, sources
from braze.ops.abilities import UNLIMITED, Abilities, refusal
from braze.ops.lowering import Anchor, Decompose, Flow, Lowering, Nest, Pointwise, View


def lower_nodes(
    graph: Graph, backend: Abilities = UNLIMITED, trace: Trace | None = None
) -> dict[Node, Lowering]:
    """`Op.lower` of every node, anchors that the backend has no template for as their loop nests.

    Raises CompileError where a node is not ready for fusion.
    """
    lowered: dict[Node, Lowering] = {}
    for n in graph.nodes:
        types = [None if v is None else v.type for v in n.inputs]
        low = n.op.lower(types, [v.type for v in n.outputs])
        if isinstance(low, Decompose):
            raise CompileError(
                f"node {', '.join(n.origins) or n.outputs[0].name} ({n.op.name}) has no kernel: "
                f"its lowering is {type(low).__name__}; please report this model"
            )
        lowered[n] = _legal(graph, n, low, backend, trace) if isinstance(low, Anchor) else low
    return lowered


def _legal(
    graph: Graph, node: Node, anchor: Anchor, backend: Abilities, trace: Trace | None
) -> Lowering:
    why = refusal(backend, node, anchor, graph.constants)
    if why is None:
        return anchor
    name = f"{', '.join(node.origins) or node.outputs[0].name} ({node.op.name})"
    if not isinstance(anchor.fallback, LoopKernel):
        raise CompileError(f"node {name} does not run on this target: {why}; use another target")
    if trace is not None:
        trace.decide("fallback", at=name, reason=why)
    return Nest(anchor.fallback)


def partition(
    graph: Graph,
    lowered: Mapping[Node, Lowering],
    trace: Trace,
    *,
    fuse: bool = True,
    keep: frozenset[Value] = frozenset(),
    keep_all: bool = False,
    backend: Abilities = UNLIMITED,
) -> Partition:
    """Split the graph into regions.

    backend: whose templates run and what pays there; keep: values that must exist in memory (debug
    tensors); keep_all: every value that has memory keeps it to itself, so that it can be
    read after a run.
    """
    pinned = keep | graph.kept_values
    strided = strided_reads(graph, lowered, backend) if fuse else {}
    question = Question(
        graph, lowered, pinned, fuse, trace, backend.preferences, keep_all, strided
    )
    placement = place_values(question)
    if fuse:
        _absorb_epilogues(question, placement)
    regions = _order(placement, _collect(question, placement))
    for r in regions:
        trace.decide("region", name=r.root.name, ops=r.label, reason=r.reason)
    return Partition(tuple(regions), placement.aliases)


def _absorb_epilogues(q: Question, placement: Placement) -> None:
    """Step 2: find for each producer the pointwise kernel that reads its result elementwise."""
    sharers: dict[Value, list[Value]] = {}
    for alias, base in placement.aliases.items():
        sharers.setdefault(base, []).append(alias)
    for node in reversed(q.graph.nodes):
        if len(node.outputs) != 1 or not _takes_epilogue(q.lowered[node]):
            continue
        v = node.output
        names = [v, *sharers.get(v, ())]
        if any(x in q.pinned for x in names):
            continue
        root = _single_root(q, placement, names)
        if root is None or root in placement.absorbed:
            continue
        if _reads_elementwise(q, placement, root, names):
            placement.absorb(root, node, names)
        else:
            q.refuse(v, q.graph.producer[root], "its elements are not read in place")


def _takes_epilogue(low: Lowering) -> bool:
    if isinstance(low, Anchor):
        return low.spec.takes_epilogue
    if not isinstance(low, Nest):
        return False
    kernel = low.kernel
    if len(kernel.nests) != 1 or len(kernel.outputs) != 1 or len(kernel.nests[0].stores) != 1:
        return False
    store = kernel.nests[0].stores[0]
    return store.mode == "set" and store.over in ("outer", "all") and not kernel.nests[0].serial


def _single_root(q: Question, placement: Placement, names: list[Value]) -> Value | None:
    """The pointwise kernel root all uses of `names` belong to, if there is exactly one."""
    roots: set[Home] = set()
    for x in names:
        for user in q.graph.users.get(x, ()):
            if not isinstance(q.lowered[user], (Pointwise, View)):
                return None
            if user.output not in names:
                roots |= placement.roots(user.output)
    if len(roots) != 1:
        return None
    (root,) = roots
    if not isinstance(root, Value):
        return None
    is_pointwise = isinstance(q.lowered[q.graph.producer[root]], Pointwise)
    return root if is_pointwise else None


def _reads_elementwise(q: Question, placement: Placement, root: Value, names: list[Value]) -> bool:
    """Every read of `names` in the kernel of `root` is at the position that is being computed."""
    here = axes(root.type.rank)
    wrong: list[Index] = []

    def at(index: Index) -> Expr:
        if index != here:
            wrong.append(index)
        return hole(0, names[0].dtype)

    inliner = Inliner(q.graph, q.lowered, placement.has_bytes)
    inliner.holes.update({x: at for x in names if x.shape == root.shape})
    inliner.expand(root, here)
    return not wrong and not any(x in inliner.slots for x in names)


def _collect(q: Question, placement: Placement) -> list[Region]:
    """One region per kernel, with the nodes each computes."""
    regions: list[Region] = []
    position = {n: i for i, n in enumerate(q.graph.nodes)}
    taken = {n: root for root, n in placement.absorbed.items()}
    for node in q.graph.nodes:
        low = q.lowered[node]
        if isinstance(low, (Anchor, Nest, *Flow)):
            root = taken.get(node)
            outputs = (root,) if root is not None else node.outputs
            reason = "epilogue" if root is not None else type(low).__name__.lower()
            top = node if root is None else q.graph.producer[root]
            nodes = _nodes_of(q, placement, (node, top), node)
            regions.append(Region(outputs, node, _sorted(nodes, position), reason))
        elif node.output in placement.in_memory and node.output not in placement.absorbed:
            nodes = _nodes_of(q, placement, (node,), None)
            regions.append(Region((node.output,), None, _sorted(nodes, position), "pointwise"))
    return regions


def _sorted(nodes: set[Node], position: Mapping[Node, int]) -> tuple[Node, ...]:
    return tuple(sorted(nodes, key=lambda n: position[n]))


def _nodes_of(
    q: Question, placement: Placement, tops: Sequence[Node], producer: Node | None
) -> set[Node]:
    """Nodes computed in a kernel: walk up from `tops` through values without bytes."""
    nodes: set[Node] = set()
    stack = list(tops)
    while stack:
        n = stack.pop()
        if n in nodes:
            continue
        nodes.add(n)
        for v in n.inputs:
            if v is None or placement.has_bytes(v):
                continue
            up = q.graph.producer[v]
            if q.is_fused(v) or up is producer:
                stack.append(up)
    return nodes


def region_inputs(region: Region) -> list[Value]:
    """Values a region reads that none of its nodes makes, in first-use order."""
    made = {v for n in region.nodes for v in n.outputs}
    out: dict[Value, None] = {}
    for n in region.nodes:
        for v in n.inputs:
            if v is not None and v not in made:
                out[v] = None
    return list(out)


def _order(placement: Placement, regions: list[Region]) -> list[Region]:
    """Topological order of the regions, earliest graph position first among the ready ones."""
    position = {n: i for i, n in enumerate(placement.graph.nodes)}
    owner = {v: i for i, r in enumerate(regions) for v in r.outputs}
    needs: list[set[int]] = []
    users: list[set[int]] = [set() for _ in regions]
    read_from = sources(placement.graph.sizes)
    for i, r in enumerate(regions):
        deps = set()
        used = set().union(*map(node_symbols, r.nodes)) if read_from else set[str]()
        for v in (*region_inputs(r), *(v for s in sorted(used) for v in read_from.get(s, ()))):
            base = placement.aliases.get(v, v)
            if base in owner and owner[base] != i:
                deps.add(owner[base])
        needs.append(deps)
        for d in deps:
            users[d].add(i)
    rank = [position[r.nodes[-1]] for r in regions]
    ready = [(rank[i], i) for i, d in enumerate(needs) if not d]
    heapq.heapify(ready)
    order: list[Region] = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(regions[i])
        for u in users[i]:
            needs[u].discard(i)
            if not needs[u]:
                heapq.heappush(ready, (rank[u], u))
    assert len(order) == len(regions), "regions form a cycle"
    return order
