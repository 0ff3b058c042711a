"""model -> Plan, in the order of the flow: import, passes, fusion, tactics, planning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from braze.codegen.backend import Backend
from braze.core.config import BuildConfig
from braze.core.dims import DimExpr
from braze.core.errors import BindingError
from braze.core.trace import Trace
from braze.engine.plan import Plan
from braze.fusion.kernel import Packing
from braze.fusion.lower import LoweredRegion
from braze.fusion.network import LoweredGraph, lower_graph, network_text, regions_text
from braze.ir.graph import Graph, SizeGuard, Value
from braze.ir.run_sizes import unsure_symbols
from braze.ir.text import print_graph
from braze.passes.base import PassContext
from braze.passes.lower_precision import storage_types
from braze.passes.pipeline import run_pipeline
from braze.planning.assemble import assemble
from braze.planning.storage import Ranges
from braze.tuning.networks import Networks
from braze.tuning.select import Choose, Launch, Tuner, fastest
from braze.tuning.timing_cache import TimingCache

Array = np.ndarray[Any, Any]
ALL_DEBUG = "*"  # stands for every tensor that exists between kernels


@dataclass(frozen=True)
class Network:
    """A graph as kernels, before any code: what `braze check` reports and tactics are chosen for.

    lowered: what runs for it; kernels: all of them, those of bodies too; debug: names and values of
    what stays readable after a run.
    """

    lowered: LoweredGraph
    kernels: tuple[LoweredRegion, ...]
    debug: tuple[tuple[str, Value], ...]

    @property
    def graph(self) -> Graph:
        """The graph after all passes."""
        return self.lowered.graph


def build_plan(
    graph: Graph,
    profiles: Sequence[Ranges],
    config: BuildConfig,
    backend: Backend,
    trace: Trace,
    choose: Choose | None = None,
) -> Plan:
    """Compile an imported graph. profiles: (min, opt, max) of every symbol, per profile.

    choose: which tactics run, in place of the fastest; then nothing is measured.
    """
    network = make_kernels(graph, config, backend, trace)
    planner = _Planner(network, profiles, graph.specialized, config, backend, trace)
    with trace.stage("codegen"):
        guards = network.lowered.guards()
        launches = choose_code(
            network.kernels, profiles, config, backend, trace, choose, planner, guards
        )
    with trace.stage("planning"):
        return planner(launches)


@dataclass
class _Planner:
    """Plans of one network by different tactics; constants are packed once for all of them."""

    network: Network
    profiles: Sequence[Ranges]
    values: Mapping[str, tuple[int | float | DimExpr, ...]]
    config: BuildConfig
    backend: Backend
    trace: Trace
    packed: dict[tuple[int, Packing], tuple[Array, Array]] = field(default_factory=dict)

    def __call__(self, launches: Sequence[Launch]) -> Plan:
        layers = dict(self.config.layer_precisions)
        return assemble(
            self.network.lowered,
            launches,
            self.pack,
            target=self.backend.target,
            symbols=list(self.profiles[0]) if self.profiles else [],
            profiles=self.profiles,
            values=self.values,
            debug=self.network.debug,
            record={
                "precision": self.config.precision,
                "optimization_level": self.config.optimization_level,
                **({"layer_precisions": layers} if layers else {}),
                "decisions": self.trace.decisions,
            },
        )

    def pack(self, array: Array, packing: Packing) -> Array:
        """The array as a template wants it; the original is kept, as its address is the key."""
        key = (id(array), packing)
        if key not in self.packed:
            self.packed[key] = (array, self.backend.pack(array, packing))
        return self.packed[key][1]


def make_kernels(graph: Graph, config: BuildConfig, backend: Backend, trace: Trace) -> Network:
    """Passes and fusion: everything that comes before code."""
    context, given = PassContext(config, backend, trace), len(graph.outputs)
    names = () if ALL_DEBUG in config.debug else tuple(dict.fromkeys(config.debug))
    wide = storage_types(graph) if config.lowers else frozenset()
    with trace.stage("passes"):
        # passes keep outputs as they are, so they take debug tensors for such
        graph = run_pipeline(_with_outputs(graph, names), context)
        watched = tuple((n, dict(graph.outputs)[n]) for n in names)
        graph = replace(graph, outputs=graph.outputs[:given])
    trace.text("optimised", lambda: print_graph(graph))
    with trace.stage("fusion"):
        lowered = lower_graph(
            graph,
            backend,
            trace,
            fuse=config.effort.fuse,
            keep=frozenset(v for _, v in watched),
            keep_all=ALL_DEBUG in config.debug,
            wide=wide,
        )
        trace.text("regions", lambda: regions_text(lowered))
    trace.text("kernels", lambda: network_text(lowered))
    if ALL_DEBUG in config.debug:
        made = (v for r in lowered.partition.regions for v in r.outputs)
        watched = tuple((v.name, v) for v in made if v not in graph.output_values)
    return Network(lowered, tuple(lowered.kernels()), watched)


def choose_code(
    kernels: Sequence[LoweredRegion],
    profiles: Sequence[Ranges],
    config: BuildConfig,
    backend: Backend,
    trace: Trace,
    choose: Choose | None,
    planned: Callable[[Sequence[Launch]], Plan] | None = None,
    guards: Sequence[SizeGuard] = (),
) -> list[Launch]:
    """Tactics, times, choice and code of all kernels; keeps the timing cache.

    planned: the plan of the network by some launches, to time it as a whole (None: that is not
    done); guards: what the network assumes of sizes.
    """
    path = config.timing_cache
    cache = TimingCache() if path is None else TimingCache.load(path)
    opt = {name: r[1] for name, r in profiles[0].items()} if profiles else {}
    unsure = unsure_symbols(guards, opt)
    tuner = Tuner(backend, config.effort, opt, cache, trace, unsure)
    candidates = tuner.candidates(kernels)
    if choose is not None:
        return tuner.launches(kernels, candidates, choose(candidates))
    try:
        candidates = tuner.measure(candidates)
        chosen = fastest(candidates)
        if planned is not None and backend.target.space == "device":
            networks = Networks(tuner, kernels, candidates, planned, backend.load)
            chosen = networks.refined(chosen)
    finally:
        if path is not None:
            cache.save(path)
    return tuner.launches(kernels, candidates, chosen)


def _with_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with these values as outputs too; raises BindingError for names without one."""
    given = dict(graph.outputs)
    by_name: Mapping[str, Value] = {v.name: v for n in graph.nodes for v in n.outputs}
    missing = [n for n in names if n not in by_name and n not in given]
    if missing:
        raise BindingError(
            f"debug tensors {', '.join(missing)} are made by no step of the model: they are not in "
            "it, are inputs or constants, no output needs them, or they are within a loop or "
            "conditional; name others"
        )
    more = tuple((n, by_name[n]) for n in names if n not in given)
    return replace(graph, outputs=(*graph.outputs, *more)) if more else graph
