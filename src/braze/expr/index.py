"""Index arithmetic: int64 scalar expressions over loop axes and sizes.

Operands may be expressions or sizes. Sizes combine as sizes (so they fold and print small); the
identities x+0, x*1, x*0, x//1 and x%1 are applied, nothing else: simplification is the job of
`expr.simplify`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import BOOL
from braze.expr.scalar import Expr, axis, binary, const, dim, select

Index = Union[Expr, Dim]


def to_expr(x: Index) -> Expr:
    """`x` as an int64 expression."""
    return x if isinstance(x, Expr) else dim(x)


def size_of(x: Index) -> Dim | None:
    """The size that `x` is, or None when it depends on an axis or a load."""
    if not isinstance(x, Expr):
        return x
    if x.op in ("const", "dim"):
        return x.size
    return None


def iadd(a: Index, b: Index) -> Expr:
    """a + b."""
    x, y = size_of(a), size_of(b)
    if x is not None and y is not None:
        return dim(x + y)
    if x == 0:
        return to_expr(b)
    return to_expr(a) if y == 0 else binary("add", to_expr(a), to_expr(b))


def isub(a: Index, b: Index) -> Expr:
    """a - b."""
    x, y = size_of(a), size_of(b)
    if x is not None and y is not None:
        return dim(x - y)
    return to_expr(a) if y == 0 else binary("sub", to_expr(a), to_expr(b))


def imul(a: Index, b: Index) -> Expr:
    """a * b."""
    x, y = size_of(a), size_of(b)
    if x is not None and y is not None:
        return dim(x * y)
    if x == 0 or y == 0:
        return dim(0)
    if x == 1:
        return to_expr(b)
    return to_expr(a) if y == 1 else binary("mul", to_expr(a), to_expr(b))


def idiv(a: Index, b: Index) -> Expr:
    """floor(a / b)."""
    x, y = size_of(a), size_of(b)
    if x is not None and y is not None and y != 0:
        return dim(dims.floordiv(x, y))
    return to_expr(a) if y == 1 else binary("floordiv", to_expr(a), to_expr(b))


def imod(a: Index, b: Index) -> Expr:
    """a modulo b, with the sign of b."""
    x, y = size_of(a), size_of(b)
    if x is not None and y is not None and y != 0:
        return dim(dims.mod(x, y))
    return dim(0) if y == 1 else binary("mod", to_expr(a), to_expr(b))


def imin(a: Index, b: Index) -> Expr:
    """The smaller of a and b."""
    x, y = size_of(a), size_of(b)
    if x is not None and y is not None:
        return dim(dims.dmin(x, y))
    return binary("min", to_expr(a), to_expr(b))


def imax(a: Index, b: Index) -> Expr:
    """The larger of a and b."""
    x, y = size_of(a), size_of(b)
    if x is not None and y is not None:
        return dim(dims.dmax(x, y))
    return binary("max", to_expr(a), to_expr(b))


def clamp(x: Index, size: Dim) -> Expr:
    """`x` moved into 0 .. size-1."""
    return imax(imin(x, size - 1), 0)


def ilt(a: Index, b: Index) -> Expr:
    """a < b, as bool."""
    return binary("lt", to_expr(a), to_expr(b))


def ile(a: Index, b: Index) -> Expr:
    """a <= b, as bool."""
    return binary("le", to_expr(a), to_expr(b))


def ieq(a: Index, b: Index) -> Expr:
    """a == b, as bool."""
    return binary("eq", to_expr(a), to_expr(b))


def wrap(x: Expr, size: Dim) -> Expr:
    """An ONNX index: negative ones count from the end. Not range-checked."""
    return select(ilt(x, 0), iadd(x, size), x)


def all_of(conditions: Sequence[Expr]) -> Expr | None:
    """The conjunction of bool expressions; None for none."""
    out: Expr | None = None
    for c in conditions:
        out = c if out is None else binary("and", out, c)
    return out


def within(x: Index, low: Index, high: Index) -> Expr:
    """low <= x < high, as bool."""
    out = all_of((ile(low, x), ilt(x, high)))
    assert out is not None
    return out


def true() -> Expr:
    """The bool constant true."""
    return const(True, BOOL)


def axes(count: int, first: int = 0) -> tuple[Expr, ...]:
    """The loop axes first .. first+count-1."""
    return tuple(axis(first + i) for i in range(count))


def ravel(index: Sequence[Index], shape: Sequence[Dim]) -> Expr:
    """The row-major position of `index` in `shape`."""
    out = dim(0)
    for x, size in zip(index, shape, strict=True):
        out = iadd(imul(out, size), x)
    return out


def unravel(position: Expr, shape: Sequence[Dim]) -> tuple[Expr, ...]:
    """The index in `shape` of a row-major position that is in range."""
    out = []
    for i, size in enumerate(shape):
        x = idiv(position, dims.product(shape[i + 1 :]))
        out.append(dim(0) if size == 1 else x if i == 0 else imod(x, size))
    return tuple(out)


def reshape_index(source: Sequence[Dim], target: Sequence[Dim]) -> tuple[Expr, ...]:
    """Per source axis, the index that an element of the reshaped tensor comes from.

    Axes that both shapes share are passed through; only groups of axes that are really merged or
    split are taken apart by division.
    """
    if 0 in source or 0 in target:
        return tuple(dim(0) for _ in source)
    source_products = [dims.product(source[:i]) for i in range(len(source) + 1)]
    target_products = [dims.product(target[:j]) for j in range(len(target) + 1)]
    out: list[Expr] = []
    i0 = j0 = 0
    for i in range(1, len(source) + 1):
        match = [j for j in range(j0, len(target) + 1) if target_products[j] == source_products[i]]
        if i == len(source):
            match = [len(target)]
        if not match:
            continue
        j = match[0]
        position = ravel(axes(j - j0, j0), target[j0:j])
        out.extend(unravel(position, source[i0:i]))
        i0, j0 = i, j
    return tuple(out)


def broadcast_index(shape: Sequence[Dim], rank: int) -> tuple[Expr, ...]:
    """How numpy broadcasting reads a tensor of `shape` at axes 0 .. rank-1 of the result."""
    first = rank - len(shape)
    return tuple(dim(0) if d == 1 else axis(first + i) for i, d in enumerate(shape))
