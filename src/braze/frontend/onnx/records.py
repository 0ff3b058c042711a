"""Decoded ONNX models: plain frozen data with no protobuf in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np

from braze.core.dtypes import DType

# one axis of a declared shape: a size, a parameter name, or None when nothing is declared
DeclaredDim = Union[int, str, None]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Something braze has no data for (a string tensor, a float8 tensor); `why` is the refusal."""

    why: str


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A constant tensor; `array` has the numpy type of `dtype`."""

    name: str
    dtype: DType
    array: np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class ValueRecord:
    """A graph input or output: declared element type and shape.

    dtype: Unreadable for types braze lacks (sequences, strings); shape: None when no rank is
    declared.
    """

    name: str
    dtype: DType | Unreadable | None
    shape: tuple[DeclaredDim, ...] | None


@dataclass(frozen=True, slots=True)
class AttributeRef:
    """An attribute of a function body that stands for an attribute of the calling node."""

    name: str


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One ONNX node.

    inputs and outputs are tensor names, "" for an absent optional one; attributes hold int, float,
    str, tuples of these, numpy arrays, GraphRecord, AttributeRef or Unreadable; `kinds` holds the
    ONNX type name of each attribute ("INT", "FLOATS", ...). continued: the tensors of nodes behind
    an If that are made in its branches (`continued.py`).
    """

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    overload: str = ""
    continued: tuple[str, ...] = ()

    @property
    def subgraphs(self) -> tuple[GraphRecord, ...]:
        """The graphs among the attributes (branches of If, bodies of Loop and Scan)."""
        return tuple(a for a in self.attributes.values() if isinstance(a, GraphRecord))

    @property
    def where(self) -> str:
        """How error messages name the node."""
        return f"node {self.name!r} ({self.op_type})"


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """A main graph or a subgraph, with nodes in file order."""

    name: str
    inputs: tuple[ValueRecord, ...]
    outputs: tuple[ValueRecord, ...]
    initializers: Mapping[str, TensorRecord | Unreadable]
    nodes: tuple[NodeRecord, ...]


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """A model-local function or the function body of an operator's schema."""

    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    kinds: Mapping[str, str]
    required: tuple[str, ...]
    opsets: Mapping[str, int]
    nodes: tuple[NodeRecord, ...]


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A whole model. `opsets`: domain -> version, with "ai.onnx" spelled ""."""

    opsets: Mapping[str, int]
    graph: GraphRecord
    functions: Mapping[tuple[str, str, str], FunctionRecord] = field(default_factory=dict)

    @property
    def runtime_inputs(self) -> tuple[ValueRecord, ...]:
        """Graph inputs that no initializer backs: what a caller must pass."""
        return tuple(i for i in self.graph.inputs if i.name not in self.graph.initializers)


def layer_names(model: ModelRecord) -> frozenset[str]:
    """The names of all nodes, those of bodies behind that of the node they belong to."""
    return frozenset(_names(model.graph.nodes, ""))


def _names(nodes: Iterable[NodeRecord], prefix: str) -> Iterator[str]:
    for node in nodes:
        yield prefix + node.name
        for graph in node.subgraphs:
            yield from _names(graph.nodes, f"{prefix}{node.name}/")
