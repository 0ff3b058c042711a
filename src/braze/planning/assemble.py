"""Plan assembly: compiled kernels in order + values -> buffers, steps, profiles, bindings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from braze.core.bounds import bounds
from braze.core.dims import Dim, dmax, product, substitute, sym
from braze.core.elements import size_of
from braze.core.target import Target
from braze.engine.plan import (
    AxisSource,
    Binding,
    Buffer,
    DebugTensor,
    Guard,
    Kernel,
    Module,
    Plan,
    Profile,
    Symbol,
    TargetRecord,
    Weight,
)
from braze.engine.steps import BufferRef, LibraryCall, Step
from braze.engine.steps import Launch as LaunchStep
from braze.engine.steps import TensorMap as MapRecord
from braze.fusion.in_place import in_place_slots
from braze.fusion.kernel import (
    Code,
    CompiledKernel,
    GridLaunch,
    HostLaunch,
    LibraryCode,
    Packing,
    TensorMap,
)
from braze.fusion.region import Partition
from braze.ir.graph import Graph, Value
from braze.planning.memory import Lifetime, aligned, lower_bound, plan_offsets
from braze.planning.sizes import SizeTable
from braze.tuning.select import Launch

Ranges = Mapping[str, tuple[int, int, int]]  # symbol -> (min, opt, max)
Pack = Callable[[np.ndarray[Any, Any], Packing], np.ndarray[Any, Any]]


@dataclass
class _Storage:
    """A buffer under construction; `first` and `last` are step indexes (arena only)."""

    kind: str
    bytes: Dim
    name: str
    first: int = 0
    last: int = 0
    offset: int = 0


@dataclass
class _Assembler:
    graph: Graph
    partition: Partition
    launches: Sequence[Launch]
    pack: Pack
    target: Target
    sizes: SizeTable
    storages: list[_Storage] = field(default_factory=list)
    of_value: dict[Value, int] = field(default_factory=dict)
    weights: list[Weight] = field(default_factory=list)
    weight_data: list[np.ndarray[Any, Any]] = field(default_factory=list)
    weight_of: dict[tuple[str, Packing | None], int] = field(default_factory=dict)
    weight_bytes: int = 0
    last_step: list[int] = field(default_factory=list)  # of each launch

    def new(self, storage: _Storage) -> int:
        self.storages.append(storage)
        return len(self.storages) - 1

    def value_bytes(self, v: Value) -> Dim:
        return size_of(product(v.shape), v.dtype)

    def weight(self, v: Value, packing: Packing | None) -> int:
        """Buffer of a constant, repacked when a kernel asks for it; equal content is shared."""
        content = self.graph.constants[v]
        key = (content, packing)
        if key not in self.weight_of:
            array = self.graph.weights.get(content)
            try:
                data = np.ascontiguousarray(array if packing is None else self.pack(array, packing))
            except MemoryError as e:
                raise MemoryError(f"constant {v.name}: {e}") from None
            offset, size = self.weight_bytes, data.nbytes
            self.weight_bytes += aligned(size)
            dtype = v.dtype if packing is None else packing.dtype
            self.weights.append(Weight(v.name, dtype, tuple(data.shape), offset, size, content))
            self.weight_data.append(data)
            self.weight_of[key] = self.new(_Storage("weight", size, v.name, offset=offset))
        return self.weight_of[key]


def assemble(
    graph: Graph,
    partition: Partition,
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

    symbols: every size symbol in order; profiles: (min, opt, max) of each symbol per profile;
    values: contents that inputs were specialised to; debug: values readable after a run step.
    """
    axes = _symbol_axes(graph)
    symbols = [s for s in symbols if s in axes]
    a = _Assembler(graph, partition, launches, pack, target, SizeTable(symbols))
    _bind_io(a)
    _allocate(a, debug)
    steps, modules, kernels = _steps(a)
    inputs = tuple(
        _binding(a, v.name, v, a.of_value[v], values.get(v.name, ())) for v in graph.inputs
    )
    outputs = tuple(
        _binding(a, name, v, a.of_value[partition.base(v)], ()) for name, v in graph.outputs
    )
    guards = tuple(Guard(a.sizes.index(g.lhs), a.sizes.index(g.rhs), g.what) for g in graph.guards)
    watched = tuple(_debug(a, v) for v in debug)
    buffers = tuple(_buffer(a, s) for s in a.storages)
    return Plan(
        target=TargetRecord(target.name, target.alignment, target.describe()),
        threads=target.threads,
        symbols=tuple(Symbol(s, axes[s]) for s in symbols),
        sizes=tuple(a.sizes.ops),
        guards=guards,
        inputs=inputs,
        outputs=outputs,
        buffers=buffers,
        modules=modules,
        kernels=kernels,
        steps=steps,
        profiles=tuple(_profile(a, symbols, p) for p in profiles),
        weights=tuple(a.weights),
        debug=watched,
        record=record,
        weight_data=tuple(a.weight_data),
    )


