"""Layers that move elements: shuffle, concatenation, slices, squeezes; and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from braze.tensorrt.adding import Adding
from braze.tensorrt.dims import Dims, Permutation
from braze.tensorrt.enums_layers import LayerType
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, flag, order, sizes, text, whole
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter


def _order_or_none(value: Any, what: str) -> Permutation | None:
    return None if value is None else order(value, what)


def _sizes_or_none(value: Any, what: str) -> Dims | None:
    return None if value is None else sizes(value, what)


class IShuffleLayer(ILayer):
    """A transpose, a reshape and another transpose, each where it is set.

    In reshape_dims -1 is what is left, and 0 a size of the input, if zero_is_placeholder. Input 1
    stands for reshape_dims.
    """

    layer_type, word, most_inputs, shape_inputs = LayerType.SHUFFLE, "Shuffle", 2, (1,)
    _first = Param(_order_or_none, None, "the first transpose")
    _dims = Param(_sizes_or_none, None, "the reshape")
    _second = Param(_order_or_none, None, "the second transpose")
    zero_is_placeholder = Param(flag, True, "whether 0 stands for a size of the input")

    @property
    def first_transpose(self) -> Permutation:
        """The axes before the reshape."""
        return Permutation() if self._first is None else self._first

    @first_transpose.setter
    def first_transpose(self, value: Any) -> None:
        self._first = order(value, "first_transpose")

    @property
    def reshape_dims(self) -> Dims:
        """The sizes of the reshape."""
        return Dims() if self._dims is None else self._dims

    @reshape_dims.setter
    def reshape_dims(self, value: Any) -> None:
        self._dims = sizes(value, "reshape_dims")

    @property
    def second_transpose(self) -> Permutation:
        """The axes behind the reshape."""
        return Permutation() if self._second is None else self._second

    @second_transpose.setter
    def second_transpose(self, value: Any) -> None:
        self._second = order(value, "second_transpose")

    def lower(self, emit: Emitter) -> None:
        """Up to three nodes."""
        made = self._transposed(emit, emit.input(), self._first)
        zero = None if self.zero_is_placeholder else 1
        if emit.has(1):
            target = emit.cast(emit.input(1), DataType.INT64)
            made = emit.node("Reshape", made, target, allowzero=zero)
        elif self._dims is not None:
            if emit.batch and zero is not None:
                raise emit.wrong("a size of 0 needs an explicit batch")
            sizes = [*[0] * emit.batch, *self._dims]
            made = emit.node("Reshape", made, emit.ints(sizes), allowzero=zero)
        emit.give(0, self._transposed(emit, made, self._second))

    def _transposed(self, emit: Emitter, x: str, axes: Permutation | None) -> str:
        rank = emit.rank(x)
        if axes is None:
            return x
        first, own = emit.batch, rank - emit.batch
        kept = [*range(first), *(i + first for i in list(axes)[:own])]
        if sorted(kept) != list(range(rank)):
            raise emit.misfit(f"{kept} is no order of the {rank} axes")
        return emit.transpose(x, kept)


class IConcatenationLayer(ILayer):
    """Tensors side by side along an axis: the third from last where none is set."""

    layer_type, word = LayerType.CONCATENATION, "Concatenation"
    _axis = Param(whole, -1, "the axis; -1 for none set")

    @property
    def axis(self) -> int:
        """The axis."""
        tensor = self.get_input(0)
        rank = len(tensor.shape) if tensor is not None and self._axis < 0 else 0
        return self._axis if self._axis >= 0 else max(0, rank - 3)

    @axis.setter
    def axis(self, value: int) -> None:
        self._axis = value

    def lower(self, emit: Emitter) -> None:
        """One node."""
        parts = emit.alike(*(emit.input(i) for i in range(self.num_inputs)))
        rank = emit.rank(parts[0])
        own = rank - emit.batch
        axis = emit.batch + (self._axis if self._axis >= 0 else max(0, own - 3))
        if axis >= rank or any(emit.rank(p) != rank for p in parts):
            ranks = ", ".join(str(emit.rank(p)) for p in parts)
            raise emit.misfit(f"inputs of {ranks} axes cannot be joined along axis {axis}")
        emit.give(0, emit.node("Concat", *parts, axis=axis))


class IShapeLayer(ILayer):
    """The sizes of the input, as INT64."""

    layer_type, word = LayerType.SHAPE, "Shape"

    def lower(self, emit: Emitter) -> None:
        """One node."""
        emit.give(0, emit.shape_of(emit.input()))


class _Squeezing(ILayer):
    most_inputs, shape_inputs = 2, (1,)

    def _axes(self, emit: Emitter) -> str:
        """The axes as a constant vector."""
        return emit.ints(emit.numbers(emit.input(1), "its axes"))


class ISqueezeLayer(_Squeezing):
    """The input without axes of size 1; input 1 holds which."""

    layer_type, word = LayerType.SQUEEZE, "Squeeze"

    def lower(self, emit: Emitter) -> None:
        """One node."""
        emit.give(0, emit.node("Squeeze", emit.input(0), self._axes(emit)))


class IUnsqueezeLayer(_Squeezing):
    """The input with further axes of size 1; input 1 holds where."""

    layer_type, word = LayerType.UNSQUEEZE, "Unsqueeze"

    def lower(self, emit: Emitter) -> None:
        """One node."""
        emit.give(0, emit.node("Unsqueeze", emit.input(0), self._axes(emit)))


class IAssertionLayer(ILayer):
    """A condition that must hold in a run; one that is known to be false ends the build."""

    layer_type, word, outputs, shape_inputs = LayerType.ASSERTION, "Assertion", 0, (0,)
    message = Param(text, "", "what to say where it does not")

    def lower(self, emit: Emitter) -> None:
        """The least of the condition's elements; what is not known is left to the run."""
        condition = emit.input()
        content = emit.content(condition)
        if content is not None and any(v is False or v == 0 for v in content.flat):
            raise emit.wrong(f"the assertion fails: {self.message}")
        if content is None:
            axes = emit.ints(range(emit.rank(condition)))
            number = emit.cast(condition, DataType.INT64)
            emit.said.asserted = emit.node("ReduceMin", number, axes, keepdims=0)


class AddMoves(Adding):
    """The part of INetworkDefinition that adds these layers."""

    def add_shuffle(self, input: ITensor) -> IShuffleLayer | None:
        """A transpose, a reshape and another transpose."""
        return self._add(IShuffleLayer, [input])

    def add_concatenation(self, inputs: Sequence[ITensor]) -> IConcatenationLayer | None:
        """Tensors side by side."""
        if not inputs:
            self._refuse("add_concatenation: there are no inputs")
            return None
        return self._add(IConcatenationLayer, list(inputs))

    def add_shape(self, input: ITensor) -> IShapeLayer | None:
        """The sizes of a tensor."""
        return self._add(IShapeLayer, [input])

    def add_squeeze(self, input: ITensor, axes: ITensor) -> ISqueezeLayer | None:
        """A tensor without axes of size 1."""
        return self._add(ISqueezeLayer, [input, axes])

    def add_unsqueeze(self, input: ITensor, axes: ITensor) -> IUnsqueezeLayer | None:
        """A tensor with further axes of size 1."""
        return self._add(IUnsqueezeLayer, [input, axes])

    def add_assertion(self, condition: ITensor, message: str) -> IAssertionLayer | None:
        """A condition that must hold."""
        return self._add(IAssertionLayer, [condition], message=message)
