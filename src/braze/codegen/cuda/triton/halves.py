"""Activations whose results are rounded to a half type, in forms that are exact enough for that.

The forms of braze.expr.decompose are good to the last place of float32. They cost dozens of
instructions, on every element of a product's result as much as its multiplications. What is rounded
to 11 bits or fewer needs a third of them, and the hardware's own power of two. They are off by
2**-17 of the value at most, and by 1.3e-6 where the value is not large itself, so that sums and
products of them in float32 may come before the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from braze.codegen.cuda.triton.arith import TritonArith
from braze.codegen.cuda.triton.source import Val
from braze.core.dtypes import BF16, F16, F32
from braze.expr.decompose import polynomial
from braze.expr.scalar import Expr
from braze.ops.pointwise.activation import Activation, Gelu, Sigmoid, Silu

# log2 of the normal distribution function at -x, for x in [0, 6]: relative error of the function
# below 2**-17 (Lawson's algorithm on 3000 Chebyshev points); it goes on to fall beyond
LOG_NORMAL: Final = (
    -0.9999952912330627, -1.1512510776519775, -0.4584643840789795, -0.05396006628870964,
    0.008507889695465565, -0.000930524431169033, 6.159824260976166e-05, -1.834809040701657e-06,
)  # fmt: skip
LOG2_E: Final = math.log2(math.e)


def _gelu(a: TritonArith, x: Val) -> Val:
    """x times the normal distribution function."""
    tail = _exp2(a, polynomial(a, a.abs(x), LOG_NORMAL))
    below = a.lt(x, a.const(x, 0.0))
    return a.mul(x, a.select(below, tail, a.sub(a.const(x, 1.0), tail)))


def _tanh_gelu(a: TritonArith, x: Val) -> Val:
    """(1 + tanh(u)) / 2 is 1 / (1 + exp(-2u))."""
    factor = -2 * LOG2_E * math.sqrt(2 / math.pi)
    inner = a.fma(a.mul(x, x), a.const(x, factor * 0.044715), a.const(x, factor))
    return _over(a, x, a.mul(x, inner))


def _silu(a: TritonArith, x: Val) -> Val:
    return _over(a, x, a.mul(x, a.const(x, -LOG2_E)))


def _sigmoid(a: TritonArith, x: Val) -> Val:
    return _over(a, a.const(x, 1.0), a.mul(x, a.const(x, -LOG2_E)))


def _exp2(a: TritonArith, x: Val) -> Val:
    return a.put(f"tl.exp2({x})", x.type)


def _over(a: TritonArith, top: Val, power: Val) -> Val:
    """top / (1 + 2**power)."""
    bottom = a.add(a.const(power, 1.0), _exp2(a, power))
    return a.put(f"near_quotient({top}, {bottom})", bottom.type)


FORMS: Final[Mapping[Activation, Callable[[TritonArith, Val], Val]]] = {
    Gelu(): _gelu, Gelu("tanh"): _tanh_gelu, Silu(): _silu, Sigmoid(): _sigmoid,
}  # fmt: skip
MARKS: Final = {"erf", "tanh", "exp"}  # what all of them contain, in their exact forms
ENDS: Final = {"mul", "div"}  # their last operations
DEPTH: Final = 4  # of the operand below the last operation, in any of these expressions


Form = Callable[[TritonArith, Val], Val]


def short_forms(roots: Sequence[Expr]) -> dict[Expr, tuple[Form, Expr]]:
    """Of the nodes below `roots` that may take a short form, that form and its operand: each is one
    of FORMS, and nothing sees it before it is rounded to a half type."""
    users = _users(roots)
    kept, narrow = set(roots), dict[Expr, bool]()

    def ends_narrow(e: Expr) -> bool:
        """Whether every use of `e` is rounded, after sums and products in float32 at most."""
        if e not in narrow:
            narrow[e] = e not in kept and all(
                (u.op == "cast" and u.dtype in (F16, BF16))
                or (u.dtype is F32 and u.op in ("add", "sub", "mul") and ends_narrow(u))
                for u in users[e]
            )  # fmt: skip
        return narrow[e]

    found = {}
    for e in users:
        if e.dtype is F32 and e.op in ENDS and ends_narrow(e):
            form = _form_of(e)
            if form is not None:
                found[e] = form
    return found


def _users(roots: Sequence[Expr]) -> dict[Expr, list[Expr]]:
    """What uses each expression below `roots` as an operand."""
    users: dict[Expr, list[Expr]] = {e: [] for e in roots}
    todo = list(users)
    while todo:
        e = todo.pop()
        for x in e.args:
            if x not in users:
                users[x] = []
                todo.append(x)
            users[x].append(e)
    return users


def _form_of(e: Expr) -> tuple[Form, Expr] | None:
    """The form that computes what `e` computes, and its operand."""
    level: tuple[Expr, ...] = (e,)
    parts: dict[Expr, None] = {}
    for _ in range(DEPTH):
        level = tuple(x for part in level if part.op != "load" for x in part.args)
        parts.update(dict.fromkeys(level))
    if not any(p.op in MARKS for p in parts):
        return None
    for x in parts:
        if x.dtype is not F32 or x.op == "const":
            continue
        for op, form in FORMS.items():
            if op.expr(x) == e:
                return form, x
    return None