def _buffer(a: _Assembler, s: _Storage) -> Buffer:
    """What kernels keep lies in the target's memory; what callers bind, in the host's."""
    own = a.target.space if s.kind in ("arena", "weight") else "host"
    return Buffer(s.kind, a.sizes.index(s.bytes), s.offset, s.name, own)


def _symbol_axes(graph: Graph) -> dict[str, AxisSource]:
    """The first input axis that is each symbol."""
    axes: dict[str, AxisSource] = {}
    for i, v in enumerate(graph.inputs):
        for axis, d in enumerate(v.shape):
            if not isinstance(d, int) and d == sym(str(d)):
                axes.setdefault(str(d), AxisSource(i, axis))
    return axes


def _bind_io(a: _Assembler) -> None:
    for v in a.graph.inputs:
        a.of_value[v] = a.new(_Storage("input", a.value_bytes(v), v.name))
    for name, v in a.graph.outputs:
        base = a.partition.base(v)
        assert base not in a.of_value, f"output {name} shares memory with another binding"
        a.of_value[base] = a.new(_Storage("output", a.value_bytes(v), name))


def _allocate(a: _Assembler, debug: Sequence[Value]) -> None:
    """Give every value a step writes a storage; reuse a dying input in place where safe."""
    last: dict[Value, int] = {}
    for i, launch in enumerate(a.launches):
        for v in launch.lowered.inputs:
            last[a.partition.base(v)] = i
    end = len(a.launches)
    for v in debug:
        last[a.partition.base(v)] = end
    for i, launch in enumerate(a.launches):
        for v in launch.lowered.region.outputs:
            if v in a.of_value:
                continue
            reuse = _in_place_storage(a, launch, v, i, last)
            if reuse is None:
                a.of_value[v] = a.new(
                    _Storage("arena", a.value_bytes(v), v.name, i, last.get(v, i))
                )
            else:
                a.of_value[v] = reuse
                a.storages[reuse].last = last.get(v, i)


def _in_place_storage(
    a: _Assembler, launch: Launch, v: Value, step: int, last: Mapping[Value, int]
) -> int | None:
    for slot in in_place_slots(launch.lowered.kernel):
        base = a.partition.base(launch.lowered.inputs[slot])
        storage = a.of_value.get(base)
        if storage is None or a.storages[storage].kind != "arena":
            continue
        sharers = [x for x in launch.lowered.inputs if a.partition.base(x) is base]
        dies_here = last[base] == step and a.storages[storage].last == step
        if dies_here and len(sharers) == 1 and a.storages[storage].bytes == a.value_bytes(v):
            return storage
    return None


class _Hazards:
    """Which earlier steps a step must wait for: writers of what it reads, users of what it writes.

    Reuse of arena bytes by different buffers is the executor's business: it knows the offsets.
    """

    def __init__(self) -> None:
        self._writer: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}

    def step(self, index: int, reads: Sequence[int], writes: Sequence[int]) -> tuple[int, ...]:
        """Dependencies of step `index`; call in step order."""
        after = {self._writer[b] for b in (*reads, *writes) if b in self._writer}
        for b in writes:
            after |= set(self._readers.pop(b, ()))
        for b in reads:
            self._readers.setdefault(b, []).append(index)
        for b in writes:
            self._writer[b] = index
        return tuple(sorted(after - {index}))


@dataclass
class _Code:
    """Modules and kernels of a plan; equal code is stored once."""

    modules: list[Module] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    index_of: dict[tuple[Code, GridLaunch], int] = field(default_factory=dict)

    def kernel(self, c: CompiledKernel) -> int:
        """Index of the kernel of `c`."""
        grid = c.launch if isinstance(c.launch, GridLaunch) else GridLaunch(1, 0, 0)
        code = c.own_code
        key = (code, replace(grid, grid=1, scratch_bytes=0, maps=()))
        if key not in self.index_of:
            self.index_of[key] = len(self.kernels)
            module = len(self.modules)
            block = (grid.block, grid.shared_bytes, grid.counters, grid.waits)
            self.kernels.append(Kernel(code.entry, module, *block))
            self.modules.append(Module(code.kind, code.needs, code.data))
        return self.index_of[key]

    def data_of(self, call: LibraryCode) -> int:
        """Index of the module with the data of a call, or -1 for none."""
        module = Module("library", call.library, call.data)
        if not call.data:
            return -1
        if module not in self.modules:
            self.modules.append(module)
        return self.modules.index(module)


