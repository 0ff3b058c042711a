"""Layer and RMS normalisation that models spell out.

The core is recognised first, without scale and bias; constant scales and biases then join it one
by one, each only if it broadcasts into the result without enlarging it (a scale of larger rank or
size makes the product another shape, and a fused op would silently drop that).
Half types are computed in float32 by the fused op, so sums and squares cannot overflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Value
from braze.ir.pattern import Call, Const, Match, OneOf, Pattern, Var, call, one_of
from braze.ops.norm.normalization import LayerNorm, RmsNorm
from braze.ops.reduce.reduce import Reduce
from braze.passes.rewrite import Refusal, Rule
from braze.passes.rules.contents import is_scalar, keeps_type, number
from braze.passes.rules.patterns import add, binary, mul, unary

X: Final = Var("x")


def _is_kept_mean(op: Reduce) -> bool:
    return op.kind == "mean" and op.keepdims


def _mean(x: Pattern, name: str) -> Call:
    return call(Reduce, x, where=_is_kept_mean, name=name)


def _over_root(x: Pattern, square_mean: Pattern) -> OneOf:
    """x / sqrt(square_mean + epsilon) in every spelling."""
    shifted = add(square_mean, Const("epsilon", is_scalar))
    root = unary("sqrt", shifted)
    one = number("one", 1.0)
    return one_of(
        binary("div", x, root),
        mul(x, one_of(unary("reciprocal", root), binary("div", one, root))),
        mul(x, binary("pow", shifted, number("exponent", -0.5))),
    )


def _square(x: Pattern) -> OneOf:
    return one_of(binary("pow", x, number("two", 2.0)), mul(x, x))


_CENTRED: Final = binary("sub", X, _mean(X, "mean"))


@dataclass(frozen=True)
class _FuseNorm:
    """A normalisation over trailing axes without scale and bias."""

    name: str
    pattern: OneOf
    op: type[Any]
    means: tuple[str, ...]

    def check(self, m: Match, graph: GraphEditor) -> Refusal | None:
        x = m["x"]
        if not x.dtype.is_float:
            return Refusal(f"the element type {x.dtype} has no square root")
        if x.type != m.root.output.type:
            return Refusal("epsilon broadcasts the result to another shape")
        axes = {m.calls[name].op.axes for name in self.means}
        if len(axes) != 1:
            return Refusal("mean and variance are taken over different axes")
        (reduced,) = axes
        if not reduced or reduced != tuple(range(x.type.rank - len(reduced), x.type.rank)):
            return Refusal(f"axes {reduced} are not the trailing ones of rank {x.type.rank}")
        return None

    def rewrite(self, m: Match, g: Rewriter) -> Value:
        epsilon = g.array(m["epsilon"])
        assert epsilon is not None
        axis = m.calls[self.means[0]].op.axes[0]
        return g.add1(self.op(axis, float(epsilon.reshape(-1)[0])), m["x"])


FUSE_LAYER_NORM: Final = _FuseNorm(
    "FuseLayerNorm",
    _over_root(_CENTRED, _mean(_square(_CENTRED), "variance")),
    LayerNorm,
    ("mean", "variance"),
)
FUSE_RMS_NORM: Final = _FuseNorm(
    "FuseRmsNorm", _over_root(X, _mean(_square(X), "variance")), RmsNorm, ("variance",)
)


@dataclass(frozen=True)
class _JoinOperand:
    """norm(x) * scale, norm(x) + bias or norm(x) * scale + bias with constant operands."""

    name: str
    pattern: Call | OneOf

    def check(self, m: Match, graph: GraphEditor) -> Refusal | None:
        out = m.calls["norm"].output.type
        operand = m["operand"]
        if m.root.output.type != out or not keeps_type(operand, out):
            return Refusal(f"operand {operand.type} does not broadcast into {out}")
        if m.calls["norm"].op.axis + operand.type.rank < out.rank:
            return None
        if any(
            d != 1 for d in operand.shape[: operand.type.rank - out.rank + m.calls["norm"].op.axis]
        ):
            return Refusal("the operand varies along axes that are not normalised")
        return None

    def rewrite(self, m: Match, g: Rewriter) -> Value:
        scale = m["scale"] if m.has("scale") else None
        if self.name.endswith("Bias"):
            return g.add1(m.calls["norm"].op, m["x"], scale, m["operand"])
        return g.add1(m.calls["norm"].op, m["x"], m["operand"])


def _is_plain(op: LayerNorm) -> bool:
    return not op.statistics


_PLAIN: Final = call(LayerNorm, X, where=_is_plain, name="norm")
_SCALED: Final = call(LayerNorm, X, Const("scale"), where=_is_plain, name="norm")
_OPERAND: Final = Const("operand")

RULES: Final[tuple[Rule, ...]] = (
    FUSE_LAYER_NORM,
    FUSE_RMS_NORM,
    _JoinOperand(
        "JoinScale", one_of(mul(_PLAIN, _OPERAND), mul(call(RmsNorm, X, name="norm"), _OPERAND))
    ),
    _JoinOperand("JoinBias", one_of(add(_SCALED, _OPERAND), add(_PLAIN, _OPERAND))),
)
