"""Symbols that If and Loop give while they run: iterations so far, and bytes of what they make.

What control flow makes may have a size that only the run knows. While it runs, the buffer has a
size of its own: slices of which nobody knows the number are stacked in one that grows, and a value
that changes its size, or that is not as large in both branches, has as many bytes as it has now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from braze.core.bounds import bounds
from braze.core.config import MAX_SIZE
from braze.core.dims import Dim, sym, symbols
from braze.fusion.network import LoweredFlow, LoweredGraph
from braze.ir.graph import Graph, RunSize, SizeGuard, Value
from braze.ops.lowering import Repeat
from braze.planning.storage import Ranges, value_bytes


@dataclass(frozen=True)
class FlowSizes:
    """Symbols of one If or Loop.

    number: how many iterations there have been, if slices are stacked; most: their largest number;
    bytes: of outputs of sizes that only the run knows (without slices), by position; slices: bytes
    of a slice where only the body knows them, by position, 0 before the first; guards: of each body
    what it assumes of sizes that are known before it runs. It may not run at all, so the symbol
    gets the size on the left in the body, and the guard is checked then.
    """

    number: str | None
    most: Dim | None
    bytes: Mapping[int, str] = field(default_factory=dict)
    slices: Mapping[int, str] = field(default_factory=dict)
    guards: tuple[Mapping[str, SizeGuard], ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        """All of them."""
        number = [self.number] if self.number is not None else []
        sizes = (*self.bytes.values(), *self.slices.values())
        return (*number, *sizes, *(s for found in self.guards for s in found))

    def run_sizes(self) -> Iterator[RunSize]:
        """They as sizes that the run gives."""
        for s in self.symbols:
            high = self.most if s == self.number else None
            yield RunSize(s, None, 0, 0, 0, high)

    def range(self, symbol: str, ranges: Ranges) -> tuple[int, int, int]:
        """The (min, opt, max) of one of them in a profile."""
        if symbol != self.number:
            return 0, 0, MAX_BYTES
        env = {name: (low, high) for name, (low, _, high) in ranges.items()}
        most = MAX_SIZE if self.most is None else bounds(self.most, env)[1]
        return 0, most, most


MAX_BYTES = 1 << 50  # of a value that changes its size


def flow_sizes(network: LoweredGraph, taken: Iterable[str]) -> dict[int, FlowSizes]:
    """The symbols of every If and Loop that needs some, by the id of its item; taken: others."""
    prefix, names = "flow", tuple(taken)
    while any(name.startswith(prefix) for name in names):
        prefix = f"_{prefix}"
    found: dict[int, FlowSizes] = {}
    for i, item in enumerate(_flows(network)):
        carried = item.how.carried if isinstance(item.how, Repeat) else len(item.region.outputs)
        stacked = item.region.outputs[carried:]
        late = sorted(k for k in item.how.late if k < carried)
        guards = tuple(
            {f"{prefix}{i}_guard{b}_{j}": g for j, g in enumerate(early_guards(body.graph))}
            for b, body in enumerate(item.bodies)
        )
        if stacked or late or any(guards):
            length = stacked[0].shape[0] if stacked else None
            number = f"{prefix}{i}" if stacked else None
            positions = range(carried, len(item.region.outputs))
            own = {k: f"{prefix}{i}_slice{k}" for k in positions if _is_open(item, k)}
            whole = {k: f"{prefix}{i}_bytes{k}" for k in late}
            found[id(item)] = FlowSizes(number, length, whole, own, guards)
    return found


def early_guards(body: Graph) -> list[SizeGuard]:
    """What a body assumes of sizes that are known before it runs."""
    own = {s.symbol for s in body.sizes}
    return [g for g in body.guards if not own & (symbols(g.lhs) | symbols(g.rhs))]


def stack_bytes(item: LoweredFlow, position: int, sizes: FlowSizes) -> Dim:
    """Bytes of the buffer in which a loop stacks slices, in an iteration."""
    whole = item.region.outputs[position]
    if position not in item.how.late:
        return value_bytes(whole)
    assert sizes.number is not None, "slices are counted"
    own = sizes.slices.get(position)
    one = value_bytes(_slice(item, position)) if own is None else sym(own)
    return (sym(sizes.number) + 1) * one


def _slice(item: LoweredFlow, position: int) -> Value:
    body = item.bodies[0].graph
    return body.outputs[len(body.outputs) - len(item.region.outputs) + position][1]


def _is_open(item: LoweredFlow, position: int) -> bool:
    """Whether only the body knows how large its slices are."""
    own = {s.symbol for s in item.bodies[0].graph.sizes}
    return any(not own.isdisjoint(symbols(d)) for d in _slice(item, position).shape)


def with_flow_sizes(ranges: Ranges, found: Mapping[int, FlowSizes]) -> Ranges:
    """A profile that has ranges for these symbols too."""
    return {**ranges, **{s: f.range(s, ranges) for f in found.values() for s in f.symbols}}


def _flows(network: LoweredGraph) -> Iterator[LoweredFlow]:
    for item in network.items:
        if isinstance(item, LoweredFlow):
            yield item
            for body in item.bodies:
                yield from _flows(body)
