"""The activations of recurrent cells, by the names that ONNX gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.expr.scalar import Expr, unary
from braze.ops.base import Array, OnnxNode
from braze.ops.pointwise.activation import (
    Activation,
    Elu,
    HardSigmoid,
    LeakyRelu,
    Relu,
    Sigmoid,
    Softplus,
    Softsign,
    ThresholdedRelu,
)
from braze.ops.writing.formulas import add, mul, number


@dataclass(frozen=True)
class Tanh(Activation):
    """tanh(x)."""

    def expr(self, x: Expr) -> Expr:
        return unary("tanh", x)

    def apply(self, x: Array) -> Any:
        return np.tanh(x)


@dataclass(frozen=True)
class ScaledTanh(Activation):
    """alpha * tanh(beta * x)."""

    alpha: float
    beta: float

    def expr(self, x: Expr) -> Expr:
        return mul(number(self.alpha, x), unary("tanh", mul(number(self.beta, x), x)))

    def apply(self, x: Array) -> Any:
        return x.dtype.type(self.alpha) * np.tanh(x.dtype.type(self.beta) * x)


@dataclass(frozen=True)
class Affine(Activation):
    """alpha * x + beta."""

    alpha: float
    beta: float

    def expr(self, x: Expr) -> Expr:
        return add(mul(number(self.alpha, x), x), number(self.beta, x))

    def apply(self, x: Array) -> Any:
        return x.dtype.type(self.alpha) * x + x.dtype.type(self.beta)


# lower-case name -> (class, default of each parameter it takes; None: it has none)
_KINDS: Final[Mapping[str, tuple[type[Activation], tuple[float | None, ...]]]] = {
    "relu": (Relu, ()),
    "tanh": (Tanh, ()),
    "sigmoid": (Sigmoid, ()),
    "softsign": (Softsign, ()),
    "softplus": (Softplus, ()),
    "leakyrelu": (LeakyRelu, (0.01,)),
    "thresholdedrelu": (ThresholdedRelu, (1.0,)),
    "elu": (Elu, (1.0,)),
    "hardsigmoid": (HardSigmoid, (0.2, 0.5)),
    "scaledtanh": (ScaledTanh, (None, None)),
    "affine": (Affine, (None, None)),
}


def activation_text(op: Activation) -> str:
    """An activation as one word of a kernel text: its name and its parameters, bit by bit."""
    values = (float(v).hex() for v in vars(op).values())
    return ":".join([type(op).__name__.lower(), *values])


def parse_activation(text: str) -> Activation:
    """The activation that `activation_text` printed."""
    name, *values = text.split(":")
    kind: Any = _KINDS[name][0]
    made: Activation = kind(*map(float.fromhex, values))
    return made


def read_activations(n: OnnxNode, defaults: Sequence[str], directions: int) -> tuple[str, ...]:
    """The activations of a node as texts, those of each direction in turn.

    activation_alpha and activation_beta are used up in order by the activations that take them;
    an activation behind the end of a list has its operator's default.
    """
    count = len(defaults) * directions
    names = tuple(n.attr("activations") or tuple(defaults) * directions)
    if len(names) != count:
        raise n.invalid(f"{len(names)} activations are given where {count} are needed")
    given = [iter(n.attr(key) or ()) for key in ("activation_alpha", "activation_beta")]
    return tuple(activation_text(_activation(n, name, given)) for name in names)


def _activation(n: OnnxNode, name: str, given: Sequence[Iterator[float]]) -> Activation:
    if name.lower() not in _KINDS:
        raise n.unsupported(f"activation {name!r} is not known; use one that ONNX lists for the op")
    made, defaults = _KINDS[name.lower()]
    values = [next(rest, default) for rest, default in zip(given, defaults, strict=False)]
    if None in values:
        raise n.invalid(
            f"activation {name!r} has no default parameters; give activation_alpha and "
            "activation_beta for it"
        )
    return made(*(float(v) for v in values if v is not None))
