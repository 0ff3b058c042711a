"""From values to scalar expressions: what one element of a value is, in terms of loads.

`Inliner.element(value, index)` gives the expression of one element. Values that live in memory
become loads from a slot; everything else is expanded through its op's lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from braze.core.dims import Dim
from braze.core.dtypes import BF16, F16, I64
from braze.expr.fold import rewrite
from braze.expr.guards import depends_on_data
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr, const, load, select
from braze.ir.graph import Graph, Node, Value
from braze.ops.lowering import Lowering, Pointwise, View

Index = tuple[Expr, ...]
Expansion = Generator[tuple[Value, Index], Any, Expr]
ZERO = const(0, I64)


class Inliner:
    """Builds expressions for one kernel and collects the memory slots it reads.

    in_memory(value) says whether a value has bytes of its own (or is an alias of one that has).
    first_slots: values that already own slots 0.. (an anchor's operands). A template may repack
    what a constant one of them holds, so expressions read such a value through another slot.
    """

    def __init__(
        self,
        graph: Graph,
        lowered: Mapping[Node, Lowering],
        in_memory: Callable[[Value], bool],
        first_slots: Sequence[Value] = (),
    ) -> None:
        self._graph = graph
        self._lowered = lowered
        self._in_memory = in_memory
        self.slots: list[Value] = list(first_slots)
        self._slot_of = {v: i for i, v in enumerate(self.slots) if v not in graph.constants}
        self.holes: dict[Value, Callable[[Index], Expr]] = {}
        self._done: dict[tuple[Value, Index], Expr] = {}

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Types and shapes of the slots."""
        return tuple(TensorSpec(v.dtype, v.shape) for v in self.slots)

    def element(self, value: Value, index: Index) -> Expr:
        """The expression of element `index` of `value`."""
        known = self._known(value, index)
        return self._run(value, index) if known is None else known

    def expand(self, value: Value, index: Index) -> Expr:
        """The expression of a pointwise or view value, even if it has memory of its own."""
        return self._run(value, index)

    def _known(self, value: Value, index: Index) -> Expr | None:
        """The element where nothing has to be expanded for it."""
        if value in self.holes:
            return self.holes[value](index)
        literal = self._literal(value)
        # an index that only the run knows is checked where it is used, so it stays
        if literal is not None and not any(depends_on_data(i) for i in index):
            return literal
        if self._in_memory(value):
            return load(self._slot(value), index, value.dtype)
        return self._done.get((value, index))

    def _run(self, value: Value, index: Index) -> Expr:
        """Expand one element; no recursion, as a kernel may be deeper than Python's stack."""
        stack = [(value, index, self._expansion(value, index))]
        result: Expr | None = None
        while True:
            top, at, steps = stack[-1]
            try:
                wanted = steps.send(result)
            except StopIteration as end:
                result = self._done[top, at] = end.value
                stack.pop()
                if not stack:
                    return end.value  # type: ignore[no-any-return]
                continue
            result = self._known(*wanted)
            if result is None:
                stack.append((*wanted, self._expansion(*wanted)))

    def _expansion(self, value: Value, index: Index) -> Expansion:
        """Yields the elements that one of `value` needs, is sent them, returns its expression."""
        node = self._graph.producer[value]
        lowering = self._lowered[node]
        if isinstance(lowering, Pointwise):
            return self._pointwise(node, lowering, index)
        assert isinstance(lowering, View), node
        return self._view(node, lowering, index)

    def _slot(self, value: Value) -> int:
        if value not in self._slot_of:
            self._slot_of[value] = len(self.slots)
            self.slots.append(value)
        return self._slot_of[value]

    def _literal(self, value: Value) -> Expr | None:
        array = self._graph.constant(value)
        if array is None or array.size != 1 or value.dtype in (F16, BF16) or value.dtype.is_narrow:
            return None
        return const(array.reshape(()).item(), value.dtype)

    def _pointwise(self, node: Node, lowering: Pointwise, index: Index) -> Expansion:
        operands: dict[int, Expr] = {}
        for k, v in enumerate(node.inputs):
            if v is not None:
                operands[k] = yield v, broadcast_index(v.shape, node.output.shape, index)

        def change(e: Expr) -> Expr | None:
            if e.op == "hole":
                return operands[e.number]
            if e.op == "axis":
                return index[e.number]
            return None

        return rewrite(lowering.expr, change)

    def _view(self, node: Node, lowering: View, index: Index) -> Expansion:
        source = node.inputs[0]
        assert source is not None

        def at(e: Expr) -> Expr:
            return rewrite(e, lambda x: index[x.number] if x.op == "axis" else None)

        inner: Expr = yield source, tuple(at(e) for e in lowering.index)
        if lowering.inside is None:
            return inner
        assert lowering.fill is not None
        return select(at(lowering.inside), inner, at(lowering.fill))


def broadcast_index(shape: Sequence[Dim], out_shape: Sequence[Dim], index: Index) -> Index:
    """Index of an operand of `shape` at output position `index` under numpy broadcasting."""
    skip = len(out_shape) - len(shape)
    return tuple(
        ZERO if d == 1 and out_shape[skip + i] != 1 else index[skip + i]
        for i, d in enumerate(shape)
    )
