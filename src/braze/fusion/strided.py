"""Which views an anchor reads where they lie, as offsets and strides of its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from braze.expr.loops import TensorSpec
from braze.ir.graph import Graph, Node, Value
from braze.ops.abilities import Abilities
from braze.ops.lowering import Anchor, AnchorSpec, Lowering, View
from braze.ops.writing.strides import Place, placed, row_major, through

MAX_VIEWS = 16  # of a chain; a view of a view is common, longer chains are not


def strided_reads(
    graph: Graph, lowered: Mapping[Node, Lowering], backend: Abilities
) -> dict[Node, frozenset[Value]]:
    """For each anchor, the views above it that need no memory for its sake.

    Each is a view of another one, or of a value that has memory; whichever of them has memory for
    another reason is read there.
    """
    found: dict[Node, frozenset[Value]] = {}
    for node, low in lowered.items():
        if isinstance(low, Anchor):
            views = _views_of(_Chains(graph, lowered, node, low.spec), backend)
            if views:
                found[node] = views
    return found


def read_in_place(
    graph: Graph,
    lowered: Mapping[Node, Lowering],
    node: Node,
    spec: AnchorSpec,
    computed: Callable[[Value], bool],
) -> tuple[AnchorSpec, tuple[Value, ...]]:
    """The anchor of `node` and the values in its slots where views that are `computed` in it are
    places in what they are views of."""
    chains = _Chains(graph, lowered, node, spec)
    depths = [_depth(chain, computed) for chain in chains.views]
    found = chains.read(depths)
    assert found is not None, (node, depths)
    return found, chains.bases(depths)


def _depth(chain: Sequence[Value], computed: Callable[[Value], bool]) -> int:
    return next((i for i, v in enumerate(chain) if not computed(v)), len(chain))


def _views_of(chains: _Chains, backend: Abilities) -> frozenset[Value]:
    depths = [0] * len(chains.views)
    for slot, chain in enumerate(chains.views):
        for depth in range(1, len(chain) + 1):
            if chains.read([*depths[:slot], depth, *depths[slot + 1 :]]) is None:
                break
            if not chains.is_reshape(chain[depth - 1]):  # a reshape has the bytes of its source
                depths[slot] = depth
    spec = chains.read(depths)
    if not any(depths) or spec is None or chains.refused(spec, depths, backend):
        return frozenset()
    taken = {v for chain, depth in zip(chains.views, depths, strict=True) for v in chain[:depth]}
    return frozenset(taken - {*chains.bases(depths)})


@dataclass(frozen=True)
class _Chains:
    """The views above each operand of an anchor, nearest first."""

    graph: Graph
    lowered: Mapping[Node, Lowering]
    node: Node
    spec: AnchorSpec

    @property
    def operands(self) -> list[Value]:
        """The anchor's present inputs, in slot order."""
        return [v for v in self.node.inputs if v is not None]

    @property
    def views(self) -> list[list[Value]]:
        """Per slot; none for a slot that the anchor reads as a whole."""
        strided = {operand.slot for operand, _ in self.spec.operands.values()}
        return [self._above(v) if i in strided else [] for i, v in enumerate(self.operands)]

    def _above(self, v: Value) -> list[Value]:
        found: list[Value] = []
        while len(found) < MAX_VIEWS and self._view(v) is not None:
            source = self._source(v)
            if source in self.graph.constants:  # a template may repack what is constant
                break
            found.append(v)
            v = source
        return found

    def _view(self, v: Value) -> View | None:
        node = self.graph.producer.get(v)
        low = None if node is None else self.lowered[node]
        return low if isinstance(low, View) else None

    def is_reshape(self, v: Value) -> bool:
        """Whether a view moves no bytes."""
        view = self._view(v)
        return view is not None and view.reshape

    def _source(self, v: Value) -> Value:
        source = self.graph.producer[v].inputs[0]
        assert source is not None, v
        return source

    def bases(self, depths: Sequence[int]) -> tuple[Value, ...]:
        """What is read in each slot when that many views above it are taken in."""
        return tuple(
            self._source(chain[depth - 1]) if depth else v
            for v, chain, depth in zip(self.operands, self.views, depths, strict=True)
        )

    def read(self, depths: Sequence[int]) -> AnchorSpec | None:
        """The anchor that reads the bases; None where a view has no place in its base."""
        changed: dict[str, Any] = {}
        for field, (operand, sizes) in self.spec.operands.items():
            depth, v = depths[operand.slot], self.operands[operand.slot]
            if depth == 0:
                continue
            at = self._place(self.views[operand.slot][:depth])
            read = None if at is None else placed(operand, sizes, v.shape, at)
            if read is None:
                return None
            changed[field] = read
        return replace(self.spec, **changed)

    def _place(self, chain: Sequence[Value]) -> Place | None:
        at: Place | None = row_major(self._source(chain[-1]).shape)
        for v in reversed(chain):
            view = self._view(v)
            assert view is not None, v
            at = None if at is None else through(view, at, self._source(v).shape, v.shape)
        return at

    def refused(self, spec: AnchorSpec, depths: Sequence[int], backend: Abilities) -> bool:
        """Whether the backend has no template for it."""
        inputs = [TensorSpec(v.dtype, v.shape) for v in self.bases(depths)]
        known = [i for i, v in enumerate(self.operands) if v in self.graph.constants]
        return backend.supports(spec, inputs, frozenset(known)) is not None
