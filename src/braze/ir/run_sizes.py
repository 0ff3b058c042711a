"""Sizes that the run gives: their bounds, their ranges in profiles, which are in use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from braze.core.bounds import bounds
from braze.core.config import MAX_ELEMENTS, MAX_SIZE
from braze.core.dims import Dim, DimExpr, Interval, substitute, symbols
from braze.ir.graph import Graph, Node, RunSize, SizeGuard, Value, bodies_of

GUESS: Final = 16  # what a size without a bound counts for where kernels are measured

Range = tuple[int, int, int]  # min, opt, max


def highest(high: Dim | None, env: Mapping[str, Interval]) -> int:
    """The largest value of a size with the bound `high` where symbols stay within `env`.

    Products of sizes without a limit leave int64, which no number of elements in memory does.
    """
    if high is None or isinstance(high, int):
        return MAX_SIZE if high is None else high
    return min(bounds(high, env)[1], MAX_ELEMENTS)


def with_run_sizes(sizes: Sequence[RunSize], profile: Mapping[str, Range]) -> dict[str, Range]:
    """A profile with the (min, opt, max) of the sizes that the run gives.

    opt is a guess: what the size is at the opt of others, its upper bound there, or GUESS.
    """
    ranges = dict(profile)
    for s in sizes:
        if s.symbol in ranges:
            continue
        high = highest(s.high, {name: (r[0], r[2]) for name, r in ranges.items()})
        at_opt: dict[str, Dim] = {name: r[1] for name, r in ranges.items()}
        unknown = s.high is None or (isinstance(s.high, int) and s.high > MAX_SIZE)
        likely = s.size if s.value is None else GUESS if s.high is None or unknown else s.high
        guess = substitute(likely, at_opt)
        opt = guess if isinstance(guess, int) else GUESS
        ranges[s.symbol] = (s.low, max(s.low, min(opt, high)), max(high, s.low))
    return ranges


def all_sizes(graph: Graph) -> list[RunSize]:
    """The sizes that the run gives in a graph and in its bodies."""
    found = list(graph.sizes)
    for node in graph.nodes:
        for body in bodies_of(node):
            found += all_sizes(body)
    return found


def unsure_symbols(guards: Iterable[SizeGuard], sizes: Mapping[str, int]) -> frozenset[str]:
    """The symbols of guards that do not hold for these sizes, or can not be told."""
    found: set[str] = set()
    for g in guards:
        lhs, rhs = (substitute(d, sizes) for d in (g.lhs, g.rhs))
        if lhs != rhs:
            found |= symbols(g.lhs) | symbols(g.rhs)
    return frozenset(found)


def node_symbols(node: Node) -> set[str]:
    """The symbols in the attributes of a node and in the shapes of what it reads and makes."""
    found = _in_attribute(node.op)
    for v in (*node.inputs, *node.outputs):
        if v is not None:
            found |= shape_symbols(v)
    return found


def shape_symbols(value: Value) -> set[str]:
    """The symbols in the shape of a value."""
    return {s for d in value.shape if isinstance(d, DimExpr) for s in symbols(d)}


def _in_attribute(value: Any) -> set[str]:
    if isinstance(value, DimExpr):
        return symbols(value)
    found: set[str] = set()
    if isinstance(value, (tuple, list)):
        for item in value:
            found |= _in_attribute(item)
    elif is_dataclass(value):
        for f in fields(value):
            found |= _in_attribute(getattr(value, f.name))
    return found


def used_sizes(sizes: Sequence[RunSize], used: Iterable[str]) -> tuple[RunSize, ...]:
    """Those of `sizes` that the symbols in `used` are, or need."""
    needed, kept = set(used), []
    for s in reversed(sizes):
        if s.symbol in needed:
            kept.append(s)
            needed |= symbols(s.size)
    return tuple(reversed(kept))


def sizes_of_nodes(graph: Graph, nodes: Iterable[Node]) -> tuple[RunSize, ...]:
    """The run sizes of `graph` that these nodes, its outputs or its guards use."""
    if not graph.sizes:
        return ()
    used: set[str] = set()
    for node in nodes:
        used |= node_symbols(node)
    for _, v in graph.outputs:
        used |= shape_symbols(v)
    for g in graph.guards:
        used |= symbols(g.lhs) | symbols(g.rhs)
    return used_sizes(graph.sizes, used)


def in_run_order(graph: Graph) -> tuple[Node, ...]:
    """The nodes so that each comes after what makes the sizes it uses known."""
    if not graph.sizes:
        return graph.nodes
    source = sources(graph.sizes)
    placed: dict[Node, None] = {}
    producer = graph.producer
    for root in graph.nodes:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in placed:
                stack.pop()
                continue
            values = [v for v in node.inputs if v is not None]
            values += [v for s in node_symbols(node) for v in source.get(s, ())]
            values = [v for v in values if v not in node.outputs]  # a loop gives its own sizes
            missing = [producer[v] for v in values if v in producer and producer[v] not in placed]
            if missing:
                stack.extend(missing)
            else:
                placed[node] = None
                stack.pop()
    return tuple(placed)


def sources(sizes: Sequence[RunSize]) -> dict[str, frozenset[Value]]:
    """Of each symbol that the run gives, the values that it is read from, directly or not."""
    found: dict[str, frozenset[Value]] = {}
    for s in sizes:
        own = frozenset() if s.value is None else frozenset({s.value})
        found[s.symbol] = own.union(*(found.get(x, frozenset()) for x in symbols(s.size)))
    return found
