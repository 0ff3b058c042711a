"""The graph IR: immutable, in topological order, weights outside.

A pass makes a new Graph or returns the one it was given; returning the same object means
"nothing changed". Values and nodes are compared by identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

from braze.core.dims import Dim, DimExpr, Shape
from braze.core.dtypes import DType
from braze.ir.weights import WeightStore


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape; sizes may be symbolic."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A tensor in the graph: a name that is unique in its graph, and a type."""

    name: str
    type: TensorType

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


class OpLike(Protocol):
    """What the graph needs to know of an op (the real class is braze.ops.base.Op)."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One operation. `op` is an Op whose fields are its typed attributes.

    An absent optional input is None. `origins` are the names of the ONNX nodes it came from and
    survive every rewrite: errors, profiles and the inspector speak in them.
    """

    op: Any
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    origins: tuple[str, ...] = ()

    @property
    def output(self) -> Value:
        """The only output of a one-output node."""
        assert len(self.outputs) == 1, self.op
        return self.outputs[0]

    def __repr__(self) -> str:
        return (
            f"{', '.join(map(repr, self.outputs))} = {self.op}({', '.join(map(repr, self.inputs))})"
        )


def bodies_of(node: Node) -> tuple[Graph, ...]:
    """The graphs that an op of control flow runs (`bodies` of braze.ops.flow.base.FlowOp)."""
    bodies: tuple[Graph, ...] = getattr(node.op, "bodies", ())
    return bodies


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """Two sizes that were assumed equal; checked at run time whenever shapes are set.

    what: says in words what must hold, and is the head of the error's sentence. Guards of the same
    sizes are the same guard, whoever asks for it.
    """

    lhs: Dim
    rhs: Dim
    what: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class RunSize:
    """A symbol that gets its value in the run.

    It is element `element` (row-major) of the int64 tensor `value`, or, where `value` is None, the
    size `size`, which holds earlier symbols. low, high: what it may be; high is a size too, None
    where nothing is known. Whatever uses the symbol runs after `value` is there.
    """

    symbol: str
    value: Value | None
    element: int
    size: Dim
    low: int
    high: Dim | None


@dataclass(frozen=True, eq=False)
class Graph:
    """A whole network.

    inputs: graph inputs; outputs: graph outputs with their public names (a value may be an input,
    a constant, or appear twice); constants: value -> key into `weights`; bounds: (min, max) of
    every symbol over all profiles; specialized: graph input -> the content (flattened) that the
    graph was built for (the input stays bound and must be given exactly this content; symbols are
    elements that the run reads, within their bounds); sizes: the symbols that the run gives, each
    after those it uses.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[tuple[str, Value], ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, str]
    weights: WeightStore
    guards: tuple[SizeGuard, ...] = ()
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    name: str = "graph"
    specialized: Mapping[str, tuple[int | float | bool | DimExpr, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    sizes: tuple[RunSize, ...] = ()

    @cached_property
    def producer(self) -> Mapping[Value, Node]:
        """value -> the node that makes it (inputs and constants are absent)."""
        return {v: n for n in self.nodes for v in n.outputs}

    @cached_property
    def users(self) -> Mapping[Value, tuple[Node, ...]]:
        """value -> nodes that read it, in order (a node that reads it twice appears twice)."""
        out: dict[Value, list[Node]] = {}
        for n in self.nodes:
            for v in n.inputs:
                if v is not None:
                    out.setdefault(v, []).append(n)
        return {v: tuple(ns) for v, ns in out.items()}

    @cached_property
    def output_values(self) -> frozenset[Value]:
        return frozenset(v for _, v in self.outputs)

    @cached_property
    def kept_values(self) -> frozenset[Value]:
        """What must exist in memory: the outputs, and what sizes are read from."""
        return self.output_values | {s.value for s in self.sizes if s.value is not None}

    def constant(self, value: Value | None) -> Any | None:
        """The numpy array of a constant value, or None when `value` is not constant."""
        if value is None or value not in self.constants:
            return None
        return self.weights.get(self.constants[value])
