"""Reductions, running sums, matrix products and Einstein sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from braze.tensorrt.adding import Adding
from braze.tensorrt.enums_layers import (
    CumulativeOperation,
    LayerType,
    MatrixOperation,
    ReduceOperation,
)
from braze.tensorrt.layer import ILayer
from braze.tensorrt.layers_norm import axes_of
from braze.tensorrt.params import Param, flag, member, text, whole
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter

_REDUCTIONS: Final = {
    ReduceOperation.SUM: "ReduceSum",
    ReduceOperation.PROD: "ReduceProd",
    ReduceOperation.MAX: "ReduceMax",
    ReduceOperation.MIN: "ReduceMin",
    ReduceOperation.AVG: "ReduceMean",
}


class IReduceLayer(ILayer):
    """A sum, product, extreme or mean over axes."""

    layer_type, word = LayerType.REDUCE, "Reduce"
    op = Param(member(ReduceOperation), ReduceOperation.SUM, "which operation")
    axes = Param(whole, 0, "bits of the axes")
    keep_dims = Param(flag, False, "whether axes of size 1 stay")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        x = emit.input()
        axes = axes_of(emit, self.axes, emit.rank(x))
        if not axes:
            raise emit.misfit("no axes are set to reduce over")
        if self.op not in _REDUCTIONS:
            raise emit.wrong(f"{self.op.name} is for collectives of several devices")
        keep = int(self.keep_dims)
        emit.give(0, emit.node(_REDUCTIONS[self.op], x, emit.ints(axes), keepdims=keep))


class ICumulativeLayer(ILayer):
    """Running sums along an axis, which input 1 holds."""

    layer_type, word, most_inputs, shape_inputs = LayerType.CUMULATIVE, "Cumulative", 2, (1,)
    op = Param(member(CumulativeOperation), CumulativeOperation.SUM, "which operation")
    exclusive = Param(flag, False, "whether an element itself is left out")
    reverse = Param(flag, False, "whether it runs from the end")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        (axis,) = emit.numbers(emit.input(1), "its axis")
        ways = {"exclusive": int(self.exclusive), "reverse": int(self.reverse)}
        axis_name = emit.reshape(emit.ints([axis]), ())
        emit.give(0, emit.node("CumSum", emit.input(0), axis_name, **ways))


def _transposed(op: str) -> Any:
    """How releases to 7 said that a matrix is read the other way round."""

    def get(layer: ILayer) -> bool:
        return getattr(layer, op) is MatrixOperation.TRANSPOSE

    def put(layer: ILayer, value: bool) -> None:
        on = flag(value, f"transpose{op[-1]}")
        setattr(layer, op, MatrixOperation.TRANSPOSE if on else MatrixOperation.NONE)

    return property(get, put, doc=f"Whether {op} is TRANSPOSE.")


class IMatrixMultiplyLayer(ILayer):
    """Products of the matrices in the last two axes, or of vectors in the last one."""

    layer_type, word, most_inputs = LayerType.MATRIX_MULTIPLY, "Matrix Multiply", 2
    op0 = Param(member(MatrixOperation), MatrixOperation.NONE, "how the first is read")
    op1 = Param(member(MatrixOperation), MatrixOperation.NONE, "how the second is read")

    transpose0 = _transposed("op0")
    transpose1 = _transposed("op1")

    def lower(self, emit: Emitter) -> None:
        """One node between transposes and axes of size 1."""
        names = emit.alike(emit.input(0), emit.input(1))
        ops = (self.op0, self.op1)
        ranks = []
        for i, op in enumerate(ops):
            ranks.append(emit.rank(names[i]) + (op is MatrixOperation.VECTOR))
        if ranks[0] != ranks[1] or ranks[0] < 2:
            raise emit.misfit(
                f"its inputs have {emit.rank(names[0])} and {emit.rank(names[1])} axes, which do "
                "not fit; add axes of size 1"
            )
        a, b = (
            self._matrix(emit, n, op, i) for i, (n, op) in enumerate(zip(names, ops, strict=True))
        )
        made = emit.node("MatMul", a, b)
        gone = [i - 2 for i, op in enumerate(ops) if op is MatrixOperation.VECTOR]
        emit.give(0, emit.node("Squeeze", made, emit.ints(gone)) if gone else made)

    def _matrix(self, emit: Emitter, name: str, op: MatrixOperation, index: int) -> str:
        if op is MatrixOperation.VECTOR:  # a row on the left, a column on the right
            return emit.node("Unsqueeze", name, emit.ints([-2 if index == 0 else -1]))
        rank = emit.rank(name)
        if op is MatrixOperation.TRANSPOSE:
            return emit.transpose(name, [*range(rank - 2), rank - 1, rank - 2])
        return name


class IEinsumLayer(ILayer):
    """An Einstein sum."""

    layer_type, word = LayerType.EINSUM, "Einsum"
    equation = Param(text, "", "which axes are multiplied and summed")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        parts = emit.alike(*(emit.input(i) for i in range(self.num_inputs)))
        emit.give(0, emit.node("Einsum", *parts, equation=self.equation))


class AddReduce(Adding):
    """The part of INetworkDefinition that adds these layers."""

    def add_reduce(
        self, input: ITensor, op: ReduceOperation, axes: int, keep_dims: bool
    ) -> IReduceLayer | None:
        """A sum, product, extreme or mean over axes."""
        return self._add(IReduceLayer, [input], op=op, axes=axes, keep_dims=keep_dims)

    def add_cumulative(
        self,
        input: ITensor,
        axis: ITensor,
        op: CumulativeOperation,
        exclusive: bool,
        reverse: bool,
    ) -> ICumulativeLayer | None:
        """Running sums along an axis."""
        ways = {"exclusive": exclusive, "reverse": reverse}
        return self._add(ICumulativeLayer, [input, axis], op=op, **ways)

    def add_matrix_multiply(
        self, input0: ITensor, op0: MatrixOperation, input1: ITensor, op1: MatrixOperation
    ) -> IMatrixMultiplyLayer | None:
        """Products of matrices."""
        return self._add(IMatrixMultiplyLayer, [input0, input1], op0=op0, op1=op1)

    def add_einsum(self, inputs: Sequence[ITensor], equation: str) -> IEinsumLayer | None:
        """An Einstein sum."""
        if not inputs:
            self._refuse("add_einsum: there are no inputs")
            return None
        return self._add(IEinsumLayer, list(inputs), equation=equation)
