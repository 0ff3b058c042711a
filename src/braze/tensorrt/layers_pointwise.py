"""Layers that compute each element by itself: activations, unary, element-wise, scale, casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from braze.tensorrt.adding import Adding
from braze.tensorrt.enums_layers import (
    ActivationType,
    ElementWiseOperation,
    LayerType,
    UnaryOperation,
)
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, member, real
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter

A, U, E = ActivationType, UnaryOperation, ElementWiseOperation
# those that ONNX has a node for, with what alpha and beta are called there
ACTIVATIONS: Final[dict[ActivationType, tuple[str, tuple[str, ...]]]] = {
    A.RELU: ("Relu", ()),
    A.SIGMOID: ("Sigmoid", ()),
    A.TANH: ("Tanh", ()),
    A.LEAKY_RELU: ("LeakyRelu", ("alpha",)),
    A.ELU: ("Elu", ("alpha",)),
    A.SELU: ("Selu", ("alpha", "gamma")),
    A.SOFTSIGN: ("Softsign", ()),
    A.HARD_SIGMOID: ("HardSigmoid", ("alpha", "beta")),
    A.THRESHOLDED_RELU: ("ThresholdedRelu", ("alpha",)),
}
UNARY: Final = {
    U.EXP: "Exp", U.LOG: "Log", U.SQRT: "Sqrt", U.RECIP: "Reciprocal", U.ABS: "Abs", U.NEG: "Neg",
    U.SIN: "Sin", U.COS: "Cos", U.TAN: "Tan", U.SINH: "Sinh", U.COSH: "Cosh", U.ASIN: "Asin",
    U.ACOS: "Acos", U.ATAN: "Atan", U.ASINH: "Asinh", U.ACOSH: "Acosh", U.ATANH: "Atanh",
    U.CEIL: "Ceil", U.FLOOR: "Floor", U.ERF: "Erf", U.NOT: "Not", U.SIGN: "Sign", U.ROUND: "Round",
    U.ISINF: "IsInf", U.ISNAN: "IsNaN",
}  # fmt: skip
PAIRS: Final = {
    E.SUM: "Add", E.PROD: "Mul", E.MAX: "Max", E.MIN: "Min", E.SUB: "Sub", E.DIV: "Div",
    E.POW: "Pow", E.AND: "And", E.OR: "Or", E.XOR: "Xor", E.EQUAL: "Equal", E.GREATER: "Greater",
    E.LESS: "Less",
}  # fmt: skip


class IActivationLayer(ILayer):
    """A function of each element; alpha and beta are its constants, where it has any."""

    layer_type, word = LayerType.ACTIVATION, "Activation"
    type = Param(member(ActivationType), A.RELU, "which function")  # type: ignore[assignment]
    alpha = Param(real, 0.0, "its first constant")
    beta = Param(real, 0.0, "its second constant")

    def lower(self, emit: Emitter) -> None:
        """One node, or the formula."""
        x, kind = emit.input(), self.type
        if kind in ACTIVATIONS:
            op, names = ACTIVATIONS[kind]
            given = dict(zip(names, (self.alpha, self.beta), strict=False))
            emit.give(0, emit.node(op, x, **given))
        else:
            emit.give(0, _FORMULAS[kind](emit, x, self.alpha, self.beta))


def _clip(emit: Emitter, x: str, low: float, high: float) -> str:
    return emit.node("Clip", x, emit.scalar(low, x), emit.scalar(high, x))


def _softplus(emit: Emitter, x: str, alpha: float, beta: float) -> str:
    inner = emit.node("Softplus", emit.node("Mul", x, emit.scalar(beta, x)))
    return emit.node("Mul", inner, emit.scalar(alpha, x))


def _scaled_tanh(emit: Emitter, x: str, alpha: float, beta: float) -> str:
    inner = emit.node("Tanh", emit.node("Mul", x, emit.scalar(beta, x)))
    return emit.node("Mul", inner, emit.scalar(alpha, x))


def _gelu(approximate: str) -> Callable[[Emitter, str, float, float], str]:
    def said(emit: Emitter, x: str, alpha: float, beta: float) -> str:
        return emit.node("Gelu", x, approximate=approximate)

    return said


_FORMULAS: Final = {
    A.SOFTPLUS: _softplus,
    A.CLIP: _clip,
    A.SCALED_TANH: _scaled_tanh,
    A.GELU_ERF: _gelu("none"),
    A.GELU_TANH: _gelu("tanh"),
}


class IUnaryLayer(ILayer):
    """An operation on each element."""

    layer_type, word = LayerType.UNARY, "Unary"
    op = Param(member(UnaryOperation), U.EXP, "which operation")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        x = emit.input()
        if self.op is U.NOT and emit.dtype(x) is not DataType.BOOL:
            raise emit.wrong(f"NOT takes BOOL, not {emit.dtype(x).name}")
        emit.give(0, emit.node(UNARY[self.op], x))


class IElementWiseLayer(ILayer):
    """An operation on pairs of elements; axes of size 1 are repeated, ranks are equal."""

    layer_type, word, most_inputs = LayerType.ELEMENTWISE, "ElementWise", 2
    op = Param(member(ElementWiseOperation), E.SUM, "which operation")

    def lower(self, emit: Emitter) -> None:
        """One node; FLOOR_DIV rounds down, also integers."""
        a, b = emit.alike(emit.input(0), emit.input(1))
        if emit.rank(a) != emit.rank(b):
            raise emit.misfit(
                f"its inputs have {emit.rank(a)} and {emit.rank(b)} axes; add axes of size 1"
            )
        kinds = emit.dtype(a), emit.dtype(b)
        if self.op in (E.AND, E.OR, E.XOR) and set(kinds) != {DataType.BOOL}:
            raise emit.wrong(f"{self.op.name} takes BOOL, not {kinds[0].name} and {kinds[1].name}")
        if self.op is E.FLOOR_DIV:
            emit.give(0, _floor_div(emit, a, b))
        else:
            emit.give(0, emit.node(PAIRS[self.op], a, b))


def _floor_div(emit: Emitter, a: str, b: str) -> str:
    quotient = emit.node("Div", a, b)
    if emit.type(a).dtype.is_float:
        return emit.node("Floor", quotient)
    # integers are divided towards zero: one less where signs differ and something is left
    left = emit.node("Sub", a, emit.node("Mul", quotient, b))
    zero = emit.scalar(0, a)
    some = emit.node("Not", emit.node("Equal", left, zero))
    opposite = emit.node("Xor", emit.node("Less", left, zero), emit.node("Less", b, zero))
    lower = emit.node("Sub", quotient, emit.scalar(1, a))
    return emit.node("Where", emit.node("And", some, opposite), lower, quotient)


class IIdentityLayer(ILayer):
    """The input; an output type that is set is converted to."""

    layer_type, word = LayerType.IDENTITY, "Identity"

    def lower(self, emit: Emitter) -> None:
        """A node that does nothing, and the cast that follows from the output type."""
        emit.give(0, emit.node("Identity", emit.input()))


class ICastLayer(ILayer):
    """The input in another element type."""

    layer_type, word = LayerType.CAST, "Cast"
    to_type = Param(member(DataType), DataType.FLOAT, "the type")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        emit.give(0, emit.cast(emit.input(), self.to_type))


class ISelectLayer(ILayer):
    """Elements of one input where a condition holds, of the other elsewhere."""

    layer_type, word, most_inputs = LayerType.SELECT, "Select", 3

    def lower(self, emit: Emitter) -> None:
        """One node."""
        condition = emit.input(0)
        a, b = emit.alike(emit.input(1), emit.input(2))
        if emit.dtype(condition) is not DataType.BOOL:
            raise emit.wrong(f"its condition is {emit.dtype(condition).name}, not BOOL")
        if not emit.rank(condition) == emit.rank(a) == emit.rank(b):
            raise emit.misfit("its inputs have different numbers of axes; add axes of size 1")
        emit.give(0, emit.node("Where", condition, a, b))


class IParametricReLULayer(ILayer):
    """x where it is above zero, x times a slope elsewhere."""

    layer_type, word, most_inputs = LayerType.PARAMETRIC_RELU, "Parametric ReLU", 2

    def lower(self, emit: Emitter) -> None:
        """One node; slopes have the rank of the input."""
        x, slopes = emit.alike(emit.input(0), emit.input(1))
        if emit.rank(x) != emit.rank(slopes):
            raise emit.misfit("its slopes have another number of axes; add axes of size 1")
        emit.give(0, emit.node("PRelu", x, slopes))


class AddPointwise(Adding):
    """The part of INetworkDefinition that adds these layers."""

    def add_activation(self, input: ITensor, type: ActivationType) -> IActivationLayer | None:
        """A function of each element."""
        return self._add(IActivationLayer, [input], type=type)

    def add_unary(self, input: ITensor, op: UnaryOperation) -> IUnaryLayer | None:
        """An operation on each element."""
        return self._add(IUnaryLayer, [input], op=op)

    def add_elementwise(
        self, input1: ITensor, input2: ITensor, op: ElementWiseOperation
    ) -> IElementWiseLayer | None:
        """An operation on pairs of elements."""
        return self._add(IElementWiseLayer, [input1, input2], op=op)

    def add_identity(self, input: ITensor) -> IIdentityLayer | None:
        """The input as it is."""
        return self._add(IIdentityLayer, [input])

    def add_cast(self, input: ITensor, to_type: DataType) -> ICastLayer | None:
        """The input in another element type."""
        return self._add(ICastLayer, [input], to_type=to_type)

    def add_select(
        self, condition: ITensor, then_input: ITensor, else_input: ITensor
    ) -> ISelectLayer | None:
        """One input where a condition holds, the other elsewhere."""
        return self._add(ISelectLayer, [condition, then_input, else_input])

    def add_parametric_relu(self, input: ITensor, slopes: ITensor) -> IParametricReLULayer | None:
        """x where it is above zero, x times a slope elsewhere."""
        return self._add(IParametricReLULayer, [input, slopes])
