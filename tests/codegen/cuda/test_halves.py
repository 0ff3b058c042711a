"""Which expressions get the short forms of half results (forms.py has their accuracy)."""

from __future__ import annotations

import pytest

from braze.codegen.cuda.triton.halves import FORMS, short_forms
from braze.core.dtypes import BF16, F16, F32, F64, DType
from braze.expr.scalar import Expr, binary, cast, const, hole, load, unary
from braze.ops.pointwise.activation import Activation, Gelu, Silu

X = binary("add", cast(hole(0, F16), F32), const(1.0, F32))
Y = cast(load(0, (), F16), F32)
GELU = Gelu().expr(X)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("op", FORMS, ids=str)
def test_rounded_activations(op: Activation, dtype: DType) -> None:
    e = op.expr(X)
    assert short_forms([cast(e, dtype)])[e] == (FORMS[op], X)


GATED = Silu().expr(Y)
WITHIN: dict[str, tuple[Expr, Expr]] = {
    "added to": (GELU, cast(binary("add", GELU, Y), F16)),
    "subtracted from": (GELU, cast(binary("sub", Y, GELU), BF16)),
    "a gate": (GATED, cast(binary("mul", GATED, X), F16)),
    "added to a product": (GELU, cast(binary("add", binary("mul", GELU, Y), Y), F16)),
    "rounded twice": (GELU, binary("add", cast(GELU, F16), cast(binary("mul", GELU, Y), F16))),
}


@pytest.mark.parametrize(("e", "root"), WITHIN.values(), ids=WITHIN)
def test_sums_and_products_before_the_rounding(e: Expr, root: Expr) -> None:
    assert e in short_forms([root])


NEAR: dict[str, list[Expr]] = {
    "in float32": [GELU],
    "in float32 too": [cast(GELU, F16), GELU],
    "a sum in float32": [binary("add", GELU, Y)],
    "to float64": [cast(GELU, F64)],
    "of float64": [cast(Gelu().expr(cast(X, F64)), F16)],
    "of half operations": [Gelu().expr(cast(X, F16))],
    "another factor": [
        cast(binary("mul", X, binary("add", const(1.0, F32), unary("erf", X))), F16)
    ],
    "another function": [cast(unary("tanh", X), F16)],
    "no function": [cast(X, F16)],
    "an operand of another function": [cast(unary("exp", GELU), F16)],
    "divided by": [cast(binary("div", Y, GELU), F16)],
    "compared before it is rounded": [cast(cast(binary("lt", GELU, Y), F32), F16)],
}  # fmt: skip


@pytest.mark.parametrize("roots", NEAR.values(), ids=NEAR)
def test_near_misses(roots: list[Expr]) -> None:
    assert GELU not in short_forms(roots)
    if "exp" not in roots[0].args[0].op:
        assert not short_forms(roots)
