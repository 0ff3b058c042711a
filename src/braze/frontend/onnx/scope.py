"""Names of tensors while a graph is imported: nested scopes over values, constants and failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from braze.frontend.onnx.records import TensorRecord, Unreadable
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value


@dataclass(frozen=True, slots=True)
class Poison:
    """Stands for the outputs of a node that could not be imported.

    computed: whether the content comes from run-time data, so that it could never be a constant.
    """

    computed: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A tensor braze cannot read (a string tensor, say); refused where it is used."""

    why: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A sequence of tensors.

    stack: instead of `values`, one tensor whose slices along axis 0 they are, where only the run
    knows how many there are.
    """

    values: tuple[Value, ...]
    stack: Value | None = None

    @property
    def why(self) -> str:
        """What is wrong with it as a tensor."""
        return "it is a sequence; take its tensors out of it in the model"


Bound = Value | Listed | Poison | Refused | None


class Scope:
    """Tensors visible in one graph: its own, its initializers (made constants when first read),
    and those of the graphs around it."""

    def __init__(
        self,
        builder: GraphBuilder,
        initializers: Mapping[str, TensorRecord | Unreadable],
        outer: Scope | None,
        prefix: str,
    ) -> None:
        self.prefix = prefix
        self.depth: int = 0 if outer is None else outer.depth + 1
        self._builder = builder
        self._initializers = initializers
        self._outer = outer
        self._bound: dict[str, Bound] = {}

    def bind(self, name: str, value: Bound) -> None:
        """Give `name` its value in this scope."""
        self._bound[name] = value

    def __contains__(self, name: object) -> bool:
        if name in self._bound or name in self._initializers:
            return True
        return self._outer is not None and name in self._outer

    def __getitem__(self, name: str) -> Bound:
        """The value called `name`; raises KeyError when no scope has it."""
        if name in self._bound:
            return self._bound[name]
        if name in self._initializers:
            record = self._initializers[name]
            if isinstance(record, Unreadable):
                return Refused(f"initializer {name!r} has {record.why}")
            value = self._builder.constant(record.array, self.prefix + name)
            self._bound[name] = value
            return value
        if self._outer is None:
            raise KeyError(name)
        return self._from_outside(self._outer[name])

    def _from_outside(self, value: Bound) -> Bound:
        """What a tensor of the graph around this one is in here."""
        return value


class BodyScope(Scope):
    """Tensors visible in a graph that runs by itself: those from outside become inputs of it.

    captured: value outside -> the input that stands for it; constants are constants in here too.
    noted: is told of both when a value is captured.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        initializers: Mapping[str, TensorRecord | Unreadable],
        outer: Scope,
        prefix: str,
        noted: Callable[[Value, Value], None],
    ) -> None:
        super().__init__(builder, initializers, outer, prefix)
        self._noted = noted
        self.captured: dict[Value, Value] = {}
        self._constants: dict[Value, Value] = {}
        self._around = outer._builder

    def _from_outside(self, value: Bound) -> Bound:
        if isinstance(value, Listed):
            stack = None if value.stack is None else self.capture(value.stack)
            return Listed(tuple(map(self.capture, value.values)), stack)
        return self.capture(value) if isinstance(value, Value) else value

    def capture(self, value: Value) -> Value:
        """What stands for a value of the graph around this one."""
        around, here = self._around, self._builder
        if value in around.constants:
            if value not in self._constants:
                self._constants[value] = here.constant_of(value, around)
            return self._constants[value]
        if value not in self.captured:
            inner = self.captured[value] = here.input(value.name, value.type)
            if value in around.known:
                here.known[inner] = around.known[value]
            self._noted(value, inner)
        return self.captured[value]
