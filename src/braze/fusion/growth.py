"""How far a kernel may grow while pointwise values join it.

Values join in reverse order of the graph: whoever reads a value is placed before it. So what a
kernel computes is known exactly at any time, and a value for which there is no room becomes the
root of a kernel of its own; costs never add up across memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from braze.core.target import Preferences
from braze.fusion.legality import local_cost
from braze.ir.graph import Graph, Node, Value
from braze.ops.lowering import Lowering, Pointwise, View

Home = Value | Node  # a kernel: the root value it stores, or the nest node it is built around


@dataclass(slots=True)
class _Kernel:
    """cost: instructions of one element, `room` at most; reads: values it loads; places: see
    Growth._places."""

    cost: int
    reads: set[Value]
    room: int
    places: dict[Value, frozenset[Hashable]] = field(default_factory=dict)


class Growth:
    """The kernels of a graph as they are being formed."""

    def __init__(
        self, graph: Graph, lowered: Mapping[Node, Lowering], costs: Preferences
    ) -> None:
        self._graph = graph
        self._lowered = lowered
        self._costs = costs
        self._kernels: dict[Home, _Kernel] = {}

    def open_nest(self, node: Node, count: int) -> None:
        """A kernel around `count` loop nests, each with room of its own."""
        self._kernels[node] = _Kernel(0, self._read_by(node), count * self._costs.max_cost)

    def open(self, root: Value) -> None:
        """A pointwise kernel that stores `root`."""
        node = self._graph.producer[root]
        kernel = _Kernel(self._charge(node), self._read_by(node), self._costs.max_cost)
        kernel.places[root] = frozenset({()})
        self._kernels[root] = kernel

    def join(self, v: Value, homes: frozenset[Home]) -> bool:
        """Compute `v` inside all of `homes`; False, and nothing changed, where one has no room.

        An anchor is no such kernel: what has a home in it is a place to it, and costs nothing.
        """
        node = self._graph.producer[v]
        inputs, charge = self._read_by(node), self._charge(node)
        found: list[tuple[_Kernel, int, set[Value], frozenset[Hashable]]] = []
        for home in homes & self._kernels.keys():
            kernel = self._kernels[home]
            places = self._places(v, home, kernel)
            cost = kernel.cost + charge * len(places)
            fresh = inputs - kernel.reads
            reads = len(kernel.reads) - (v in kernel.reads) + len(fresh)
            if cost > kernel.room or (reads > self._costs.max_reads and reads > len(kernel.reads)):
                return False
            found.append((kernel, cost, fresh, places))
        for kernel, cost, fresh, places in found:
            kernel.cost = cost
            kernel.reads.discard(v)
            kernel.reads |= fresh
            kernel.places[v] = places
        return True

    def _places(self, v: Value, home: Home, kernel: _Kernel) -> frozenset[Hashable]:
        """Names of the indexes at which the kernel needs `v`: it is computed once for each.

        An elementwise user needs it where the user itself is needed; one that broadcasts or moves
        elements gives each of its own places a new name.
        """
        found: set[Hashable] = set()
        for user in self._graph.users.get(v, ()):
            if not isinstance(self._lowered[user], (Pointwise, View)):
                found |= {user} if user is home else set()
                continue
            theirs = kernel.places.get(user.output, frozenset())
            if user.output.shape == v.shape and isinstance(self._lowered[user], Pointwise):
                found |= theirs
            else:
                found |= {(user, place) for place in theirs}
        return frozenset(found)

    def _read_by(self, node: Node) -> set[Value]:
        """What a node loads from memory if all its inputs lie there; literals do not."""
        constants = self._graph.constants
        return {
            v
            for v in node.inputs
            if v is not None and not (v in constants and all(d == 1 for d in v.shape))
        }

    def _charge(self, node: Node) -> int:
        """Every step counts: thousands that cost nothing make an expression just as deep."""
        return max(1, local_cost(self._lowered[node], self._costs))
