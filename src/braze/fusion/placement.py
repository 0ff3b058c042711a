"""Which values of a graph get memory, and which are computed inside the kernel that reads them.

The first step of partitioning: in reverse order of the graph, so that the users of a value are
placed before it, every pointwise or view value is either given a home (the kernel, or kernels, that
compute it in registers) or memory of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from braze.core.trace import Trace
from braze.fusion.legality import (
    CHEAP_COST,
    MAX_COST,
    Sizes,
    keeps_innermost,
    local_cost,
    prologue_allowed,
    prologue_worthwhile,
)
from braze.fusion.region import Refusal
from braze.ir.graph import Graph, Node, Value
from braze.ops.lowering import Anchor, Lowering, Nest, Pointwise, View

SMALL_ELEMENTS = 4096  # a view this small is not worth a kernel of its own

Home = Value | Node  # a kernel: the root value it stores, or the nest node it is built around


@dataclass
class Placement:
    """Where every value lives; filled by `place_values`, then used to form regions."""

    graph: Graph
    lowered: Mapping[Node, Lowering]
    pinned: frozenset[Value]  # graph outputs and debug tensors: always in memory
    fuse: bool
    trace: Trace
    sizes: Sizes
    keep_all: bool = False  # no output's binding holds the bytes of another value
    in_memory: set[Value] = field(default_factory=set)
    alias_sources: set[Value] = field(default_factory=set)
    claimed: set[Value] = field(default_factory=set)  # bases held by an output's binding
    aliases: dict[Value, Value] = field(default_factory=dict)
    homes: dict[Value, frozenset[Home]] = field(default_factory=dict)
    cost: dict[Value, int] = field(default_factory=dict)
    absorbed: dict[Value, Node] = field(default_factory=dict)  # epilogue root -> producer

    def has_bytes(self, value: Value) -> bool:
        """Whether `value` can be loaded from memory."""
        if value in self.in_memory or value in self.aliases:
            return True
        return value not in self.graph.producer

    def refuse(self, value: Value, consumer: Node, reason: str) -> None:
        r = Refusal(value.name, consumer.outputs[0].name, reason)
        self.trace.decide("refusal", value=r.value, consumer=r.consumer, reason=r.reason)


def place_values(state: Placement) -> None:
    """Decide for every value of the graph."""
    _estimate_costs(state)
    for node in reversed(state.graph.nodes):
        _place(state, node)
    _resolve_aliases(state)


def _estimate_costs(state: Placement) -> None:
    """Cost of each value if everything pointwise above it were computed with it."""
    for node in state.graph.nodes:
        low = state.lowered[node]
        for v in node.outputs:
            state.cost[v] = 0
        if isinstance(low, (Pointwise, View)):
            below = sum(state.cost.get(v, 0) for v in set(node.inputs) if v is not None)
            state.cost[node.output] = min(10 * MAX_COST, local_cost(low) + below)


def _place(state: Placement, node: Node) -> None:
    """Step 1 for one node (its users are placed already)."""
    low = state.lowered[node]
    if not isinstance(low, (Pointwise, View)):
        state.in_memory.update(node.outputs)
        return
    v = node.output
    may_inline = state.fuse and v not in state.pinned and v not in state.alias_sources
    homes = _homes(state, v) if may_inline and state.cost[v] <= MAX_COST else None
    if homes is not None and len(homes) > 1 and not _cheap_to_repeat(state, v):
        homes = None
    if isinstance(low, View) and low.reshape:
        _place_reshape(state, node, homes)
        return
    if homes and isinstance(low, View) and not keeps_innermost(low, v.type.rank):
        homes = homes if state.sizes.elements(v.shape) <= SMALL_ELEMENTS else None
    if homes:
        state.homes[v] = homes
    else:
        state.in_memory.add(v)


def _place_reshape(state: Placement, node: Node, homes: frozenset[Home] | None) -> None:
    """A reshape never moves bytes: it is an alias, or dissolves into index arithmetic."""
    source, v = node.inputs[0], node.output
    assert source is not None
    producer = state.graph.producer.get(source)
    computed = producer is not None and isinstance(state.lowered[producer], (Pointwise, View))
    if homes and computed and v.shape[-1:] == source.shape[-1:]:
        state.homes[v] = homes
        return
    if v in state.pinned and (state.keep_all or not _claims_base(state, v)):
        state.in_memory.add(v)
        return
    state.aliases[v] = source
    state.alias_sources.add(source)


def _claims_base(state: Placement, v: Value) -> bool:
    """Whether output `v`, a reshape, may be the one whose binding holds its base's bytes.

    Not when the base is an input or a constant, or is (or is the base of) another output.
    """
    base = v
    while base in state.graph.producer:
        node = state.graph.producer[base]
        if not getattr(state.lowered[node], "reshape", False) or node.inputs[0] is None:
            break
        base = node.inputs[0]
        if base in state.pinned:
            return False
    if base not in state.graph.producer or base in state.claimed:
        return False
    state.claimed.add(base)
    return True


def _cheap_to_repeat(state: Placement, v: Value) -> bool:
    return state.cost[v] <= CHEAP_COST and state.sizes.elements(v.shape) <= SMALL_ELEMENTS


def _homes(state: Placement, v: Value) -> frozenset[Home] | None:
    """The kernels that would compute `v`, or None when some consumer needs it in memory."""
    homes: frozenset[Home] = frozenset()
    for user in state.graph.users.get(v, ()):
        found = _homes_in(state, v, user)
        if found is None:
            return None
        homes |= found
    return homes or None


def _homes_in(state: Placement, v: Value, user: Node) -> frozenset[Home] | None:
    low = state.lowered[user]
    if isinstance(low, Nest):
        return _home_in_nest(state, v, user, low)
    if not isinstance(low, (Pointwise, View)) or user.output in state.aliases:
        return None
    repeat = state.sizes.elements(user.output.shape) / max(1, state.sizes.elements(v.shape))
    if repeat > 1.5 and state.cost[v] > (0 if repeat > 64 else CHEAP_COST):
        state.refuse(v, user, f"broadcasting would compute it {repeat:.0f} times")
        return None
    out = user.output
    if isinstance(low, View) and _could_be_epilogue(state, v):
        state.refuse(v, user, "it can be the epilogue of its producer")
        return None
    return frozenset({out}) if out in state.in_memory else state.homes[out]


def _home_in_nest(state: Placement, v: Value, user: Node, low: Nest) -> frozenset[Home] | None:
    if _could_be_epilogue(state, v):
        state.refuse(v, user, "it can be the epilogue of its producer")
        return None
    present = [x for x in user.inputs if x is not None]
    for slot, x in enumerate(present):
        if x is v:
            why = prologue_allowed(low.kernel, slot) or prologue_worthwhile(
                low.kernel, slot, v, state.cost[v], state.sizes
            )
            if why is not None:
                state.refuse(v, user, why)
                return None
    return frozenset({user})


def _could_be_epilogue(state: Placement, v: Value) -> bool:
    """Whether a chain of single-use pointwise values of one shape leads from an anchor to `v`."""
    stack = [v]
    while stack:
        x = stack.pop()
        node = state.graph.producer.get(x)
        if node is None:
            continue
        low = state.lowered[node]
        if isinstance(low, Anchor):
            return x is not v
        if not isinstance(low, Pointwise):
            continue
        for up in node.inputs:
            if up is not None and up.shape == v.shape and len(state.graph.users[up]) == 1:
                stack.append(up)
    return False


def _resolve_aliases(state: Placement) -> None:
    """Point each alias at the value that owns the bytes."""
    for v in reversed(list(state.aliases)):
        source = state.aliases[v]
        state.aliases[v] = state.aliases.get(source, source)
