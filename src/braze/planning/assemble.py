"""Plan assembly: compiled kernels in order + values -> buffers, steps, profiles, bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from braze.core.dims import sym
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
from braze.fusion.network import LoweredGraph
from braze.fusion.region import Partition
from braze.ir.graph import Graph, RunSize, Value
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
    values: Mapping[str, tuple[int | float, ...]],
    debug: Sequence[Value] = (),
    record: dict[str, Any],
) -> Plan:
    """The Plan of a compiled network.

    launches: of every kernel, those of bodies too; symbols: every size symbol in order; profiles:
    (min, opt, max) of each symbol per profile; values: contents that inputs were specialised to;
    debug: values readable after a run step.
    """
    graph, base = network.graph, network.partition.base
    axes = _symbol_axes(graph)
    of_run = {s.symbol: (s, where) for s, where in all_run_sizes(network)}
    symbols = [s for s in symbols if s in axes or s in of_run]
    memory = Memory(target, pack, SizeTable(symbols), {n: s for n, (s, _) in of_run.items()})
    _bind_io(memory, graph, network.partition)
    by_item = {id(launch.lowered): launch for launch in launches}
    places = Places(memory, Schedule.of_network(network), by_item)
    places.assign(network, debug, places.schedule.end)
    code = CodeTable()
    bodies = Bodies(places, KernelSteps(memory, code), by_item)
    main = StepList(bodies, network)
    sizes, of_value = memory.sizes, memory.of_value
    inputs = tuple(
        _binding(sizes, v.name, v, of_value[v], values.get(v.name, ())) for v in graph.inputs
    )
    outputs = tuple(_binding(sizes, name, v, of_value[base(v)], ()) for name, v in graph.outputs)
    guards = tuple(Guard(sizes.index(g.lhs), sizes.index(g.rhs), g.what) for g in network.guards())
    watched = tuple(_debug(network, memory, main, v) for v in debug)
    sources = (axes[s] if s in axes else _run_source(memory, *of_run[s]) for s in symbols)
    named = tuple(map(Symbol, symbols, sources))
    buffers = memory.buffers()
    return Plan(
        target=TargetRecord(target.name, target.alignment, target.describe()),
        threads=target.threads,
        symbols=named,
        sizes=tuple(sizes.ops),
        guards=guards,
        inputs=inputs,
        outputs=outputs,
        buffers=buffers,
        modules=tuple(code.modules),
        kernels=tuple(code.kernels),
        steps=tuple(main.steps),
        profiles=tuple(memory.profile(p) for p in profiles),
        weights=tuple(memory.weights),
        debug=watched,
        record=record,
        weight_data=tuple(memory.weight_data),
        bodies=tuple(bodies.done),
    )


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


def _binding(
    sizes: SizeTable, name: str, v: Value, buffer: int, value: tuple[int | float, ...]
) -> Binding:
    return Binding(name, v.dtype, tuple(sizes.index(d) for d in v.shape), buffer, value)


def _debug(network: LoweredGraph, memory: Memory, steps: StepList, v: Value) -> DebugTensor:
    base = network.partition.base(v)
    made = next(x for x in network.items if base in x.region.outputs)
    shape = tuple(memory.sizes.index(d) for d in v.shape)
    place = BufferRef(memory.of_value[base])
    return DebugTensor(v.name, v.dtype, shape, place, steps.last_step[id(made)])
