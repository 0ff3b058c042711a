"""Compiled kernels and control flow in order -> steps of a plan, modules and kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from braze.core.dims import Dim, substitute
from braze.engine.plan import Kernel, Module
from braze.engine.steps import BufferRef, LibraryCall, Step
from braze.engine.steps import Launch as LaunchStep
from braze.engine.steps import TensorMap as MapRecord
from braze.fusion.kernel import (
    Code,
    CompiledKernel,
    GridLaunch,
    HostLaunch,
    LibraryCode,
    TensorMap,
)
from braze.fusion.region import Partition
from braze.ir.graph import Graph
from braze.planning.sizes import SizeTable
from braze.planning.storage import Memory
from braze.tuning.select import Launch


class Hazards:
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
class CodeTable:
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


@dataclass
class KernelSteps:
    """Makes the steps of kernels."""

    memory: Memory
    code: CodeTable

    @property
    def sizes(self) -> SizeTable:
        """The shape program."""
        return self.memory.sizes

    def inputs_of(self, graph: Graph, parts: Partition, launch: Launch) -> list[BufferRef]:
        """The buffers of a kernel's input slots."""
        packings = dict(launch.compiled.packings)
        refs = []
        for slot, v in enumerate(launch.lowered.inputs):
            base = parts.base(v)
            if base in graph.constants:
                refs.append(BufferRef(self.memory.weight(graph, base, packings.get(slot))))
            else:
                refs.append(BufferRef(self.memory.of_value[base]))
        return refs

    def step(
        self,
        launch: Launch,
        piece: CompiledKernel,
        refs: tuple[BufferRef, ...],
        after: tuple[int, ...],
    ) -> Step:
        """The step of one piece of a kernel."""
        region = launch.lowered.region
        how = piece.launch
        places = launch.lowered.places
        name = f"{region.root.name} [{region.label}]"
        params = tuple(self.sizes.index(substitute(p, places)) for p in piece.params)
        if isinstance(piece.code, LibraryCode):
            code = piece.code
            what = (code.library, code.routine, name, refs, params, code.attributes)
            module = self.code.data_of(code)
            return LibraryCall(*what, after, region.origins, str(launch.tactic), module)
        grid: tuple[int, ...] = ()
        maps: tuple[MapRecord, ...] = ()
        if isinstance(how, GridLaunch):
            grid = (self.sizes.index(substitute(how.grid, places)),)
            maps = tuple(self._map(m, places) for m in how.maps)
        return LaunchStep(
            kernel=self.code.kernel(piece),
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

    def _map(self, m: TensorMap, places: Mapping[str, Dim]) -> MapRecord:
        """A tensor map with its sizes in the shape program."""
        shape, strides = (
            tuple(self.sizes.index(substitute(d, places)) for d in dims)
            for dims in (m.shape, m.strides)
        )
        return MapRecord(m.buffer, m.dtype, shape, strides, m.box, m.swizzle)
