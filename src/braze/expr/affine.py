"""How an index moves along one loop axis: what decides between one vector load and a gather."""

from __future__ import annotations

import math

from braze.core.dims import Dim, DimExpr
from braze.expr.fold import reachable
from braze.expr.scalar import Expr


def as_dim(e: Expr) -> Dim | None:
    """The size an int64 expression stands for when it holds only constants and sizes."""
    if e.op == "dim" or (e.op == "const" and isinstance(e.value, int)):
        return e.size
    if e.op in ("add", "sub", "mul"):
        a, b = (as_dim(x) for x in e.args)
        if a is None or b is None:
            return None
        return a + b if e.op == "add" else a - b if e.op == "sub" else a * b
    return None


def depends_on_axis(e: Expr, axis: int) -> bool:
    """True when `axis` occurs anywhere in `e`, also inside the indexes of loads."""
    return any(x.op == "axis" and x.number == axis for x in reachable(e))


def slope(e: Expr, axis: int, block: int) -> Dim | None:
    """The constant step of int64 `e` per step of `axis`, or None when it has none.

    Within `block` consecutive values of the axis whose first is a multiple of `block` (1 promises
    nothing), a floordiv may stand still and a mod may move evenly.
    """
    if not depends_on_axis(e, axis):
        return 0
    if e.op == "axis":
        return 1
    if e.op == "neg":
        inner = slope(e.args[0], axis, block)
        return None if inner is None else inner * -1
    if e.op in ("add", "sub", "mul"):
        a, b = (slope(x, axis, block) for x in e.args)
        if a is None or b is None:
            return None
        if e.op != "mul":
            return a + b if e.op == "add" else a - b
        fixed, step = (e.args[1], a) if b == 0 else (e.args[0], b)
        factor = as_dim(fixed)
        return None if factor is None or (a != 0 and b != 0) else factor * step
    if e.op in ("floordiv", "mod"):
        moved = slope(e.args[0], axis, block)
        divisor = as_dim(e.args[1])
        if not isinstance(moved, int) or not isinstance(divisor, int) or divisor <= 0:
            return None
        room = math.gcd(multiple(e.args[0], axis, block), divisor)
        if 0 <= moved * (block - 1) < room and block > 1:
            return 0 if e.op == "floordiv" else moved
    return None


def multiple(e: Expr, axis: int, block: int) -> int:
    """An integer that divides `e` whenever `axis` is a multiple of `block` (0 divides only 0)."""
    if e.op == "axis":
        return block if e.number == axis else 1
    if e.op in ("const", "dim"):
        return content(e.size)
    if e.op == "neg":
        return multiple(e.args[0], axis, block)
    if e.op in ("add", "sub"):
        return math.gcd(*(multiple(x, axis, block) for x in e.args))
    if e.op == "mul":
        return math.prod(multiple(x, axis, block) for x in e.args)
    return 1


def content(d: Dim) -> int:
    """The greatest integer known to divide a size."""
    if isinstance(d, DimExpr):
        return math.gcd(*(c for _, c in d.terms))
    return abs(d)
