"""Where every value of a network lies: when it is needed, and which buffer it gets.

Time is one number that runs over all steps; those of bodies come while their If or Loop runs. What
a body reads of the graph around it lives as long as the step that runs the body, as an iteration
may be followed by another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from braze.core.dims import Dim, dmax, substitute, sym
from braze.fusion.in_place import in_place_slots
from braze.fusion.kernel import CompiledKernel
from braze.fusion.lower import LoweredRegion
from braze.fusion.network import Item, LoweredFlow, LoweredGraph
from braze.ir.graph import Value
from braze.ops.lowering import Branch, Repeat
from braze.planning.counts import FlowSizes, stack_bytes
from braze.planning.late import Group, sizes_before
from braze.planning.storage import Memory, Storage, value_bytes
from braze.tuning.select import Launch


@dataclass
class Schedule:
    """The time of every item of a network, from its first step to its last one."""

    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    end: int = 0

    @staticmethod
    def of_network(network: LoweredGraph) -> Schedule:
        """The times of all items of a network."""
        schedule = Schedule()
        schedule.number(network)
        return schedule

    def number(self, network: LoweredGraph) -> None:
        """Give times to a list of items, in order."""
        for item in network.items:
            first = self._tick()
            if isinstance(item, LoweredFlow):
                for body in item.bodies:
                    self.number(body)
                self.spans[id(item)] = (first, self._tick())
            else:
                self.spans[id(item)] = (first, first)

    def _tick(self) -> int:
        self.end += 1
        return self.end - 1

    def of(self, item: Item) -> tuple[int, int]:
        """First and last time of an item."""
        return self.spans[id(item)]


@dataclass
class Places:
    """Gives every value that a step writes a buffer; reuses a dying input in place where safe.

    launches: of every kernel, by id; sizes: symbols of control flow, by id; flags: the condition of
    a loop that has one, by id.
    """

    memory: Memory
    schedule: Schedule
    launches: Mapping[int, Launch]
    sizes: Mapping[int, FlowSizes]
    flags: dict[int, int] = field(default_factory=dict)

    def assign(self, network: LoweredGraph, kept: Sequence[Value], until: int) -> None:
        """Buffers of a list of items; kept: what must not be overwritten before `until`."""
        last = self._last_uses(network)
        for v in kept:
            last[network.partition.base(v)] = until
        for item in network.items:
            if isinstance(item, LoweredRegion):
                self._kernel(network, item, last)
            elif isinstance(item.how, Branch):
                self._branch(network, item, last)
            else:
                self._repeat(network, item, item.how, last)

    def _last_uses(self, network: LoweredGraph) -> dict[Value, int]:
        last: dict[Value, int] = {}
        for item in network.items:
            for v in item.inputs:
                last[network.partition.base(v)] = self.schedule.of(item)[1]
        times = [self.schedule.of(item)[0] for item in network.items]
        until = self.schedule.of(network.items[-1])[1] if network.items else 0
        for time, groups in zip((*times, until), self.sizes_before(network), strict=True):
            for v in (s.value for group in groups for s in group if s.value is not None):
                base = network.partition.base(v)
                last[base] = max(time, last.get(base, 0))
        return last

    def sizes_before(self, network: LoweredGraph) -> tuple[tuple[Group, ...], ...]:
        """The Sizes steps in front of every item of a list, and behind the last."""
        return sizes_before(network, self.launches, self.memory.target.threads)

    # ---- kernels ---------------------------------------------------------------------------

    def _kernel(self, network: LoweredGraph, low: LoweredRegion, last: Mapping[Value, int]) -> None:
        now, _ = self.schedule.of(low)
        memory = self.memory
        for v in low.region.outputs:
            if v in memory.of_value:
                continue
            reuse = self._in_place(network, low, v, now, last)
            if reuse is None:
                storage = Storage("arena", value_bytes(v), v.name, now, last.get(v, now))
                memory.of_value[v] = memory.new(storage)
            else:
                memory.of_value[v] = reuse
                memory.storages[reuse].last = last.get(v, now)

    def _in_place(
        self,
        network: LoweredGraph,
        low: LoweredRegion,
        v: Value,
        now: int,
        last: Mapping[Value, int],
    ) -> int | None:
        base, memory = network.partition.base, self.memory
        for slot in in_place_slots(low.kernel):
            read = base(low.inputs[slot])
            storage = memory.of_value.get(read)
            if storage is None or memory.storages[storage].kind != "arena":
                continue
            sharers = [x for x in low.inputs if base(x) is read]
            dies_here = last[read] == now and memory.storages[storage].last == now
            fits = memory.storages[storage].bytes == value_bytes(v)
            if dies_here and len(sharers) == 1 and fits:
                return storage
        return None

    def scratch_of(self, low: LoweredRegion) -> int | None:
        """The workspace that the pieces of one kernel share, if any wants one."""
        workers = self.memory.target.threads
        size: Dim = 0
        piece: CompiledKernel | None = self.launches[id(low)].compiled
        while piece is not None:
            wanted = substitute(piece.launch.workspace(workers), low.places)
            size = wanted if size == 0 else dmax(size, wanted)
            piece = piece.then
        now, _ = self.schedule.of(low)
        return None if size == 0 else self.memory.new(Storage("arena", size, "scratch", now, now))

    # ---- control flow ----------------------------------------------------------------------

    def _made(self, item: LoweredFlow, last: Mapping[Value, int]) -> list[int]:
        """Buffers of what an If or Loop gives; they are in use while it runs."""
        first, end = self.schedule.of(item)
        memory, out = self.memory, []
        for i, v in enumerate(item.region.outputs):
            if v not in memory.of_value:
                size = self._bytes_made(item, i)
                storage = Storage("arena", size, v.name, first, last.get(v, end))
                memory.of_value[v] = memory.new(storage)
            out.append(memory.of_value[v])
        return out

    def _bytes_made(self, item: LoweredFlow, position: int) -> Dim:
        """Bytes of the buffer of an output; for some a size of the plan's own."""
        sizes = self.sizes.get(id(item))
        if sizes is None or position not in item.how.late:
            return value_bytes(item.region.outputs[position])
        if position in sizes.bytes:
            return sym(sizes.bytes[position])
        return stack_bytes(item, position, sizes)

    def _pass(self, network: LoweredGraph, values: Sequence[Value], taken: Sequence[Value]) -> None:
        """Let inputs of a body be what they are passed."""
        for outer, inner in zip(values, taken, strict=True):
            base = network.partition.base(outer)
            if base in network.graph.constants:
                self.memory.of_value[inner] = self.memory.weight(network.graph, base, None)
            else:
                self.memory.of_value[inner] = self.memory.of_value[base]

    def _branch(self, network: LoweredGraph, item: LoweredFlow, last: Mapping[Value, int]) -> None:
        """Both bodies write the results of the If."""
        made, (_, end) = self._made(item, last), self.schedule.of(item)
        for body in item.bodies:
            self._pass(network, item.inputs[1:], body.graph.inputs)
            outputs = [v for _, v in body.graph.outputs]
            for i, (v, buffer) in enumerate(zip(outputs, made, strict=True)):
                if i not in item.how.late:
                    self.memory.of_value[body.partition.base(v)] = buffer
            self.assign(body, [outputs[i] for i in item.how.late], end)

    def _repeat(
        self, network: LoweredGraph, item: LoweredFlow, how: Repeat, last: Mapping[Value, int]
    ) -> None:
        """Carried values stay in the buffers of the results, and the body makes the next ones."""
        made, (first, end) = self._made(item, last), self.schedule.of(item)
        (body,) = item.bodies
        memory = self.memory
        counter, *inner = body.graph.inputs
        memory.of_value[counter] = memory.new(
            Storage("arena", value_bytes(counter), counter.name, first, end)
        )
        if how.condition:
            self.flags[id(item)] = memory.new(Storage("arena", 1, "condition", first, end))
        for v, buffer in zip(inner[: how.carried], made[: how.carried], strict=True):
            memory.of_value[v] = buffer
        captured = item.inputs[how.trip + how.condition + how.carried :]
        self._pass(network, captured, inner[how.carried :])
        self.assign(body, [v for _, v in body.graph.outputs], end)
