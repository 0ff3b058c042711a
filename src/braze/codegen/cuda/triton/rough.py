"""erf and tanh for what becomes a 16-bit float: a few instructions instead of a few dozen.

A GELU is x / 2 * (1 + erf(x / sqrt(2))), or the same with tanh. Where the result is rounded to
float16 or bfloat16 before anything else sees it, the float32 forms of braze.expr.decompose (two
units in the last place) are work for nothing, and in the epilogue of a product they cost as much as
a third of it. What is used in no other way than as an addend of 1 needs a small absolute error
only, and both functions have that over one exp2 of the hardware (2 units in the last place).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from braze.codegen.cuda.triton.arith import TritonArith
from braze.codegen.cuda.triton.source import Val
from braze.core.dtypes import BF16, F16, F32
from braze.expr.scalar import Expr

# -log2(erfc(u)) / u for u >= 0, fitted on [0, 4] by reweighted least squares (Lawson) to the least
# maximum of u * |error of erf(u)|: |x / 2 * (error of erf(x / sqrt(2)))| < 6e-7 for every x, and
# |error of erf| < 6e-6. The last coefficient is positive, so that it grows beyond 4 as well.
ERFC_BITS = (
    1.6277605295181274, 0.9191916584968567, 0.14749294519424438, -0.028794873505830765,
    0.002761122304946184,
)  # fmt: skip
TWO_LOG2_E = 2.8853900817779268


def rough_erf(a: TritonArith, x: Val) -> Val:
    """1 - 2**-(bits of erfc(|x|)) with the sign of x."""
    size = a.abs(x)
    bits = a.const(x, ERFC_BITS[-1])
    for c in reversed(ERFC_BITS[:-1]):
        bits = a.fma(bits, size, a.const(x, c))
    rest = a.put(f"tl.exp2(-({bits} * {size}))", x.type)
    return a.copysign(a.sub(a.const(x, 1.0), rest), x)


def rough_tanh(a: TritonArith, x: Val) -> Val:
    """1 - 2 / (1 + exp(2 x)): |error| < 3e-7."""
    power = a.put(f"tl.exp2({x} * {TWO_LOG2_E})", x.type)
    return a.put(f"1.0 - 2.0 / (1.0 + {power})", x.type)


ROUGH: Mapping[str, Callable[[TritonArith, Val], Val]] = {"erf": rough_erf, "tanh": rough_tanh}


def rough_nodes(roots: Sequence[Expr]) -> frozenset[Expr]:
    """The float32 calls of ROUGH whose every use is an addition of 1, on the way to 16 bits."""
    users: dict[Expr, list[Expr]] = {}
    todo, seen = list(roots), set(roots)
    while todo:
        e = todo.pop()
        for x in e.args:
            users.setdefault(x, []).append(e)
            if x not in seen:
                seen.add(x)
                todo.append(x)
    kept = set(roots)
    narrow: dict[Expr, bool] = {}

    def ends_narrow(e: Expr) -> bool:
        """Whether every use of `e` is rounded to 16 bits before it leaves."""
        if e not in narrow:
            narrow[e] = e not in kept and all(
                (u.op == "cast" and u.dtype in (F16, BF16))
                or (u.dtype is F32 and u.op in ("add", "sub", "mul") and ends_narrow(u))
                for u in users[e]
            )  # fmt: skip
        return narrow[e]

    def adds_one(u: Expr) -> bool:
        return u.op == "add" and any(x.op == "const" and x.value == 1 for x in u.args)

    return frozenset(
        e
        for e in seen
        if e.op in ROUGH and e.dtype is F32 and ends_narrow(e) and all(map(adds_one, users[e]))
    )
