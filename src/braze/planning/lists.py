"""Lists of steps: that of the plan and those of its bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from braze.core.dims import sym
from braze.engine.steps import (
    Body,
    BufferRef,
    Carried,
    CarriedSize,
    Copy,
    If,
    KnownSize,
    Loop,
    Sizes,
    Step,
)
from braze.fusion.kernel import CompiledKernel
from braze.fusion.lower import LoweredRegion
from braze.fusion.network import LoweredFlow, LoweredGraph
from braze.ir.graph import SizeGuard, Value
from braze.ops.lowering import Branch, Repeat
from braze.planning.counts import FlowSizes
from braze.planning.late import Group
from braze.planning.places import Places
from braze.planning.steps import Hazards, KernelSteps
from braze.planning.storage import value_bytes
from braze.tuning.select import Launch


@dataclass
class Bodies:
    """The bodies of a plan so far, and what makes lists of steps."""

    places: Places
    kernels: KernelSteps
    launches: Mapping[int, Launch]  # of every LoweredRegion, by id
    done: list[Body] = field(default_factory=list)

    def add(
        self,
        network: LoweredGraph,
        guards: Mapping[str, SizeGuard],
        last: Sequence[Copy | Sizes] = (),
    ) -> int:
        """The number of a new body; guards: see FlowSizes; last: its steps behind its items'."""
        made = StepList(self, network, guards)
        for step in last:
            made.add(step)
        self.done.append(Body(network.graph.name, tuple(made.steps)))
        return len(self.done) - 1


class StepList:
    """The steps of a network, or of a body. last_step: of each item, by id."""

    def __init__(
        self, bodies: Bodies, network: LoweredGraph, guards: Mapping[str, SizeGuard] | None = None
    ) -> None:
        self.steps: list[Step] = []
        self.last_step: dict[int, int] = {}
        self._bodies = bodies
        self._network = network
        self._hazards = Hazards()
        if guards:
            table = bodies.kernels.sizes
            known = ((table.symbols.index(s), table.index(g.lhs)) for s, g in guards.items())
            self.steps.append(Sizes(tuple(KnownSize(*k) for k in known), "guards"))
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

    def add(self, step: Copy | Sizes) -> None:
        """Add a step that depends on no kernel's code."""
        if isinstance(step, Sizes):
            self.steps.append(step)
            return
        after = self._hazards.step(len(self.steps), [step.source.buffer], [step.target.buffer])
        self.steps.append(replace(step, after=after))

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
            self._bodies.add(b, self._guards(item, i), self._results(item, b)) if b.items else -1
            for i, b in enumerate(item.bodies)
        )
        condition = self._ref(item.inputs[0])
        return If(condition, then, otherwise, self._name(item), item.region.origins)

    def _guards(self, item: LoweredFlow, body: int) -> Mapping[str, SizeGuard]:
        """What a body assumes of sizes when it runs."""
        sizes = self._bodies.places.sizes.get(id(item))
        return {} if sizes is None else sizes.guards[body]

    def _results(self, item: LoweredFlow, body: LoweredGraph) -> list[Copy | Sizes]:
        """Steps that move what a branch makes to where it belongs, in its own size."""
        steps: list[Copy | Sizes] = []
        memory, sizes = self._bodies.kernels.memory, self._bodies.places.sizes.get(id(item))
        for i, symbol in sizes.bytes.items() if sizes is not None else ():
            made, whole = body.graph.outputs[i][1], item.region.outputs[i]
            size = memory.sizes.index(value_bytes(made))
            known = KnownSize(memory.sizes.symbols.index(symbol), size)
            steps.append(Sizes((known,), symbol))
            source = BufferRef(memory.of_value[body.partition.base(made)])
            target = BufferRef(memory.of_value[whole])
            steps.append(Copy(source, target, size, f"{whole.name} [result]"))
        return steps

    def _loop(self, item: LoweredFlow, how: Repeat) -> Loop:
        (body,) = item.bodies
        of_value = self._bodies.kernels.memory.of_value
        given = list(item.inputs)
        trip = self._ref(given.pop(0)) if how.trip else None
        counter, *taken = body.graph.inputs
        kept = [of_value[v] for v in taken[: how.carried]]
        if how.condition:
            kept.insert(0, self._bodies.places.flags[id(item)])
        made = [body.partition.base(v) for _, v in body.graph.outputs]
        carried = tuple(
            Carried(target, self._ref(first), BufferRef(of_value[v]))
            for target, first, v in zip(kept, given, made, strict=False)
        )
        found = self._bodies.places.sizes.get(id(item))
        copies: list[Copy | Sizes] = []
        sizes: list[CarriedSize] = []
        if found is not None and found.number is not None:
            copies = self._stacking(item, made[len(carried) :], found)
            sizes.append(self._counting(found.number))
            sizes += [self._slicing(symbol) for symbol in found.slices.values()]
        for k, symbol in found.bytes.items() if found is not None else ():
            first = item.inputs[how.trip + how.condition + k]
            next_ = body.graph.outputs[how.condition + k][1]
            sizes.append(self._carrying(symbol, first, next_))
        return Loop(
            self._bodies.add(body, self._guards(item, 0), copies),
            trip,
            BufferRef(kept[0]) if how.condition else None,
            of_value[counter],
            carried,
            tuple(sizes),
            self._name(item),
            item.region.origins,
        )

    def _counting(self, symbol: str) -> CarriedSize:
        """A symbol that is the number of the iteration."""
        sizes = self._bodies.kernels.sizes
        return CarriedSize(
            sizes.symbols.index(symbol), sizes.index(0), sizes.index(sym(symbol) + 1)
        )

    def _carrying(self, symbol: str, first: Value, next_: Value) -> CarriedSize:
        """A symbol that is the bytes of a carried value."""
        sizes = self._bodies.kernels.sizes
        before, after = (sizes.index(value_bytes(v)) for v in (first, next_))
        return CarriedSize(sizes.symbols.index(symbol), before, after)

    def _slicing(self, symbol: str) -> CarriedSize:
        """A symbol that is the bytes of a slice, which the body tells, 0 before it does."""
        sizes = self._bodies.kernels.sizes
        return CarriedSize(sizes.symbols.index(symbol), sizes.index(0), sizes.index(sym(symbol)))

    def _stacking(
        self, item: LoweredFlow, slices: Sequence[Value], found: FlowSizes
    ) -> list[Copy | Sizes]:
        """Copies of what an iteration makes to where it belongs in the stacked result, behind the
        sizes of slices that only the body knows."""
        memory = self._bodies.kernels.memory
        assert found.number is not None, "slices are counted"
        steps: list[Copy | Sizes] = []
        first = len(item.region.outputs) - len(slices)
        for position, v in enumerate(slices, first):
            size, whole = value_bytes(v), item.region.outputs[position]
            if (symbol := found.slices.get(position)) is not None:
                index = memory.sizes.symbols.index(symbol)
                steps.append(Sizes((KnownSize(index, memory.sizes.index(size)),), symbol))
            at = memory.sizes.index(sym(found.number) * size)
            target = BufferRef(memory.of_value[whole], at)
            steps.append(
                Copy(
                    BufferRef(memory.of_value[v]),
                    target,
                    memory.sizes.index(size),
                    f"{whole.name} [slice]",
                    origins=item.region.origins,
                )
            )
        return steps