def _steps(
    a: _Assembler,
) -> tuple[tuple[Step, ...], tuple[Module, ...], tuple[Kernel, ...]]:
    code = _Code()
    steps: list[Step] = []
    hazards = _Hazards()
    for i, launch in enumerate(a.launches):
        reads = _inputs_of(a, launch)
        writes = [BufferRef(a.of_value[v]) for v in launch.lowered.region.outputs]
        scratch = _scratch_of(a, launch, i)
        piece: CompiledKernel | None = launch.compiled
        while piece is not None:
            refs = piece.passed([*reads, *writes])
            if piece.launch.workspace(a.target.threads) != 0:
                refs += scratch
            first = piece is launch.compiled
            seen = reads if first else [*reads, *writes, *scratch]
            written = [r.buffer for r in (*writes, *scratch)]
            after = hazards.step(len(steps), [r.buffer for r in seen], written)
            steps.append(_step(a, launch, piece, code, tuple(refs), after))
            piece = piece.then
        a.last_step.append(len(steps) - 1)
    return tuple(steps), tuple(code.modules), tuple(code.kernels)


def _scratch_of(a: _Assembler, launch: Launch, index: int) -> list[BufferRef]:
    """The workspace that the pieces of one kernel share, if any wants one."""
    size: Dim = 0
    piece: CompiledKernel | None = launch.compiled
    while piece is not None:
        wanted = substitute(piece.launch.workspace(a.target.threads), launch.lowered.places)
        size = wanted if size == 0 else dmax(size, wanted)
        piece = piece.then
    return [] if size == 0 else [BufferRef(a.new(_Storage("arena", size, "scratch", index, index)))]


def _inputs_of(a: _Assembler, launch: Launch) -> list[BufferRef]:
    """The buffers of a kernel's input slots."""
    packings = dict(launch.compiled.packings)
    refs = []
    for slot, v in enumerate(launch.lowered.inputs):
        base = a.partition.base(v)
        if base in a.graph.constants:
            refs.append(BufferRef(a.weight(base, packings.get(slot))))
        else:
            refs.append(BufferRef(a.of_value[base]))
    return refs


def _step(
    a: _Assembler,
    launch: Launch,
    piece: CompiledKernel,
    code: _Code,
    refs: tuple[BufferRef, ...],
    after: tuple[int, ...],
) -> Step:
    region = launch.lowered.region
    how = piece.launch
    places = launch.lowered.places
    name = f"{region.root.name} [{region.label}]"
    params = tuple(a.sizes.index(substitute(p, places)) for p in piece.params)
    if isinstance(piece.code, LibraryCode):
        what = (piece.code.library, piece.code.routine, name, refs, params, piece.code.attributes)
        module = code.data_of(piece.code)
        return LibraryCall(*what, after, region.origins, str(launch.tactic), module)
    grid: tuple[int, ...] = ()
    maps: tuple[MapRecord, ...] = ()
    if isinstance(how, GridLaunch):
        grid = (a.sizes.index(substitute(how.grid, places)),)
        maps = tuple(_map(a, m, places) for m in how.maps)
    return LaunchStep(
        kernel=code.kernel(piece),
        name=name,
        buffers=refs,
        params=params,
        parallel=not isinstance(how, HostLaunch) or how.parallel,
        after=after,
        origins=region.origins,
        tactic=str(launch.tactic),
        grid=grid,
        maps=maps,
    )


def _map(a: _Assembler, m: TensorMap, places: Mapping[str, Dim]) -> MapRecord:
    """A tensor map with its sizes in the shape program."""
    shape, strides = (
        tuple(a.sizes.index(substitute(d, places)) for d in dims) for dims in (m.shape, m.strides)
    )
    return MapRecord(m.buffer, m.dtype, shape, strides, m.box, m.swizzle)


def _binding(
    a: _Assembler, name: str, v: Value, buffer: int, value: tuple[int | float, ...]
) -> Binding:
    shape = tuple(a.sizes.index(d) for d in v.shape)
    return Binding(name, v.dtype, shape, buffer, value)


def _profile(a: _Assembler, symbols: Sequence[str], ranges: Ranges) -> Profile:
    env = {s: (ranges[s][0], ranges[s][2]) for s in symbols}
    arena = [i for i, s in enumerate(a.storages) if s.kind == "arena"]
    lives = [
        Lifetime(bounds(a.storages[i].bytes, env)[1], a.storages[i].first, a.storages[i].last)
        for i in arena
    ]
    placed, total = plan_offsets(lives, a.target.alignment)
    least = lower_bound(lives, a.target.alignment)
    offsets = [-1] * len(a.storages)
    for i, at in zip(arena, placed, strict=True):
        offsets[i] = at
    return Profile(tuple(ranges[s] for s in symbols), tuple(offsets), total, least)


def _debug(a: _Assembler, v: Value) -> DebugTensor:
    base = a.partition.base(v)
    made = [i for i, x in enumerate(a.launches) if base in x.lowered.region.outputs]
    shape = tuple(a.sizes.index(d) for d in v.shape)
    return DebugTensor(v.name, v.dtype, shape, BufferRef(a.of_value[base]), a.last_step[made[0]])
