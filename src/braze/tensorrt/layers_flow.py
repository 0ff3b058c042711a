"""Loops and conditionals: their boundary layers. `flow_model.py` makes nodes of ONNX of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from braze.core.dims import Dim
from braze.ir.graph import TensorType
from braze.tensorrt.adding import Adding
from braze.tensorrt.enums_layers import LayerType, LoopOutput, TripLimit
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, flag, member, text, whole
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter
    from braze.tensorrt.network import INetworkDefinition


class Region:
    """Layers that run together: a loop or a conditional."""

    word = ""

    def __init__(self, network: INetworkDefinition) -> None:
        self.network = network
        self._name = f"(Unnamed {self.word}* {len(network._regions)})"
        self.boundary: list[ILayer] = []
        network._regions.append(self)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = text(value, f"{type(self).__name__}.name")

    @property
    def entries(self) -> list[ILayer]:
        """Layers that give what its body reads."""
        return [x for x in self.boundary if x._type in _ENTRIES]

    @property
    def exits(self) -> list[ILayer]:
        """Layers that take what its body makes."""
        return [x for x in self.boundary if x._type not in _ENTRIES]


_ENTRIES = (LayerType.RECURRENCE, LayerType.ITERATOR, LayerType.CONDITIONAL_INPUT)


# ---- loops ------------------------------------------------------------------------------


class ILoopBoundaryLayer(ILayer):
    """A layer at the border of a loop."""

    _loop: ILoop

    @property
    def loop(self) -> ILoop:
        """The loop."""
        return self._loop


class IRecurrenceLayer(ILoopBoundaryLayer):
    """A value that changes from one iteration to the next: input 0 at first, then input 1."""

    layer_type, word, most_inputs = LayerType.RECURRENCE, "Recurrence", 2

    def _read(self) -> list[ITensor | None]:
        return self._inputs[:1]  # what comes next is made of it

    def lower(self, emit: Emitter) -> None:
        """A stand-in of the type that the value has at first."""
        emit.stand_in(0, emit.type(emit.input(0)))


class IIteratorLayer(ILoopBoundaryLayer):
    """One slice of a tensor in each iteration."""

    layer_type, word = LayerType.ITERATOR, "Iterator"
    axis = Param(whole, 0, "the axis that is walked along")
    reverse = Param(flag, False, "whether it is walked from the end")

    def lower(self, emit: Emitter) -> None:
        """A stand-in without the axis."""
        whole_type = emit.type(emit.input(0))
        if not 0 <= self.axis < whole_type.rank:
            raise emit.misfit(f"axis {self.axis} is not there: the input has {whole_type.rank}")
        shape = (*whole_type.shape[: self.axis], *whole_type.shape[self.axis + 1 :])
        emit.stand_in(0, TensorType(whole_type.dtype, shape))


class ITripLimitLayer(ILoopBoundaryLayer):
    """How often a loop runs (COUNT), or while what holds (WHILE)."""

    layer_type, word, outputs = LayerType.TRIP_LIMIT, "TripLimit", 0
    _kind = Param(member(TripLimit), TripLimit.COUNT, "which limit")

    @property
    def kind(self) -> TripLimit:
        """Which limit it is."""
        return self._kind

    def lower(self, emit: Emitter) -> None:
        """No node of its own."""
        emit.input(0)


class ILoopOutputLayer(ILoopBoundaryLayer):
    """What a loop leaves: a last value, or one value an iteration along a new axis.

    Input 1 is how many iterations there are.
    """

    layer_type, word, most_inputs = LayerType.LOOP_OUTPUT, "LoopOutput", 2
    axis = Param(whole, 0, "the new axis")
    _kind = Param(member(LoopOutput), LoopOutput.LAST_VALUE, "what is left")

    @property
    def kind(self) -> LoopOutput:
        """What is left."""
        return self._kind

    def lower(self, emit: Emitter) -> None:
        """A stand-in, with the new axis."""
        one = emit.type(emit.input(0))
        if self.kind is LoopOutput.LAST_VALUE:
            producer = self._inputs[0]._producer if self._inputs[0] is not None else None
            if producer is None or producer._type is not LayerType.RECURRENCE:
                raise emit.wrong("LAST_VALUE takes the output of a recurrence of the loop")
            emit.stand_in(0, one)
            return
        if not 0 <= self.axis <= one.rank:
            raise emit.misfit(f"a new axis {self.axis} does not fit {one.rank} axes")
        shape = (*one.shape[: self.axis], self._length(emit), *one.shape[self.axis :])
        emit.stand_in(0, TensorType(one.dtype, shape))

    def _length(self, emit: Emitter) -> Dim:
        limits = [x for x in self.loop.boundary if isinstance(x, ITripLimitLayer)]
        counts = [x.get_input(0) for x in limits if x.kind is TripLimit.COUNT]
        given = self.get_input(1) or next((t for t in counts if t is not None), None)
        if given is None:
            raise emit.wrong("its length is missing; give it as input 1")
        content = emit.known(given)
        if content is not None and content.size == 1:
            size: Dim = content.reshape(-1)[0]
            return size
        return emit.lowering.builder.run_symbol("length", 0, (1 << 31) - 1)


_B = TypeVar("_B", bound=ILoopBoundaryLayer)


class ILoop(Region):
    """A loop: what its layers make of recurrences and iterators runs once an iteration."""

    word = "Loop"

    def add_recurrence(self, initial_value: ITensor) -> IRecurrenceLayer | None:
        """A value that changes from one iteration to the next; give the next as input 1."""
        return self._at_border(IRecurrenceLayer, [initial_value])

    def add_iterator(
        self, tensor: ITensor, axis: int = 0, reverse: bool = False
    ) -> IIteratorLayer | None:
        """One slice of a tensor in each iteration."""
        return self._at_border(IIteratorLayer, [tensor], axis=axis, reverse=reverse)

    def add_trip_limit(self, tensor: ITensor, kind: TripLimit) -> ITripLimitLayer | None:
        """How often it runs, or while what holds; None where there is such a limit already."""
        limit = member(TripLimit)(kind, "add_trip_limit")
        if any(isinstance(x, ITripLimitLayer) and x.kind is limit for x in self.boundary):
            self.network._complain(f"loop {self.name!r} has a limit of kind {kind.name} already")
            return None
        return self._at_border(ITripLimitLayer, [tensor], _kind=limit)

    def add_loop_output(
        self, tensor: ITensor, kind: LoopOutput, axis: int = 0
    ) -> ILoopOutputLayer | None:
        """What it leaves."""
        return self._at_border(ILoopOutputLayer, [tensor], _kind=kind, axis=axis)

    def _at_border(self, kind: type[_B], inputs: Sequence[ITensor], **values: Any) -> _B | None:
        layer = self.network._add(kind, inputs, **values)
        if layer is not None:
            layer._loop = self
            self.boundary.append(layer)
        return layer


# ---- conditionals -----------------------------------------------------------------------


class IIfConditionalBoundaryLayer(ILayer):
    """A layer at the border of a conditional."""

    _conditional: IIfConditional

    @property
    def conditional(self) -> IIfConditional:
        """The conditional."""
        return self._conditional


class IConditionLayer(IIfConditionalBoundaryLayer):
    """What decides."""

    layer_type, word, outputs = LayerType.CONDITION, "Condition", 0

    def lower(self, emit: Emitter) -> None:
        """No node of its own."""
        emit.input(0)


class IIfConditionalInputLayer(IIfConditionalBoundaryLayer):
    """What only runs where a branch needs it begins here."""

    layer_type, word = LayerType.CONDITIONAL_INPUT, "ConditionalInput"

    def lower(self, emit: Emitter) -> None:
        """The input as it is."""
        emit.give(0, emit.node("Identity", emit.input(0)))


class IIfConditionalOutputLayer(IIfConditionalBoundaryLayer):
    """Input 0 where the condition holds, input 1 where it does not."""

    layer_type, word, most_inputs = LayerType.CONDITIONAL_OUTPUT, "ConditionalOutput", 2

    def lower(self, emit: Emitter) -> None:
        """A stand-in: both have one type."""
        then, other = emit.type(emit.input(0)), emit.type(emit.input(1))
        if then.dtype is not other.dtype or then.rank != other.rank:
            raise emit.misfit(f"its branches give {then} and {other}; make them alike")
        emit.stand_in(0, then)


_C = TypeVar("_C", bound=IIfConditionalBoundaryLayer)


class IIfConditional(Region):
    """A conditional: layers behind its inputs run only where their branch is taken."""

    word = "Conditional"

    def set_condition(self, condition: ITensor) -> IConditionLayer | None:
        """What decides: one BOOL."""
        for layer in [x for x in self.boundary if isinstance(x, IConditionLayer)]:
            layer.set_input(0, condition)
            return layer
        return self._at_border(IConditionLayer, [condition])

    def add_input(self, input: ITensor) -> IIfConditionalInputLayer | None:
        """A tensor as the branches read it."""
        return self._at_border(IIfConditionalInputLayer, [input])

    def add_output(
        self, true_subgraph_output: ITensor, false_subgraph_output: ITensor
    ) -> IIfConditionalOutputLayer | None:
        """What either branch makes."""
        pair = [true_subgraph_output, false_subgraph_output]
        return self._at_border(IIfConditionalOutputLayer, pair)

    def _at_border(self, kind: type[_C], inputs: Sequence[ITensor]) -> _C | None:
        layer = self.network._add(kind, inputs)
        if layer is not None:
            layer._conditional = self
            self.boundary.append(layer)
        return layer


class AddFlow(Adding):
    """The part of INetworkDefinition that adds loops and conditionals."""

    def add_loop(self) -> ILoop:
        """A loop without anything in it."""
        return ILoop(self._network)

    def add_if_conditional(self) -> IIfConditional:
        """A conditional without anything in it."""
        return IIfConditional(self._network)
