"""model -> Plan, in the order of the flow: import, passes, fusion, tactics, planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from braze.codegen.cpu import backend
from braze.core.config import BuildConfig
from braze.core.errors import BindingError
from braze.core.target import CpuTarget
from braze.core.trace import Trace
from braze.engine.plan import Plan
from braze.fusion.lower import Lowerer, kernels_text
from braze.fusion.partition import lower_nodes, partition
from braze.fusion.region import Partition
from braze.ir.graph import Graph, Node, Value
from braze.ir.text import print_graph
from braze.ops.move.shape import Reshape
from braze.passes.base import PassContext
from braze.passes.pipeline import run_pipeline
from braze.planning.assemble import Launch, Ranges, assemble
from braze.runtime.native import host_isa
from braze.tuning.select import Tuner
from braze.tuning.timing_cache import TimingCache


def build_plan(
    graph: Graph,
    profiles: Sequence[Ranges],
    config: BuildConfig,
    target: CpuTarget,
    trace: Trace,
) -> Plan:
    """Compile an imported graph. profiles: (min, opt, max) of every symbol, per profile."""
    specialized = graph.specialized
    trace.text("imported", lambda: print_graph(graph))
    with trace.stage("passes"):
        graph = run_pipeline(graph, PassContext(config, target, trace))
        graph = separate_outputs(graph)
    trace.text("optimised", lambda: print_graph(graph))
    with trace.stage("fusion"):
        lowered = lower_nodes(graph)
        fuse = config.optimization_level > 0
        debug = _debug_values(graph, partition(graph, lowered, Trace(), fuse=fuse), config.debug)
        parts = partition(graph, lowered, trace, fuse=fuse, keep=frozenset(debug))
    trace.text("regions", lambda: "\n".join(f"{r.label} -> {r.outputs}" for r in parts.regions))
    with trace.stage("codegen"):
        launches = _compile(Lowerer(graph, lowered, parts), profiles, config, target, trace)
    trace.text("kernels", lambda: kernels_text([launch.lowered for launch in launches]))
    with trace.stage("planning"):
        symbols = list(profiles[0]) if profiles else []
        return assemble(
            graph,
            parts,
            launches,
            backend.pack,
            target={"arch": "x86-64", "isa": target.isa},
            threads=target.threads,
            symbols=symbols,
            profiles=profiles,
            values=specialized,
            debug=debug,
            record={
                "precision": config.precision,
                "optimization_level": config.optimization_level,
                "decisions": trace.decisions,
            },
        )


def _compile(
    lower: Lowerer,
    profiles: Sequence[Ranges],
    config: BuildConfig,
    target: CpuTarget,
    trace: Trace,
) -> list[Launch]:
    path = config.timing_cache
    cache = TimingCache() if path is None else TimingCache.load(path)
    opt = {name: r[1] for name, r in profiles[0].items()} if profiles else {}
    measure = target.isa == host_isa()
    tuner = Tuner(backend, target, config.optimization_level, opt, cache, measure, trace)
    launches = []
    regions = lower.partition.regions
    try:
        for i, region in enumerate(regions):
            choice = tuner.choose(region, lower)
            launches.append(Launch(choice.lowered, choice.compiled, str(choice.tactic)))
            trace.report("compile", i + 1, len(regions))
    finally:
        if path is not None:
            cache.save(path)
    return launches


def separate_outputs(graph: Graph) -> Graph:
    """Give every graph output a value of its own, made by a node.

    An output that is a graph input or a constant, or that appears twice, becomes a copy, so that
    each binding has its own memory.
    """
    seen: set[Value] = set()
    nodes, outputs = list(graph.nodes), []
    for name, v in graph.outputs:
        own = v
        if v in seen or v not in graph.producer:
            own = Value(f"{v.name}_as_{name}_{len(nodes)}", v.type)
            nodes.append(Node(Reshape(v.shape), (v,), (own,), ()))
        seen.add(own)
        outputs.append((name, own))
    if len(nodes) == len(graph.nodes):
        return graph
    return replace(graph, nodes=tuple(nodes), outputs=tuple(outputs))


def _debug_values(graph: Graph, parts: Partition, names: Sequence[str]) -> list[Value]:
    """The values to keep readable; "*" stands for every tensor that exists between kernels."""
    if "*" in names:
        made = (v for r in parts.regions for v in r.outputs)
        return [v for v in made if v not in graph.output_values]
    by_name: Mapping[str, Value] = {v.name: v for n in graph.nodes for v in n.outputs}
    missing = [n for n in names if n not in by_name]
    if missing:
        raise BindingError(
            f"debug tensors {', '.join(missing)} do not exist after optimization; "
            "build with optimization_level=0 to keep every tensor of the model"
        )
    return [by_name[n] for n in dict.fromkeys(names)]
