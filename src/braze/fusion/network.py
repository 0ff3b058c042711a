"""A graph as steps: its kernels, and the bodies that its control flow runs, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from braze.core.dtypes import DType
from braze.core.trace import Trace
from braze.fusion.finishing import finished
from braze.fusion.lower import LoweredRegion, is_flow, kernels_text, lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.fusion.pooling import pooled
from braze.fusion.region import Partition, Region
from braze.fusion.side_by_side import side_by_side
from braze.ir.graph import Graph, SizeGuard, Value
from braze.ops.abilities import Abilities
from braze.ops.lowering import Branch, Repeat


@dataclass(frozen=True)
class LoweredFlow:
    """Control flow: what it does, the values it is passed, and its bodies as steps."""

    region: Region
    how: Branch | Repeat
    inputs: tuple[Value, ...]
    bodies: tuple[LoweredGraph, ...]


Item = LoweredRegion | LoweredFlow


@dataclass(frozen=True)
class LoweredGraph:
    """A graph (the network, or a body) and what runs for it, in order."""

    graph: Graph
    partition: Partition
    items: tuple[Item, ...]

    def guards(self) -> tuple[SizeGuard, ...]:
        """What is assumed of sizes, in bodies too."""
        found = dict.fromkeys(self.graph.guards)
        for item in self.items:
            for body in item.bodies if isinstance(item, LoweredFlow) else ():
                found.update(dict.fromkeys(body.guards()))
        return tuple(found)

    def kernels(self) -> Iterator[LoweredRegion]:
        """Every kernel, those of bodies where they are run."""
        for item in self.items:
            if isinstance(item, LoweredRegion):
                yield item
            else:
                for body in item.bodies:
                    yield from body.kernels()


def lower_graph(
    graph: Graph,
    backend: Abilities,
    trace: Trace,
    *,
    fuse: bool = True,
    keep: frozenset[Value] = frozenset(),
    keep_all: bool = False,
    wide: frozenset[DType] = frozenset(),
) -> LoweredGraph:
    """Form the kernels of a graph and of the bodies in it; see `partition` and `lower_all` for the
    options."""
    lowered = lower_nodes(graph, backend, trace)
    parts = partition(
        graph, lowered, trace, fuse=fuse, keep=keep, keep_all=keep_all, backend=backend
    )
    kernels = iter(lower_all(graph, lowered, parts, backend.preferences.shares_products, wide))
    items: list[Item] = []
    for region in parts.regions:
        if not is_flow(region, lowered):
            items.append(next(kernels))
            continue
        assert region.producer is not None
        how = lowered[region.producer]
        assert isinstance(how, (Branch, Repeat))
        bodies = tuple(lower_graph(b, backend, trace, fuse=fuse, wide=wide) for b in how.bodies)
        inputs = tuple(v for v in region.producer.inputs if v is not None)
        items.append(LoweredFlow(region, how, inputs, bodies))
    alone = [item for item in items if isinstance(item, LoweredRegion)]
    prefers = backend.preferences
    if fuse and prefers.finishes and not keep_all and len(alone) == len(items):
        pinned = keep | graph.kept_values
        alone = list(pooled(alone, graph, parts, pinned, backend))
        alone = list(finished(alone, parts, pinned))
        items = [*alone]
    if fuse and prefers.side_by_side and len(alone) == len(items):
        items = list(side_by_side(alone, parts, graph.sizes))
    return LoweredGraph(graph, parts, tuple(items))


def regions_text(network: LoweredGraph) -> str:
    """The regions as a stage for people."""
    lines = [f"{r.label} -> {r.outputs}" for r in network.partition.regions]
    for name, body in bodies_of(network):
        lines += [f"{name}:", *(f"  {line}" for line in regions_text(body).splitlines())]
    return "\n".join(lines)


def network_text(network: LoweredGraph) -> str:
    """The kernels as a stage for people."""
    lines = [kernels_text([k for k in network.items if isinstance(k, LoweredRegion)])]
    for name, body in bodies_of(network):
        lines += [f"{name}:", *(f"  {line}" for line in network_text(body).splitlines())]
    return "\n".join(lines)


def bodies_of(network: LoweredGraph) -> Sequence[tuple[str, LoweredGraph]]:
    """The bodies that items of a network run, with names for people."""
    return [
        (f"{item.region.label} {item.region.root.name}, {body.graph.name}", body)
        for item in network.items
        if isinstance(item, LoweredFlow)
        for body in item.bodies
    ]
