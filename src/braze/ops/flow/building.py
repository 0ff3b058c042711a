"""A body of control flow that an op builds itself."""

from __future__ import annotations

from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value


class BodyBuilder:
    """A body under construction. captured: what it reads of the graph around it, in the order of
    the body's last inputs; so the others must be there before the first of them."""

    def __init__(self, around: GraphBuilder, name: str) -> None:
        self.around = around
        self.builder = GraphBuilder(around.weights, name=name)
        self.builder.bounds, self.builder.symbol_names = around.bounds, around.symbol_names
        self.builder.promises, self.builder.origins = around.promises, around.origins
        self.captured: list[Value] = []
        self._inside: dict[Value, Value] = {}

    def capture(self, v: Value) -> Value:
        """What stands for `v` inside; constants are constants there too."""
        if v not in self._inside:
            if v in self.around.constants:
                self._inside[v] = self.builder.constant_of(v, self.around)
            else:
                self.captured.append(v)
                self._inside[v] = self.builder.input(v.name, v.type)
        return self._inside[v]
