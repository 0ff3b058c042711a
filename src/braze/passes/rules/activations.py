"""Activations that models spell out: GELU, SiLU, hard sigmoid, hard swish.

The fused op evaluates the same formula in one go (half types in float32), so results differ from
the spelled-out form by its intermediate roundings only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Value
from braze.ir.pattern import Call, Const, Match, OneOf, Pattern, Var, call, one_of
from braze.ops.pointwise.activation import Clip, Gelu, HardSigmoid, HardSwish, Sigmoid, Silu
from braze.passes.rewrite import Refusal, Rule
from braze.passes.rules.contents import EXACT_SLACK, is_scalar, number
from braze.passes.rules.patterns import add, binary, mul, unary

X: Final = Var("x")


def _halved_product(gate: Pattern) -> OneOf:
    """0.5 * x * gate in every association."""
    half = number("half", 0.5)
    return one_of(
        mul(mul(X, gate), half),
        mul(X, mul(gate, half)),
        mul(mul(X, half), gate),
        binary("div", mul(X, gate), number("two", 2.0)),
    )


def _erf_gate() -> Pattern:
    scaled = one_of(
        binary("div", X, number("root", math.sqrt(2))), mul(X, number("inverse", math.sqrt(0.5)))
    )
    return add(unary("erf", scaled), number("one", 1.0))


def _tanh_gate() -> Pattern:
    cubic, root = number("cubic", 0.044715), number("root", math.sqrt(2 / math.pi))
    square = one_of(mul(X, X), binary("pow", X, number("two_", 2.0)))
    cube = one_of(binary("pow", X, number("three", 3.0)), mul(X, square))
    inner = one_of(
        mul(add(X, mul(cube, cubic)), root),
        mul(add(X, mul(X, mul(X, mul(X, cubic)))), root),
        mul(mul(X, root), add(mul(mul(X, cubic), X), number("one_", 1.0))),
        mul(mul(X, root), add(mul(square, cubic), number("one_", 1.0))),
    )
    return add(unary("tanh", inner), number("one", 1.0))


@dataclass(frozen=True)
class _FuseActivation:
    """A pattern over the single value x that equals one op of x."""

    name: str
    pattern: Call | OneOf
    op: Any

    def check(self, m: Match, graph: GraphEditor) -> Refusal | None:
        if m["x"].type != m.root.output.type:
            return Refusal("a constant broadcasts the result to another shape")
        return None

    def rewrite(self, m: Match, g: Rewriter) -> Value:
        return g.add1(self.op, m["x"])


@dataclass(frozen=True)
class FuseScaledSilu:
    """x * sigmoid(alpha * x)."""

    name: str = "FuseScaledSilu"
    pattern = mul(X, call(Sigmoid, mul(X, Const("alpha", is_scalar))))

    def check(self, m: Match, graph: GraphEditor) -> Refusal | None:
        if m["x"].type != m.root.output.type:
            return Refusal("alpha broadcasts the result to another shape")
        return None

    def rewrite(self, m: Match, g: Rewriter) -> Value:
        array = g.array(m["alpha"])
        assert array is not None
        return g.add1(Silu(float(array.reshape(-1)[0])), m["x"])


def _is_relu6(op: Clip) -> bool:
    return op.lo == 0 and op.hi == 6


def _is_swish_gate(op: HardSigmoid) -> bool:
    return abs(op.alpha - 1 / 6) <= EXACT_SLACK / 6 and op.beta == 0.5


_RELU6: Final = call(Clip, add(X, number("three", 3.0)), where=_is_relu6)
_SIX, _SIXTH = number("six", 6.0), number("sixth", 1 / 6)

FUSE_GELU: Final = _FuseActivation("FuseGelu", _halved_product(_erf_gate()), Gelu())
FUSE_TANH_GELU: Final = _FuseActivation("FuseTanhGelu", _halved_product(_tanh_gate()), Gelu("tanh"))
FUSE_SILU: Final = _FuseActivation("FuseSilu", mul(X, call(Sigmoid, X)), Silu())
FUSE_HARD_SIGMOID: Final = _FuseActivation(
    "FuseHardSigmoid",
    one_of(binary("div", _RELU6, _SIX), mul(_RELU6, _SIXTH)),
    HardSigmoid(1 / 6, 0.5),
)
FUSE_HARD_SWISH: Final = _FuseActivation(
    "FuseHardSwish",
    one_of(
        mul(X, call(HardSigmoid, X, where=_is_swish_gate)),
        binary("div", mul(X, _RELU6), _SIX),
        mul(mul(X, _RELU6), _SIXTH),
        mul(X, one_of(binary("div", _RELU6, _SIX), mul(_RELU6, _SIXTH))),
        mul(mul(X, _SIXTH), _RELU6),
    ),
    HardSwish(),
)

RULES: Final[tuple[Rule, ...]] = (
    FUSE_GELU,
    FUSE_TANH_GELU,
    FUSE_HARD_SWISH,
    FUSE_HARD_SIGMOID,
    FUSE_SILU,
    FuseScaledSilu(),
)
