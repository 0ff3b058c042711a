"""Activations: one-operand functions with literal parameters.

Every class gives its meaning twice: `expr` in scalar operations and `apply` in numpy, both on the
compute type (float32 for half types). Formulas are those of the ONNX operator texts; where the
plain formula loses digits or overflows, the rewritten one is explained at its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.core.dtypes import F64
from braze.core.errors import DTypeError
from braze.expr.scalar import Expr, binary, cast, select, unary
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext, Op
from braze.ops.lowering import Lowering
from braze.ops.pointwise.elementwise_numpy import erf
from braze.ops.writing.broadcast import broadcast_to
from braze.ops.writing.formulas import add, div, expm1, less, log1p, mul, number, sigmoid, sub
from braze.ops.writing.precision import narrow, pointwise, present, same_dtype, widen
from braze.ops.writing.size_arithmetic import known_binary

SELU_ALPHA: Final = 1.67326319217681884765625
SELU_GAMMA: Final = 1.05070102214813232421875


@dataclass(frozen=True)
class Activation(Op):
    """Base: y = f(x), same shape and type, floating point only unless a class says otherwise."""

    def expr(self, x: Expr) -> Expr:
        """f in scalar operations; `x` is in its compute type."""
        raise NotImplementedError

    def apply(self, x: Array) -> Any:
        """f in numpy; `x` is in its compute type."""
        raise NotImplementedError

    def takes_integers(self) -> bool:
        """True for the few activations that ONNX defines on integers."""
        return False

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        if not x.dtype.is_float and not (self.takes_integers() and x.dtype.is_int):
            raise DTypeError(f"{self.name}: element type {x.dtype} does not fit; insert a Cast")
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        with np.errstate(all="ignore"):
            return (narrow(self.apply(widen(x)), x),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        return pointwise(inputs, outputs[0].dtype, self.expr)


@dataclass(frozen=True)
class Relu(Activation):
    """max(x, 0); NaN stays NaN."""

    def expr(self, x: Expr) -> Expr:
        return binary("max", x, number(0, x))

    def apply(self, x: Array) -> Any:
        return np.maximum(x, np.zeros((), x.dtype))

    def takes_integers(self) -> bool:
        return True

    def known(
        self,
        contents: Sequence[Array | None],
        types: Sequence[TensorType | None],
        ctx: InferContext,
    ) -> tuple[Array, ...] | None:
        return _known_clip(contents[0], types[0], (0, None), ctx)


@dataclass(frozen=True)
class LeakyRelu(Activation):
    """x where x >= 0, else alpha * x."""

    alpha: float

    def expr(self, x: Expr) -> Expr:
        return select(less(x, number(0, x)), mul(x, number(self.alpha, x)), x)

    def apply(self, x: Array) -> Any:
        return np.where(x < 0, x * x.dtype.type(self.alpha), x)


@dataclass(frozen=True)
class Clip(Activation):
    """min(max(x, lo), hi) with bounds that are known numbers, or None for no bound."""

    lo: float | None
    hi: float | None

    def expr(self, x: Expr) -> Expr:
        y = x if self.lo is None else binary("max", x, number(self.lo, x))
        return y if self.hi is None else binary("min", y, number(self.hi, x))

    def apply(self, x: Array) -> Any:
        y = x if self.lo is None else np.maximum(x, np.asarray(self.lo, x.dtype))
        return y if self.hi is None else np.minimum(y, np.asarray(self.hi, x.dtype))

    def takes_integers(self) -> bool:
        return True

    def known(
        self,
        contents: Sequence[Array | None],
        types: Sequence[TensorType | None],
        ctx: InferContext,
    ) -> tuple[Array, ...] | None:
        return _known_clip(contents[0], types[0], (self.lo, self.hi), ctx)


def _known_clip(
    x: Array | None,
    t: TensorType | None,
    limits: tuple[float | None, float | None],
    ctx: InferContext,
) -> tuple[Array, ...] | None:
    if x is None or t is None or not t.dtype.is_int:
        return None
    y: Array | None = x
    for op, bound in zip(("max", "min"), limits, strict=True):
        if bound is not None:
            y = known_binary(op, y, np.array(int(bound), dtype=object), t.dtype, ctx.range_of)
    return None if y is None else (y,)


@dataclass(frozen=True)
class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    def expr(self, x: Expr) -> Expr:
        return sigmoid(x)

    def apply(self, x: Array) -> Any:
        return 1 / (1 + np.exp(-x))


@dataclass(frozen=True)
class HardSigmoid(Activation):
    """max(0, min(1, alpha * x + beta))."""

    alpha: float
    beta: float

    def expr(self, x: Expr) -> Expr:
        line = add(mul(x, number(self.alpha, x)), number(self.beta, x))
        return binary("max", number(0, x), binary("min", number(1, x), line))

    def apply(self, x: Array) -> Any:
        line = x * x.dtype.type(self.alpha) + x.dtype.type(self.beta)
        return np.maximum(x.dtype.type(0), np.minimum(x.dtype.type(1), line))


@dataclass(frozen=True)
class HardSwish(Activation):
    """x * max(0, min(1, x / 6 + 1/2))."""

    def expr(self, x: Expr) -> Expr:
        return mul(x, HardSigmoid(1 / 6, 0.5).expr(x))

    def apply(self, x: Array) -> Any:
        return x * HardSigmoid(1 / 6, 0.5).apply(x)


@dataclass(frozen=True)
class Gelu(Activation):
    """x * Phi(x); approximate "none" uses erf, "tanh" the tanh formula."""

    approximate: str = "none"

    def expr(self, x: Expr) -> Expr:
        half = mul(x, number(0.5, x))
        if self.approximate == "tanh":
            cube = mul(mul(mul(x, x), x), number(0.044715, x))
            inner = unary("tanh", mul(add(x, cube), number(math.sqrt(2 / math.pi), x)))
        else:
            inner = unary("erf", mul(x, number(math.sqrt(0.5), x)))
        return mul(half, add(number(1, x), inner))

    def apply(self, x: Array) -> Any:
        t = x.dtype.type
        if self.approximate == "tanh":
            inner = np.tanh((x + t(0.044715) * (x * x * x)) * t(math.sqrt(2 / math.pi)))
        else:
            inner = erf(x * t(math.sqrt(0.5)))
        return x * t(0.5) * (1 + inner)


@dataclass(frozen=True)
class Silu(Activation):
    """x * sigmoid(alpha * x) (ONNX Swish)."""

    alpha: float = 1.0

    def expr(self, x: Expr) -> Expr:
        return mul(x, sigmoid(mul(x, number(self.alpha, x)) if self.alpha != 1 else x))

    def apply(self, x: Array) -> Any:
        return x * (1 / (1 + np.exp(-(x * x.dtype.type(self.alpha)))))


@dataclass(frozen=True)
class Elu(Activation):
    """x where x > 0, else alpha * (exp(x) - 1)."""

    alpha: float

    def expr(self, x: Expr) -> Expr:
        return select(less(number(0, x), x), x, mul(number(self.alpha, x), expm1(x)))

    def apply(self, x: Array) -> Any:
        return np.where(x > 0, x, x.dtype.type(self.alpha) * np.expm1(np.minimum(x, 0)))


@dataclass(frozen=True)
class Selu(Activation):
    """gamma * (x where x > 0, else alpha * (exp(x) - 1))."""

    alpha: float = SELU_ALPHA
    gamma: float = SELU_GAMMA

    def expr(self, x: Expr) -> Expr:
        return mul(number(self.gamma, x), Elu(self.alpha).expr(x))

    def apply(self, x: Array) -> Any:
        return x.dtype.type(self.gamma) * Elu(self.alpha).apply(x)


@dataclass(frozen=True)
class Celu(Activation):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    alpha: float

    def expr(self, x: Expr) -> Expr:
        low = mul(number(self.alpha, x), expm1(div(x, number(self.alpha, x))))
        return add(binary("max", number(0, x), x), binary("min", number(0, x), low))

    def apply(self, x: Array) -> Any:
        alpha = x.dtype.type(self.alpha)
        return np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0)


@dataclass(frozen=True)
class Softplus(Activation):
    """log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which never overflows."""

    def expr(self, x: Expr) -> Expr:
        tail = log1p(unary("exp", unary("neg", unary("abs", x))))
        return add(binary("max", x, number(0, x)), tail)

    def apply(self, x: Array) -> Any:
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@dataclass(frozen=True)
class Softsign(Activation):
    """x / (1 + |x|)."""

    def expr(self, x: Expr) -> Expr:
        return div(x, add(number(1, x), unary("abs", x)))

    def apply(self, x: Array) -> Any:
        return x / (1 + np.abs(x))


@dataclass(frozen=True)
class ThresholdedRelu(Activation):
    """x where x > alpha, else 0 (NaN gives 0, as in the ONNX text)."""

    alpha: float

    def expr(self, x: Expr) -> Expr:
        return select(less(number(self.alpha, x), x), x, number(0, x))

    def apply(self, x: Array) -> Any:
        return np.where(x > x.dtype.type(self.alpha), x, x.dtype.type(0))


@dataclass(frozen=True)
class Mish(Activation):
    """x * tanh(log(1 + exp(x))).

    With e = exp(x) the factor is e(e + 2) / (e(e + 2) + 2): one exponential. It rounds to 1 long
    before x = 40, so x is capped there and e cannot overflow.
    """

    def expr(self, x: Expr) -> Expr:
        e = unary("exp", binary("min", x, number(40, x)))
        top = mul(e, add(e, number(2, x)))
        return mul(x, div(top, add(top, number(2, x))))

    def apply(self, x: Array) -> Any:
        return x * np.tanh(np.logaddexp(x, np.zeros((), x.dtype)))


@dataclass(frozen=True)
class Shrink(Activation):
    """x + bias where x < -lambd, x - bias where x > lambd, else 0; integers via float64."""

    lambd: float
    bias: float

    def expr(self, x: Expr) -> Expr:
        wide = cast(x, F64) if x.dtype.is_int else x
        above = less(number(self.lambd, wide), wide)
        high = select(above, sub(wide, number(self.bias, wide)), number(0, wide))
        low = add(wide, number(self.bias, wide))
        return cast(select(less(wide, number(-self.lambd, wide)), low, high), x.dtype)

    def apply(self, x: Array) -> Any:
        wide = x.astype(np.float64) if x.dtype.kind in "iu" else x
        t = wide.dtype.type
        high = np.where(wide > t(self.lambd), wide - t(self.bias), t(0))
        return np.where(wide < -t(self.lambd), wide + t(self.bias), high)

    def takes_integers(self) -> bool:
        return True


@dataclass(frozen=True)
class PRelu(Op):
    """x where x >= 0, else slope * x; slope (input 1) broadcasts one way to x."""

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        x, slope = present(inputs, 2, self.name)
        if same_dtype((x, slope), self.name).kind == "b":
            raise DTypeError("PRelu: element type bool does not fit; insert a Cast")
        broadcast_to(ctx, slope.shape, x.shape, "PRelu slope")
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, slope = inputs
        assert x is not None and slope is not None
        with np.errstate(all="ignore"):
            return (narrow(np.where(x < 0, widen(x) * widen(slope), widen(x)), x),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        return pointwise(inputs, outputs[0].dtype, _prelu_expr)


def _prelu_expr(x: Expr, slope: Expr) -> Expr:
    return select(less(x, number(0, x)), mul(x, slope), x)
