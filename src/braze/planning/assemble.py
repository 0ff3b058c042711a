"""Plan assembly: compiled kernels in order + values -> buffers, steps, profiles, bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from braze.core.dims import DimExpr, sym
from braze.core.target import Target
from braze.engine.plan import (
    AssignedSource,
    AxisSource,
    Binding,
    DebugTensor,
    ElementSource,
    Guard,
    Plan,
    Symbol,
    SymbolSource,
    TargetRecord,
)
from braze.engine.steps import BufferRef
from braze.fusion.network import LoweredFlow, LoweredGraph
from braze.fusion.region import Partition
from braze.ir.graph import Graph, RunSize, SizeGuard, Value
from braze.planning.counts import FlowSizes, early_guards, flow_sizes, with_flow_sizes
from braze.planning.late import all_run_sizes
from braze.planning.lists import Bodies, StepList
from braze.planning.places import Places, Schedule
from braze.planning.sizes import SizeTable
from braze.planning.steps import CodeTable, KernelSteps
from braze.planning.storage import Memory, Pack, Ranges, Storage, value_bytes
from braze.tuning.select import Launch


def assemble(
    network: LoweredGraph,
    launches: Sequence[Launch],
    pack: Pack,
    *,
    target: Target,
    symbols: Sequence[str],
    profiles: Sequence[Ranges],
    values: Mapping[str, tuple[int | float | DimExpr, ...]],
    debug: Sequence[tuple[str, Value]] = (),
    record: dict[str, Any],
) -> Plan:
    """The Plan of a compiled network.

    launches: of every kernel, those of bodies too; symbols: every size symbol in order; profiles:
    (min, opt, max) of each symbol per profile; values: contents that inputs were specialised to,
    or symbols of their elements;
    debug: names and values of what is readable after a run step.
    """
    graph, base = network.graph, network.partition.base
    axes = _symbol_axes(graph)
    of_run = {s.symbol: (s, where) for s, where in all_run_sizes(network)}
    symbols = [s for s in symbols if s in axes or s in of_run]
    inner = flow_sizes(network, symbols)
    symbols += [s for f in inner.values() for s in f.symbols]
    late = {s.symbol: s for f in inner.values() for s in f.run_sizes()}
    late |= {n: s for n, (s, _) in of_run.items()}
    memory = Memory(target, pack, SizeTable(symbols), late)
    places = _places(memory, network, launches, inner, [v for _, v in debug])
    code = CodeTable()
    bodies = Bodies(places, KernelSteps(memory, code), places.launches)
    main = StepList(bodies, network)
    sizes, of_value = memory.sizes, memory.of_value
    inputs = tuple(
        _binding(sizes, v.name, v, of_value[v], values.get(v.name, ())) for v in graph.inputs
    )
    outputs = tuple(_binding(sizes, name, v, of_value[base(v)], ()) for name, v in graph.outputs)
    guards = tuple(_guard(sizes, g) for g in _guards(network, inner))
    watched = tuple(_debug(network, memory, main, *named) for named in debug)
    read = {s: _run_source(memory, size, where) for s, (size, where) in of_run.items()}
    buffers = memory.buffers()
    return Plan(
        target=TargetRecord(target.name, target.alignment, target.describe()),
        threads=target.threads,
        symbols=tuple(_symbol(s, {**read, **axes}) for s in symbols),
        sizes=tuple(sizes.ops),
        guards=guards,
        inputs=inputs,
        outputs=outputs,
        buffers=buffers,
        modules=tuple(code.modules),
        kernels=tuple(code.kernels),
        steps=tuple(main.steps),
        profiles=tuple(memory.profile(with_flow_sizes(p, inner)) for p in profiles),
        weights=tuple(memory.weights),
        debug=watched,
        record=record,
        weight_data=tuple(memory.weight_data),
        bodies=tuple(bodies.done),
    )


def _places(
    memory: Memory,
    network: LoweredGraph,
    launches: Sequence[Launch],
    inner: Mapping[int, FlowSizes],
    debug: Sequence[Value],
) -> Places:
    """Where all values lie."""
    _bind_io(memory, network.graph, network.partition)
    by_item = {id(launch.lowered): launch for launch in launches}
    places = Places(memory, Schedule.of_network(network), by_item, inner)
    places.assign(network, debug, places.schedule.end)
    return places


def _symbol_axes(graph: Graph) -> dict[str, AxisSource]:
    """The first input axis that is each symbol."""
    axes: dict[str, AxisSource] = {}
    for i, v in enumerate(graph.inputs):
        for axis, d in enumerate(v.shape):
            if not isinstance(d, int) and d == sym(str(d)):
                axes.setdefault(str(d), AxisSource(i, axis))
    return axes


def _run_source(memory: Memory, size: RunSize, network: LoweredGraph) -> SymbolSource:
    """Where a size of the run comes from."""
    if size.value is None:
        return AssignedSource()
    base, graph = network.partition.base(size.value), network.graph
    constant = base in graph.constants
    buffer = memory.weight(graph, base, None) if constant else memory.of_value[base]
    return ElementSource(buffer, size.element)


def _bind_io(memory: Memory, graph: Graph, parts: Partition) -> None:
    for v in graph.inputs:
        memory.of_value[v] = memory.new(Storage("input", value_bytes(v), v.name))
    for name, v in graph.outputs:
        base = parts.base(v)
        assert base not in memory.of_value, f"output {name} shares memory with another binding"
        memory.of_value[base] = memory.new(Storage("output", value_bytes(v), name))


def _symbol(name: str, sources: Mapping[str, SymbolSource]) -> Symbol:
    return Symbol(name, sources.get(name, AssignedSource()))


def _guard(sizes: SizeTable, g: SizeGuard) -> Guard:
    return Guard(sizes.index(g.lhs), sizes.index(g.rhs), g.what)


def _guards(network: LoweredGraph, inner: Mapping[int, FlowSizes]) -> list[SizeGuard]:
    """What is assumed of sizes, in bodies too."""
    found = dict.fromkeys(network.graph.guards)
    for item in network.items:
        if not isinstance(item, LoweredFlow):
            continue
        for body in item.bodies:
            early = set(early_guards(body.graph))
            found.update(dict.fromkeys(g for g in _guards(body, inner) if g not in early))
        given = inner[id(item)].guards if id(item) in inner else ()
        found.update({replace(g, lhs=sym(s)): None for guards in given for s, g in guards.items()})
    return list(found)


def _binding(
    sizes: SizeTable, name: str, v: Value, buffer: int, value: tuple[int | float | DimExpr, ...]
) -> Binding:
    shape = tuple(sizes.index(d) for d in v.shape)
    content = tuple(sizes.symbols.index(str(d)) for d in value if isinstance(d, DimExpr))
    fixed = tuple(x for x in value if not isinstance(x, DimExpr))
    return Binding(name, v.dtype, shape, buffer, fixed, content)


def _debug(
    network: LoweredGraph, memory: Memory, steps: StepList, name: str, v: Value
) -> DebugTensor:
    base = network.partition.base(v)
    made = next(x for x in network.items if base in x.region.outputs)
    shape = tuple(memory.sizes.index(d) for d in v.shape)
    place = BufferRef(memory.of_value[base])
    return DebugTensor(name, v.dtype, shape, place, steps.last_step[id(made)])
