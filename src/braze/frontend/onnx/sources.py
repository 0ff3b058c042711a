"""What a tensor is computed from: the content or only the sizes of which graph inputs.

A refusal that a constant would lift tells how to go on, and that depends on it: content can be
given with `values`, sizes with `shapes`, and the content of an image with neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from braze.core.dims import DimExpr, symbols
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Node, Value
from braze.ir.run_sizes import node_symbols, sources
from braze.ops.writing.size_ratio import Ratio

# content of more elements is data, not a parameter that anyone would fix
MAX_PARAMETER_ELEMENTS = 64
CARRIED = "what a loop carries"  # in place of a graph input


@dataclass(frozen=True, slots=True)
class Origin:
    """Names of the graph inputs whose content, or of which only sizes, are in a tensor."""

    contents: frozenset[str] = frozenset()
    sizes: frozenset[str] = frozenset()


class Sources:
    """The Origin of every run-time value of one builder."""

    def __init__(self, builder: GraphBuilder) -> None:
        self._builder = builder
        self._of = {v: Origin(frozenset([v.name])) for v in builder.inputs}
        self._inputs = {v.name: v for v in builder.inputs}

    def of_body(self, builder: GraphBuilder) -> Sources:
        """Those of a body's builder, whose inputs are `carried` or `captured`."""
        inner = Sources(builder)
        inner._inputs = self._inputs
        return inner

    def carried(self, value: Value) -> None:
        """Note an input of a body that the body itself makes: no option fixes it."""
        self._of[value] = Origin(frozenset([CARRIED]))

    def captured(self, value: Value, outside: Origin) -> None:
        """Note an input of a body that stands for a value of the graph around it."""
        self._of[value] = outside

    def add(self, nodes: Iterable[Node]) -> None:
        """Note what the outputs of new nodes are computed from."""
        for node in nodes:
            origins = [self.of(v) for v in (*node.inputs, *self._read(node)) if v is not None]
            contents = frozenset[str]().union(*(o.contents for o in origins))
            sizes = frozenset[str]().union(*(o.sizes for o in origins))
            for v in node.outputs:
                known = self._builder.known.get(v)
                self._of[v] = (
                    Origin(contents, sizes)
                    if known is None
                    else Origin(sizes=self._sized(d for d in known.flat))
                )

    def _read(self, node: Node) -> list[Value]:
        """The values that sizes of a node are read from in the run."""
        if not self._builder.run_sizes:
            return []
        source = sources(tuple(self._builder.run_sizes.values()))
        return [v for s in sorted(node_symbols(node)) for v in source.get(s, ())]

    def of(self, value: Value) -> Origin:
        """The Origin of a value; that of a constant is empty."""
        return self._of.get(value, Origin())

    def _sized(self, dims: Iterable[object]) -> frozenset[str]:
        """Inputs with a dynamic axis whose size is in one of `dims`."""
        used: set[str] = set()
        for d in dims:
            size = d.numerator if isinstance(d, Ratio) else d
            used |= symbols(size) if isinstance(size, DimExpr) else set()
        return frozenset(
            name for name, v in self._inputs.items() if any(used & symbols(d) for d in v.shape)
        )

    def parameters(self, value: Value) -> tuple[str, ...]:
        """Graph inputs whose content, given with `values`, makes `value` a constant.

        Empty when data is among them, or when sizes of other inputs are.
        """
        origin = self.of(value)
        if not (origin.sizes <= origin.contents and all(map(self._is_parameter, origin.contents))):
            return ()
        return tuple(sorted(origin.contents))

    def _is_parameter(self, name: str) -> bool:
        if name not in self._inputs:
            return False
        shape = self._inputs[name].shape
        if len(shape) == 1 and not isinstance(shape[0], int):
            return True  # a list of any length
        count = 1
        for d in shape:
            count *= d if isinstance(d, int) else MAX_PARAMETER_ELEMENTS + 1
        return count <= MAX_PARAMETER_ELEMENTS
