"""How an index moves along one loop axis: what decides between one vector load and a gather."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from braze.core.dims import Dim, DimExpr
from braze.core.dtypes import I64
from braze.expr.fold import bottom_up
from braze.expr.scalar import Expr


def as_dim(e: Expr) -> Dim | None:
    """The size an int64 expression stands for when it holds only constants and sizes."""
    return bottom_up(e, _size, _is_arithmetic)


def _is_arithmetic(e: Expr) -> bool:
    """Whether a size can be told from those of the operands."""
    return e.op in ("add", "sub", "mul")


def _size(e: Expr, args: Sequence[Dim | None]) -> Dim | None:
    """The size of `e` from those of its operands."""
    if e.op == "dim" or (e.op == "const" and isinstance(e.value, int)):
        return e.size
    if not args or not _is_arithmetic(e):
        return None
    a, b = args
    if a is None or b is None:
        return None
    return a + b if e.op == "add" else a - b if e.op == "sub" else a * b


@dataclass(frozen=True, slots=True)
class _Motion:
    """What is known of an index: see `slope` (step), `multiple` and `as_dim` (size).

    moves: whether the axis occurs in it at all.
    """

    moves: bool
    step: Dim | None
    multiple: int
    size: Dim | None


def slope(e: Expr, axis: int, block: int) -> Dim | None:
    """The constant step of int64 `e` per step of `axis`, or None when it has none.

    Within `block` consecutive values of the axis whose first is a multiple of `block` (1 promises
    nothing), a floordiv may stand still and a mod may move evenly. The axis counts wherever it
    occurs, also inside the indexes of loads.
    """
    return _motion(e, axis, block).step


def multiple(e: Expr, axis: int, block: int) -> int:
    """An integer that divides `e` whenever `axis` is a multiple of `block` (0 divides only 0)."""
    return _motion(e, axis, block).multiple


def _motion(root: Expr, axis: int, block: int) -> _Motion:
    def visit(e: Expr, args: tuple[_Motion, ...]) -> _Motion:
        if e.op == "axis":
            mine = e.number == axis
            return _Motion(mine, int(mine), block if mine else 1, None)
        moves = any(a.moves for a in args)
        step = _step(e, args, block) if moves else 0
        return _Motion(moves, step, _multiple(e, args), _size(e, [a.size for a in args]))

    return bottom_up(root, visit)


def _step(e: Expr, args: Sequence[_Motion], block: int) -> Dim | None:
    """The step of an operation, some operand of which moves."""
    steps = [a.step for a in args]
    if e.op == "neg":
        return None if steps[0] is None else steps[0] * -1
    if e.op in ("add", "sub", "mul"):
        a, b = steps
        if a is None or b is None:
            return None
        if e.op != "mul":
            return a + b if e.op == "add" else a - b
        fixed, step = (args[1], a) if b == 0 else (args[0], b)
        factor = fixed.size
        return None if factor is None or (a != 0 and b != 0) else factor * step
    if e.op in ("floordiv", "mod"):
        moved, divisor = steps[0], args[1].size
        if not isinstance(moved, int) or not isinstance(divisor, int) or divisor <= 0:
            return None
        room = math.gcd(args[0].multiple, divisor)
        if 0 <= moved * (block - 1) < room and block > 1:
            return 0 if e.op == "floordiv" else moved
    return None


def _multiple(e: Expr, args: Sequence[_Motion]) -> int:
    if e.dtype is not I64:
        return 1
    if e.op in ("const", "dim"):
        return content(e.size)
    if e.op == "neg":
        return args[0].multiple
    if e.op in ("add", "sub"):
        return math.gcd(*(a.multiple for a in args))
    if e.op == "mul":
        return math.prod(a.multiple for a in args)
    return 1


def content(d: Dim) -> int:
    """The greatest integer known to divide a size."""
    if isinstance(d, DimExpr):
        return math.gcd(*(c for _, c in d.terms))
    return abs(d)
