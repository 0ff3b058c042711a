"""Ops that run graphs of their own: what If and Loop have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from braze.core.dims import Dim
from braze.core.errors import ExecutionError, ShapeError
from braze.ir.graph import Graph, Node, TensorType, Value
from braze.ir.text import print_graph
from braze.ops.base import Array, Op

if TYPE_CHECKING:
    from typing_extensions import Self


class Bodies(Protocol):
    """What runs bodies, and knows the sizes at the time."""

    def run(self, body: Graph, arrays: Sequence[Array]) -> list[Array]:
        """The outputs of a body for arrays, one an input."""

    def size(self, d: Dim) -> int:
        """The value of a size."""


@dataclass(frozen=True)
class FlowOp(Op):
    """bodies: graphs that run as often as the op says; whatever they read is an input of the node.

    A body shares the weight store and the size symbols of the graph around it.
    """

    folds: ClassVar[bool] = False

    bodies: tuple[Graph, ...]

    def run(self, inputs: Sequence[Array | None], bodies: Bodies) -> list[Array]:
        """The numpy meaning."""
        raise NotImplementedError

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        """Not by itself: the evaluator lends `run` what runs bodies."""
        raise ExecutionError(f"{self.name} runs in an evaluator only")

    def late(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> set[int]:
        """The outputs whose sizes only the run knows, although a body makes them."""
        raise NotImplementedError

    @property
    def captured(self) -> int:
        """How many inputs, at the end of the node's and of each body's, bodies read besides."""
        raise NotImplementedError

    def with_bodies(self, bodies: Sequence[Graph]) -> Self:
        """The same with other bodies."""
        return replace(self, bodies=tuple(bodies))

    def __str__(self) -> str:
        """Equal for ops that do the same: the texts of bodies stand behind a hash."""
        attrs = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name != "bodies"]
        texts = "".join(map(print_graph, self.bodies)).encode()
        attrs.append(f"bodies={hashlib.sha256(texts).hexdigest()[:16]}")
        return f"{self.name}<{', '.join(attrs)}>"


def check_passed(what: str, body: Graph, first: int, given: Sequence[TensorType | None]) -> None:
    """Raise ShapeError unless the inputs of a body from `first` on have the types given."""
    wanted = [v.type for v in body.inputs[first:]]
    if list(given) != wanted:
        raise ShapeError(
            f"{what} is passed {', '.join(map(str, given))} where it takes "
            f"{', '.join(map(str, wanted))}"
        )


def late_outputs(node: Node) -> list[Value]:
    """The outputs of a node of control flow that have memory of the plan's own choice."""
    types = [None if v is None else v.type for v in node.inputs]
    late = node.op.late(types, [v.type for v in node.outputs])
    return [node.outputs[i] for i in sorted(late)]
