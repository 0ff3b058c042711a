"""Lists of steps: that of the plan and those of its bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from braze.engine.steps import Body, BufferRef, Carried, If, KnownSize, Loop, Sizes, Step
from braze.fusion.kernel import CompiledKernel
from braze.fusion.lower import LoweredRegion
from braze.fusion.network import LoweredFlow, LoweredGraph
from braze.ir.graph import Value
from braze.ops.lowering import Branch, Repeat
from braze.planning.late import Group
from braze.planning.places import Places
from braze.planning.steps import Hazards, KernelSteps
from braze.tuning.select import Launch


@dataclass
class Bodies:
    """The bodies of a plan so far, and what makes lists of steps."""

    places: Places
    kernels: KernelSteps
    launches: Mapping[int, Launch]  # of every LoweredRegion, by id
    done: list[Body] = field(default_factory=list)

    def add(self, name: str, network: LoweredGraph) -> int:
        """The number of a new body."""
        made = StepList(self, network)
        self.done.append(Body(name, tuple(made.steps)))
        return len(self.done) - 1


class StepList:
    """The steps of a network, or of a body. last_step: of each item, by id."""

    def __init__(self, bodies: Bodies, network: LoweredGraph) -> None:
        self.steps: list[Step] = []
        self.last_step: dict[int, int] = {}
        self._bodies = bodies
        self._network = network
        self._hazards = Hazards()
        before = bodies.places.sizes_before(network)
        for item, groups in zip(network.items, before, strict=False):
            self._sizes(groups)
            if isinstance(item, LoweredRegion):
                self._kernel(item)
            else:
                self._flow(item)
            self.last_step[id(item)] = len(self.steps) - 1
        self._sizes(before[-1])

    def _sizes(self, groups: Sequence[Group]) -> None:
        """Steps that give sizes."""
        table = self._bodies.kernels.sizes
        for group in groups:
            known = tuple(
                KnownSize(
                    table.symbols.index(s.symbol), table.index(s.size) if s.value is None else -1
                )
                for s in group
            )
            self.steps.append(Sizes(known, ", ".join(s.symbol for s in group)))

    def _kernel(self, low: LoweredRegion) -> None:
        kernels, launch = self._bodies.kernels, self._bodies.launches[id(low)]
        of_value = kernels.memory.of_value
        reads = kernels.inputs_of(self._network.graph, self._network.partition, launch)
        writes = [BufferRef(of_value[v]) for v in low.region.outputs]
        workspace = self._bodies.places.scratch_of(low)
        scratch = [] if workspace is None else [BufferRef(workspace)]
        piece: CompiledKernel | None = launch.compiled
        while piece is not None:
            refs = piece.passed([*reads, *writes])
            if piece.launch.workspace(kernels.memory.target.threads) != 0:
                refs += scratch
            first = piece is launch.compiled
            seen = reads if first else [*reads, *writes, *scratch]
            written = [r.buffer for r in (*writes, *scratch)]
            after = self._hazards.step(len(self.steps), [r.buffer for r in seen], written)
            self.steps.append(kernels.step(launch, piece, tuple(refs), after))
            piece = piece.then

    def _ref(self, v: Value) -> BufferRef:
        """The buffer of a value."""
        memory, network = self._bodies.kernels.memory, self._network
        base = network.partition.base(v)
        if base in network.graph.constants:
            return BufferRef(memory.weight(network.graph, base, None))
        return BufferRef(memory.of_value[base])

    def _flow(self, item: LoweredFlow) -> None:
        reads = [self._ref(v).buffer for v in item.inputs]
        of_value = self._bodies.kernels.memory.of_value
        writes = [of_value[v] for v in item.region.outputs]
        self._hazards.step(len(self.steps), reads, writes)
        step = self._branch(item) if isinstance(item.how, Branch) else self._loop(item, item.how)
        self.steps.append(step)

    def _name(self, item: LoweredFlow) -> str:
        return f"{item.region.root.name} [{item.region.label}]"

    def _branch(self, item: LoweredFlow) -> If:
        then, otherwise = (
            self._bodies.add(b.graph.name, b) if b.items else -1 for b in item.bodies
        )
        condition = self._ref(item.inputs[0])
        return If(condition, then, otherwise, self._name(item), item.region.origins)

    def _loop(self, item: LoweredFlow, how: Repeat) -> Loop:
        (body,) = item.bodies
        of_value = self._bodies.kernels.memory.of_value
        given = list(item.inputs)
        trip = self._ref(given.pop(0)) if how.trip else None
        first = 0 if how.condition else 1  # of what is carried, the condition among it
        taken = body.graph.inputs[1:]
        carried: list[Carried] = []
        for (_, made), kept, start in zip(body.graph.outputs, taken, given, strict=False):
            if len(carried) == how.carried + 1 - first:
                break
            next_ = BufferRef(of_value[body.partition.base(made)])
            carried.append(Carried(of_value[kept], self._ref(start), next_))
        counter = of_value[body.graph.inputs[0]]
        condition = BufferRef(carried[0].target) if how.condition else None
        index = self._bodies.add(body.graph.name, body)
        return Loop(
            index,
            trip,
            condition,
            counter,
            tuple(carried),
            (),
            self._name(item),
            item.region.origins,
        )
