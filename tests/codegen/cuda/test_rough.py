"""Which erf and tanh may be rough: those of a GELU that becomes a 16-bit float, and no other."""

from __future__ import annotations

import pytest

from braze.codegen.cuda.triton.rough import rough_nodes
from braze.core.dtypes import BF16, F16, F32, F64, DType
from braze.expr.scalar import Expr, binary, cast, const, load, unary
from braze.ops.pointwise.activation import Gelu


def gelu(kind: str, x: Expr) -> Expr:
    return Gelu(kind).expr(x)


@pytest.mark.parametrize("kind", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_a_gelu_that_is_rounded_to_16_bits(kind: str, dtype: DType) -> None:
    root = cast(gelu(kind, cast(load(0, (), dtype), F32)), dtype)
    (e,) = rough_nodes([root])
    assert e.op == ("erf" if kind == "none" else "tanh")


X = cast(load(0, (), F16), F32)
ONE = const(1.0, F32)
ERF = unary("erf", X)
NOT: dict[str, list[Expr]] = {
    "kept in float32": [gelu("none", X)],
    "kept in float32 too": [cast(gelu("none", X), F16), gelu("none", X)],
    "float64": [cast(gelu("none", cast(X, F64)), F16)],
    "not added to one": [cast(ERF, F16)],
    "one minus it, which cancels": [cast(binary("sub", ONE, ERF), F16)],
    "used elsewhere too": [cast(binary("mul", binary("add", ONE, ERF), ERF), F16)],
    "compared before it is rounded": [
        cast(cast(binary("lt", binary("add", ONE, ERF), X), F32), F16)
    ],
    "divided by": [cast(binary("div", X, binary("add", ONE, ERF)), F16)],
}


@pytest.mark.parametrize("roots", NOT.values(), ids=NOT)
def test_near_misses(roots: list[Expr]) -> None:
    assert not rough_nodes(roots)
