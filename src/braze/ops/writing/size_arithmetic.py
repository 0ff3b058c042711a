"""Arithmetic on known contents: object arrays whose elements are ints, floats or symbolic sizes.

Each function gives None where the answer depends on the values of the symbols. `bounds` tells what
the profiles allow a size to be (InferContext.range_of); that decides comparisons such as `n == -1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from braze.core import dims
from braze.core.dims import Dim, DimExpr, Interval
from braze.core.dtypes import DType
from braze.ops.base import Array
from braze.ops.writing.size_ratio import Ratio, scale

# integers up to here are exact in a float type (symbolic sizes are taken to stay below 2**24)
EXACT_FLOAT: Final = {"bfloat16": 2**8, "float16": 2**11, "float32": 2**24, "float64": 2**53}


Bounds = Callable[[Dim], Interval]


def as_dim(x: Any) -> Dim | None:
    """`x` as a Dim when it is integral, else None."""
    if isinstance(x, DimExpr):
        return x
    if isinstance(x, (bool, int, np.integer)):
        return int(x)
    if isinstance(x, float) and math.isfinite(x) and x == int(x):
        return None if x == 0 and math.copysign(1, x) < 0 else int(x)
    return None


def wrap(x: Any, dtype: DType) -> Any:
    """An int reduced to the range of an integer type; symbolic sizes and other types unchanged."""
    if not dtype.is_int or not isinstance(x, int):
        return x
    low = x & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.is_signed and low >> (dtype.bits - 1) else low


def _divide(a: Dim, b: Dim, bounds: Bounds) -> Dim | None:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            return 0
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    exact = dims.exact_div(a, b)
    if exact is not None and bounds(b)[0] > 0:
        return exact
    if bounds(a)[0] >= 0 and bounds(b)[0] > 0:
        return dims.floordiv(a, b)
    return None


def _modulo(a: Dim, b: Dim, bounds: Bounds) -> Dim | None:
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else 0
    return dims.mod(a, b) if bounds(b)[0] > 0 else None


def _remainder(a: Dim, b: Dim, bounds: Bounds) -> Dim | None:
    q = _divide(a, b, bounds)
    return 0 if b == 0 else None if q is None else a - q * b


def _power(a: Dim, b: Dim, bounds: Bounds) -> Dim | None:
    if not isinstance(b, int) or not 0 <= b <= 8:
        return None
    return dims.product([a] * b)


def larger(a: Dim, b: Dim, bounds: Bounds) -> Dim:
    """max(a, b), decided by the bounds of the symbols where they suffice."""
    low, high = bounds(a - b)
    return a if low >= 0 else b if high <= 0 else dims.dmax(a, b)


def smaller(a: Dim, b: Dim, bounds: Bounds) -> Dim:
    """min(a, b), decided by the bounds of the symbols where they suffice."""
    low, high = bounds(a - b)
    return b if low >= 0 else a if high <= 0 else dims.dmin(a, b)


def equal(a: Dim, b: Dim, bounds: Bounds) -> bool | None:
    """a == b, or None when it depends on the symbols."""
    if a == b:
        return True
    low, high = bounds(a - b)
    return False if low > 0 or high < 0 else None


def less(a: Dim, b: Dim, bounds: Bounds) -> bool | None:
    """a < b, or None when it depends on the symbols."""
    low, high = bounds(a - b)
    return True if high < 0 else False if low >= 0 else None


def less_equal(a: Dim, b: Dim, bounds: Bounds) -> bool | None:
    """a <= b, or None when it depends on the symbols."""
    low, high = bounds(a - b)
    return True if high <= 0 else False if low > 0 else None


SIZE_BINARY: Final[Mapping[str, Callable[[Dim, Dim, Bounds], Any]]] = {
    "add": lambda a, b, _: a + b,
    "sub": lambda a, b, _: a - b,
    "mul": lambda a, b, _: a * b,
    "div": _divide,
    "mod": _modulo,
    "fmod": _remainder,
    "pow": _power,
    "max": larger,
    "min": smaller,
    "eq": equal,
    "lt": less,
    "le": less_equal,
}
LOGICAL: Final[Mapping[str, Callable[[bool, bool], bool]]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
}
SIZE_UNARY: Final[Mapping[str, Callable[[Dim, Bounds], Any]]] = {
    "neg": lambda a, _: a * -1,
    "abs": lambda a, bounds: _absolute(a, bounds(a)),
    "sign": lambda a, bounds: _sign(bounds(a)),
    "floor": lambda a, _: a,
    "ceil": lambda a, _: a,
    "round": lambda a, _: a,
}


def _absolute(a: Dim, within: Interval) -> Dim | None:
    return a if within[0] >= 0 else a * -1 if within[1] <= 0 else None


def _sign(within: Interval) -> int | None:
    low, high = within
    return 1 if low > 0 else -1 if high < 0 else 0 if low == high == 0 else None


def known_binary(
    op: str, a: Array | None, b: Array | None, dtype: DType, bounds: Bounds
) -> Array | None:
    """Elementwise `op` of two contents under broadcasting; `dtype` is the operands' type."""
    if a is None or b is None:
        return None
    out = np.empty(np.broadcast_shapes(a.shape, b.shape), dtype=object)
    left, right = np.broadcast_to(a, out.shape), np.broadcast_to(b, out.shape)
    for i in np.ndindex(out.shape):
        value = _known_pair(op, left[i], right[i], dtype, bounds)
        if value is None:
            return None
        out[i] = value
    return out


def _known_pair(op: str, a: Any, b: Any, dtype: DType, bounds: Bounds) -> Any:
    if dtype.name in ("float32", "float64") and op in ("mul", "div"):
        result = scale(op, a, b)
        return result if isinstance(result, Ratio) else exact_in(result, dtype)
    if dtype.kind == "b":
        if op in LOGICAL:
            return LOGICAL[op](bool(a), bool(b))
        return bool(a) == bool(b) if op == "eq" else None
    x, y = as_dim(a), as_dim(b)
    if x is None or y is None or op not in SIZE_BINARY or (dtype.is_float and op == "div"):
        return None
    result = SIZE_BINARY[op](x, y, bounds)
    return result if isinstance(result, bool) else exact_in(result, dtype)


def exact_in(x: Any, dtype: DType) -> Any:
    """`x` as `dtype` holds it: wrapped integers; None for floats that would be rounded and sizes
    that may wrap."""
    if isinstance(x, DimExpr) and dims.may_wrap(x):
        return None
    if dtype.is_float:
        if isinstance(x, DimExpr):
            return x if dtype.bits >= 32 else None
        return x if x is not None and abs(x) <= EXACT_FLOAT[dtype.name] else None
    return wrap(x, dtype)


def known_unary(op: str, a: Array | None, dtype: DType, bounds: Bounds) -> Array | None:
    """Elementwise `op` of one content."""
    if a is None:
        return None
    out = np.empty(a.shape, dtype=object)
    for i in np.ndindex(out.shape):
        value = _known_one(op, a[i], dtype, bounds)
        if value is None:
            return None
        out[i] = value
    return out


def _known_one(op: str, a: Any, dtype: DType, bounds: Bounds) -> Any:
    if dtype.kind == "b":
        return not bool(a) if op == "not" else None
    if isinstance(a, Ratio):
        whole = {"floor": a.floor, "ceil": a.ceil}.get(op)
        return None if whole is None else whole()
    x = as_dim(a)
    if x is None or op not in SIZE_UNARY:
        return None
    return exact_in(SIZE_UNARY[op](x, bounds), dtype)
