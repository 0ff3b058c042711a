"""Which values of a graph get memory, and which are computed inside the kernel that reads them.

The first step of partitioning: in reverse order of the graph, so that the users of a value are
placed before it, every pointwise or view value is either given a home (the kernel, or kernels, that
compute it in registers) or memory of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from braze.core.target import PREFERENCES, Preferences
from braze.core.trace import Trace
from braze.fusion.growth import Growth, Home
from braze.fusion.legality import (
    Sizes,
    SlotReads,
    keeps_innermost,
    local_cost,
    nest_reads,
    prologue_allowed,
    prologue_worthwhile,
)
from braze.fusion.region import Refusal
from braze.ir.graph import Graph, Node, Value
from braze.ir.run_sizes import shape_symbols
from braze.ops.lowering import Anchor, Flow, Lowering, Nest, Pointwise, View


@dataclass(frozen=True)
class Question:
    """What is to be placed.

    pinned: graph outputs, debug tensors and what sizes are read from, always in memory; costs: what
    pays on the target; keep_all: no output's binding holds the bytes of another value; strided: the
    views that an anchor reads where they lie.
    """

    graph: Graph
    lowered: Mapping[Node, Lowering]
    pinned: frozenset[Value]
    fuse: bool
    trace: Trace
    costs: Preferences = PREFERENCES
    keep_all: bool = False
    strided: Mapping[Node, frozenset[Value]] = field(default_factory=dict)

    def is_fused(self, v: Value) -> bool:
        """Whether the producer of `v` is pointwise or a view."""
        node = self.graph.producer.get(v)
        return node is not None and isinstance(self.lowered[node], (Pointwise, View))

    def refuse(self, value: Value, consumer: Node, reason: str) -> None:
        """Record why `value` is not computed where it is read."""
        r = Refusal(value.name, consumer.outputs[0].name, reason)
        self.trace.decide("refusal", value=r.value, consumer=r.consumer, reason=r.reason)


@dataclass
class Placement:
    """Where every value lives.

    in_memory: values with bytes of their own; aliases: reshape -> the value whose bytes it is;
    homes: the kernels that compute any other value; absorbed: root of an epilogue -> producer of
    what it finishes.
    """

    graph: Graph
    in_memory: set[Value] = field(default_factory=set)
    aliases: dict[Value, Value] = field(default_factory=dict)
    homes: dict[Value, frozenset[Home]] = field(default_factory=dict)
    absorbed: dict[Value, Node] = field(default_factory=dict)

    def has_bytes(self, value: Value) -> bool:
        """Whether `value` can be loaded from memory."""
        if value in self.in_memory or value in self.aliases:
            return True
        return value not in self.graph.producer

    def absorb(self, root: Value, node: Node, names: Sequence[Value]) -> None:
        """Let the kernel of `node` compute `root`; `names`: its output and aliases of it."""
        self.absorbed[root] = node
        self.in_memory.difference_update(names)
        for x in names:
            self.aliases.pop(x, None)

    def roots(self, v: Value) -> frozenset[Home]:
        """The kernels in which pointwise or view value `v` is computed."""
        return frozenset({v}) if v in self.in_memory else self.homes.get(v, frozenset())


def place_values(question: Question) -> Placement:
    """Decide for every value of the graph."""
    placer = _Placer(question)
    for node in reversed(question.graph.nodes):
        placer.place(node)
    placer.done.aliases = _resolved(placer.done.aliases)
    return placer.done


class _Placer:
    """One pass over the graph from its end; see the module text."""

    def __init__(self, question: Question) -> None:
        self.q = question
        self.done = Placement(question.graph)
        self._sizes = Sizes(question.graph)
        self._cost = _costs(question)
        self._near_anchor = _epilogue_candidates(question)
        # of each kernel, the anchor that will take it as its epilogue: the last one that it reads
        self._takers: dict[Home, Node] = {}
        self._growth = Growth(question.graph, question.lowered, question.costs)
        self._nest_reads: dict[Node, dict[Value, list[SlotReads]]] = {}
        self._alias_sources: set[Value] = set()
        self._claimed: set[Value] = set()  # bases held by an output's binding
        self._of_run = {s.symbol for s in question.graph.sizes}

    def place(self, node: Node) -> None:
        """Decide for one node (its users are placed already)."""
        low = self.q.lowered[node]
        if not isinstance(low, (Pointwise, View)):
            self.done.in_memory.update(node.outputs)
            if isinstance(low, Nest):
                self._growth.open_nest(node, len(low.kernel.nests))
                self._nest_reads[node] = self._reads_of(node, low)
            return
        v = node.output
        homes = self._homes(v)
        if isinstance(low, View) and low.reshape:
            self._place_reshape(node, homes)
            return
        if self._is_computed(homes) and isinstance(low, View):
            homes = homes if keeps_innermost(low, v.type.rank) or self._is_small(v) else None
        if not homes or self._stays_narrow(v, homes) or not self._join(v, homes):
            self.done.in_memory.add(v)
            self._growth.open(v)
            homes = frozenset({v})
        anchor = self._near_anchor.get(v)
        if anchor is not None:
            for home in homes:
                self._takers.setdefault(home, anchor)

    def _stays_narrow(self, v: Value, homes: frozenset[Home]) -> bool:
        """Whether `v` is the better end of its anchor's epilogue, as it has fewer bytes than what
        the anchor would store for a kernel that has another anchor, or is a loop nest."""
        anchor = self._near_anchor.get(v)
        if anchor is None or v.dtype.itemsize >= anchor.output.dtype.itemsize:
            return False
        return any(self._takers.get(h, anchor) is not anchor or isinstance(h, Node) for h in homes)

    def _reads_of(self, node: Node, low: Nest) -> dict[Value, list[SlotReads]]:
        by_slot = nest_reads(low.kernel, self._sizes)
        found: dict[Value, list[SlotReads]] = {}
        for slot, x in enumerate(x for x in node.inputs if x is not None):
            found.setdefault(x, []).append(by_slot.get(slot, SlotReads()))
        return found

    def _join(self, v: Value, homes: frozenset[Home]) -> bool:
        if not self._growth.join(v, homes):
            return False
        self.done.homes[v] = homes
        return True

    def _place_reshape(self, node: Node, homes: frozenset[Home] | None) -> None:
        """A reshape never moves bytes: it is an alias, or dissolves into index arithmetic."""
        source, v = node.inputs[0], node.output
        assert source is not None
        is_cheap = v.shape[-1:] == source.shape[-1:] or not self._is_computed(homes)
        if homes and self.q.is_fused(source) and is_cheap and self._join(v, homes):
            return
        if v in self.q.pinned and (self.q.keep_all or not self._claims_base(v)):
            self.done.in_memory.add(v)
            self._growth.open(v)
            return
        self.done.aliases[v] = source
        self._alias_sources.add(source)

    def _claims_base(self, v: Value) -> bool:
        """Whether output `v`, a reshape, may be the one whose binding holds its base's bytes.

        Not when the base is an input or a constant, or is (or is the base of) another output, or
        control flow gives it memory of its own, or the output has a size that only the run knows:
        it may be known when the base is made already, or not.
        """
        base, producer = v, self.q.graph.producer
        while base in producer:
            node = producer[base]
            if not getattr(self.q.lowered[node], "reshape", False) or node.inputs[0] is None:
                break
            base = node.inputs[0]
            if base in self.q.pinned:
                return False
        if base not in producer or base in self._claimed or self._is_late(base):
            return False
        if shape_symbols(v) & self._of_run - shape_symbols(base):
            return False
        self._claimed.add(base)
        return True

    def _is_late(self, v: Value) -> bool:
        node = self.q.graph.producer[v]
        low = self.q.lowered[node]
        return isinstance(low, Flow) and node.outputs.index(v) in low.late

    def _homes(self, v: Value) -> frozenset[Home] | None:
        """The kernels that would compute `v`, or None when some consumer needs it in memory."""
        if not self.q.fuse or v in self.q.pinned or v in self._alias_sources:
            return None
        homes: set[Home] = set()
        for user in self.q.graph.users.get(v, ()):
            found = self._homes_in(v, user)
            if found is None:
                return None
            homes |= found
        computed = homes - self.q.strided.keys()
        if len(computed) > 1 and not self._cheap_to_repeat(v):
            return None
        return frozenset(homes) or None

    def _is_computed(self, homes: frozenset[Home] | None) -> bool:
        """Whether a kernel computes the elements of a value with these homes: an anchor does not,
        to it a view is a place."""
        return homes is not None and bool(homes - self.q.strided.keys())

    def _cheap_to_repeat(self, v: Value) -> bool:
        return self._is_cheap(v) and self._is_small(v)

    def _is_cheap(self, v: Value) -> bool:
        return self._cost[v] <= self.q.costs.cheap_cost

    def _is_small(self, v: Value) -> bool:
        return self._sizes.elements(v.shape) <= self.q.costs.small_elements

    def _homes_in(self, v: Value, user: Node) -> frozenset[Home] | None:
        low = self.q.lowered[user]
        if isinstance(low, Nest):
            return self._home_in_nest(v, user)
        if v in self.q.strided.get(user, ()):
            return frozenset({user})
        if not isinstance(low, (Pointwise, View)) or user.output in self.done.aliases:
            return None
        repeat = self._sizes.elements(user.output.shape) / max(1, self._sizes.elements(v.shape))
        is_free = self._cost[v] == 0 if repeat > 64 else self._is_cheap(v)
        if repeat > 1.5 and not is_free:
            self.q.refuse(v, user, f"broadcasting would compute it {repeat:.0f} times")
            return None
        if isinstance(low, View) and v in self._near_anchor:
            self.q.refuse(v, user, "it can be the epilogue of its producer")
            return None
        roots = self.done.roots(user.output)
        anchors = roots & self.q.strided.keys()
        if any(v not in self.q.strided[a] for a in anchors if isinstance(a, Node)):
            return None
        return roots

    def _home_in_nest(self, v: Value, user: Node) -> frozenset[Home] | None:
        widens = self._widens(v)
        if v in self._near_anchor and not widens:
            self.q.refuse(v, user, "it can be the epilogue of its producer")
            return None
        for reads in self._nest_reads[user][v]:
            why = prologue_allowed(reads) or prologue_worthwhile(
                reads, v, widens or self._is_cheap(v), self._sizes
            )
            if why is not None:
                self.q.refuse(v, user, why)
                return None
        return frozenset({user})

    def _widens(self, v: Value) -> bool:
        """Whether `v` is cheaply made of one tensor of fewer bytes, the end of an epilogue."""
        node = self.q.graph.producer[v]
        low, most = self.q.lowered[node], self.q.costs.cheap_cost
        if not isinstance(low, Pointwise) or local_cost(low, self.q.costs) > most:
            return False
        from_ = [x for x in node.inputs if x is not None and x.shape == v.shape]
        narrow = all(x.dtype.itemsize < v.dtype.itemsize for x in from_)
        return len(from_) == 1 and narrow and from_[0] in self._near_anchor


def _costs(question: Question) -> dict[Value, int]:
    """Cost of each value if everything pointwise above it, up to memory, is computed with it.

    Only small costs are compared with each other, so sums end a little above them.
    """
    cost: dict[Value, int] = {}
    most = question.costs.cheap_cost
    for node in question.graph.nodes:
        low = question.lowered[node]
        for v in node.outputs:
            cost[v] = 0
        if isinstance(low, (Pointwise, View)):
            above = (v for v in set(node.inputs) if v is not None and v not in question.pinned)
            below = sum(cost.get(v, 0) for v in above)
            cost[node.output] = min(most + 1, local_cost(low, question.costs) + below)
    return cost


def _epilogue_candidates(question: Question) -> dict[Value, Node]:
    """Values to which a chain of single-use pointwise values of one shape leads from an anchor; of
    several anchors the last."""
    found: dict[Value, Node] = {}
    graph = question.graph
    position = {n: i for i, n in enumerate(graph.nodes)}
    for node in graph.nodes:
        if not isinstance(question.lowered[node], Pointwise):
            continue
        for up in node.inputs:
            if up is None or up.shape != node.output.shape or len(graph.users[up]) != 1:
                continue
            producer = graph.producer.get(up)
            made = None if producer is None else question.lowered[producer]
            anchor = found.get(up, producer if isinstance(made, Anchor) else None)
            old = found.get(node.output)
            if anchor is not None and (old is None or position[old] < position[anchor]):
                found[node.output] = anchor
    return found


def _resolved(aliases: dict[Value, Value]) -> dict[Value, Value]:
    """Each alias with the value that owns the bytes; `aliases` lists users before sources."""
    done: dict[Value, Value] = {}
    for v in reversed(aliases):
        source = aliases[v]
        done[v] = done.get(source, source)
    return done
