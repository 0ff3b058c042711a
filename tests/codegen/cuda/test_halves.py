"""Which expressions get the short forms of half results (interpreted.py has their accuracy)."""

from __future__ import annotations

import pytest

from braze.codegen.cuda.triton.halves import FORMS, half_form
from braze.core.dtypes import BF16, F16, F32, F64, DType
from braze.expr.scalar import Expr, binary, cast, const, hole, unary
from braze.ops.pointwise.activation import Activation, Gelu

X = binary("add", cast(hole(0, F16), F32), const(1.0, F32))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("op", FORMS, ids=str)
def test_rounded_activations(op: Activation, dtype: DType) -> None:
    assert half_form(cast(op.expr(X), dtype)) == (FORMS[op], X)


NEAR: dict[str, Expr] = {
    "in float32": Gelu().expr(X),
    "to float64": cast(Gelu().expr(X), F64),
    "of float64": cast(Gelu().expr(cast(X, F64)), F16),
    "of half operations": Gelu().expr(cast(X, F16)),
    "more than the activation": cast(binary("add", Gelu().expr(X), X), F16),
    "another factor": cast(
        binary("mul", X, binary("add", const(1.0, F32), unary("erf", X))), F16
    ),
    "another function": cast(unary("tanh", X), F16),
    "no function": cast(X, F16),
}  # fmt: skip


@pytest.mark.parametrize("e", NEAR.values(), ids=NEAR)
def test_near_misses(e: Expr) -> None:
    assert half_form(e) is None
