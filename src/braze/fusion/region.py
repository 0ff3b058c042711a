"""Region: a convex set of nodes that becomes one kernel.

(MLIR uses "region" for nested code; here it is a piece of the graph.) A region has at most one
producer, a node with an anchor or loop-nest lowering; everything else in it is pointwise or a view
and is computed in registers, before the producer reads or after it has its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from braze.ir.graph import Node, Value


@dataclass(frozen=True, slots=True)
class Region:
    """outputs: the values it writes to memory; producer: see above, None for a pointwise region.

    root: for a region with an epilogue, the value the epilogue computes (equal to outputs[0]);
    nodes: every node computed in the region, in graph order; reason: why it was formed.
    """

    outputs: tuple[Value, ...]
    producer: Node | None
    nodes: tuple[Node, ...]
    reason: str

    @property
    def root(self) -> Value:
        return self.outputs[0]

    @property
    def origins(self) -> tuple[str, ...]:
        """Names of the ONNX nodes in the region, without repeats."""
        return tuple(dict.fromkeys(o for n in self.nodes for o in n.origins))

    @property
    def label(self) -> str:
        """Short name for people: op names joined by '+'."""
        names = [n.op.name for n in self.nodes]
        text = "+".join(names)
        return text if len(text) <= 80 else "+".join([*names[:3], f"...{len(names)} ops"])


@dataclass(frozen=True, slots=True)
class Partition:
    """The whole graph as regions in execution order.

    aliases: value -> the value whose bytes it is (reshapes); chains are resolved to the end.
    """

    regions: tuple[Region, ...]
    aliases: Mapping[Value, Value]

    def base(self, value: Value) -> Value:
        """The value whose memory holds `value`."""
        return self.aliases.get(value, value)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a value was not fused into its consumer; goes into the build record."""

    value: str
    consumer: str
    reason: str
