"""Slices that a loop stacks, of sizes that only an iteration knows.

ONNX wants the slices of all iterations to be of one size. Where that comes from what runs inside of
the loop, each iteration carries it on: the run checks that the next one keeps it, and what is
behind the loop reads it there. A loop without iterations has slices without elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from braze.core.config import MAX_SIZE
from braze.core.dims import Dim, DimExpr, dmin, symbols
from braze.core.dtypes import I64
from braze.frontend.onnx.bodies import Body, Site
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.move.shape import SizeTensor

ONE_SIZE = TensorType(I64, (1,))


def size_tensor(g: GraphBuilder, size: Dim) -> Value:
    """A size as a loop carries it."""
    return g.add1(SizeTensor((size,), (1,), I64))


@dataclass
class SliceSizes:
    """names: of the outputs of the body; axes: what is carried, by output and axis, found by
    importing the body again and again; before: the inputs of the latest one that hold the sizes so
    far."""

    names: Sequence[str]
    axes: list[tuple[int, int]] = field(default_factory=list)
    before: list[Value] = field(default_factory=list)

    def bind(self, body: Body) -> None:
        """Make the inputs of a body, in order."""
        self.before = []
        for output, axis in self.axes:
            value = body.builder.input(f"{self.names[output]}_{axis}", ONE_SIZE)
            body.nodes.sources.carried(value)
            self.before.append(value)

    def learn(self, body: Body, stacked: Sequence[int]) -> bool:
        """Whether a body has shown more of them. stacked: the outputs that are slices."""
        own = {s.symbol for s in body.builder.run_sizes.values()}
        found = [
            (output, axis)
            for output in stacked
            for axis, size in enumerate(body.values[output].shape)
            if not isinstance(size, int) and not own.isdisjoint(symbols(size))
        ]
        self.axes += [place for place in found if place not in self.axes]
        return len(self.axes) > len(self.before)

    def following(self, body: Body) -> list[Value]:
        """The sizes that an iteration carries on; it checks that they are those so far."""
        if not self.axes:
            return []
        g, made = body.builder, []
        number = g.read_size(g.inputs[0], 0, 0, None, f"{body.site.node.name}_iteration")
        for (output, axis), value in zip(self.axes, self.before, strict=True):
            size = body.values[output].shape[axis]
            before = g.read_size(value, 0, 0, None, value.name)
            what = (
                f"{body.site.node.where}: axis {axis} of {self.names[output]!r} must be as long in "
                "all iterations"
            )
            g.guard(dmin(number, 1) * size, dmin(number, 1) * before, what)
            made.append(size_tensor(g, size))
        return made

    def first(self, site: Site) -> list[Value]:
        """What is carried into the first iteration."""
        return [size_tensor(site.builder, 0) for _ in self.axes]

    def shapes(
        self, site: Site, body: Body, stacked: Sequence[int]
    ) -> tuple[list[DimExpr], list[tuple[Dim, ...]]]:
        """Symbols for what is behind the loop, in order, and the shapes of slices with them."""
        found = {i: list(body.values[i].shape) for i in stacked}
        made = []
        for (output, axis), value in zip(self.axes, self.before, strict=True):
            symbol = site.builder.run_symbol(f"{site.node.name}_{value.name}", 0, MAX_SIZE)
            made.append(symbol)
            if output in found:
                found[output][axis] = symbol
        return made, [tuple(found[i]) for i in stacked]
