"""Scalar expressions over numpy arrays: the definition of what every operation means.

Values are numpy arrays of the expression's dtype, broadcast against each other; bfloat16 values
are float32 arrays that hold bfloat16 numbers (braze.core.elements).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from braze.core.dims import evaluate as evaluate_dim
from braze.core.dtypes import BF16, BOOL, F16, DType
from braze.core.elements import number_type, numbers, rounded, stored
from braze.core.errors import ExecutionError
from braze.expr.guards import depends_on_data, load_guards
from braze.expr.scalar import Expr

Array = np.ndarray[Any, Any]


def evaluate(
    expr: Expr,
    axes: Mapping[int, Array],
    tensors: Sequence[Array],
    env: Mapping[str, int],
    *,
    holes: Sequence[Array] = (),
    reds: Sequence[Array] = (),
) -> Array:
    """The value of `expr` for every point of the grid that `axes` span.

    axes: int64 arrays per axis index that broadcast to the grid; tensors: stored arrays per slot;
    env: values of symbols. Raises ExecutionError for a needed load outside its tensor. The result
    broadcasts to the grid.
    """
    return evaluate_all([expr], axes, tensors, env, holes=holes, reds=reds)[0]


def evaluate_all(
    exprs: Sequence[Expr],
    axes: Mapping[int, Array],
    tensors: Sequence[Array],
    env: Mapping[str, int],
    *,
    holes: Sequence[Array] = (),
    reds: Sequence[Array] = (),
) -> list[Array]:
    """`evaluate` of several expressions that share work."""
    guards = load_guards(exprs)
    points = all(a.size for a in axes.values())  # a sum of nothing loads nothing
    done: dict[Expr, Array] = {}

    def leaf(e: Expr) -> Array:
        if e.op == "const":
            return np.asarray(e.value, number_type(e.dtype))
        if e.op == "dim":
            return np.asarray(evaluate_dim(e.size, env), np.int64)
        if e.op == "axis":
            return np.asarray(axes[e.number])
        return np.asarray(holes[e.number] if e.op == "hole" else reds[e.number])

    def load(e: Expr) -> Array:
        tensor = tensors[e.slot]
        guard = guards[e]
        needed = np.asarray(True) if guard is None else visit(guard)
        index = [visit(a) for a in e.args]
        inside = needed
        for i, n in zip(index, tensor.shape, strict=True):
            inside = inside & (i >= 0) & (i < n)
        if points and np.any(needed & ~inside):
            kind = "data-dependent" if any(map(depends_on_data, e.args)) else "computed"
            raise ExecutionError(
                f"a {kind} index into slot {e.slot} of shape {tensor.shape} is out of range; "
                "check the indices the model is given"
            )
        if tensor.size == 0:
            return np.zeros(np.broadcast_shapes(inside.shape), number_type(e.dtype))
        safe = tuple(np.where(inside, i, 0) for i in index)
        values = numbers(tensor[safe], e.dtype)
        return np.where(inside, values, np.zeros((), values.dtype))

    def visit(root: Expr) -> Array:
        stack = [root]
        while stack:
            e = stack[-1]
            if e in done:
                stack.pop()
                continue
            todo = [a for a in e.args if a not in done]
            if todo:
                stack.extend(todo)
                continue
            if e.op == "load":
                done[e] = load(e)
            else:
                args = [done[a] for a in e.args]
                done[e] = TABLE[e.op](e, *args) if e.args else leaf(e)
            stack.pop()
        return done[root]

    with np.errstate(all="ignore"):
        return [visit(e) for e in exprs]


def convert(value: Array, source: DType, target: DType) -> Array:
    """The `cast` operation on values."""
    if target is BOOL:
        return np.asarray(value != 0)
    if target is BF16:
        return rounded(np.asarray(value, np.float32), BF16)
    if source.is_float and target.is_int:
        whole = np.trunc(value.astype(np.float64))
        worst = -(2 ** (target.bits - 1)) if target.is_signed else 0
        inside = (whole >= float(worst)) & (whole < 2.0 ** (target.bits - target.is_signed))
        return np.where(inside, np.where(inside, whole, 0).astype(target.numpy), worst).astype(
            target.numpy
        )
    return np.asarray(value).astype(target.numpy)


def _bitcast(e: Expr, x: Array) -> Array:
    bits = np.ascontiguousarray(stored(x, e.args[0].dtype)).reshape(np.shape(x))
    return numbers(bits.view(e.dtype.numpy), e.dtype)


def _typed(function: Callable[..., Any]) -> Callable[..., Array]:
    """Apply `function` and keep the expression's dtype (rounding bfloat16)."""

    def apply(e: Expr, *args: Array) -> Array:
        result = np.asarray(function(*args))
        if e.dtype is BF16:
            return convert(result, BF16, BF16)
        return result.astype(number_type(e.dtype), copy=False)

    return apply


def _plain(function: Callable[..., Any]) -> Callable[..., Array]:
    """Apply `function`, whose result already has the right type."""

    def apply(e: Expr, *args: Array) -> Array:
        return np.asarray(function(*args))

    return apply


def _wide(function: Callable[..., Any]) -> Callable[..., Array]:
    """Like `_typed`, for functions that float16 computes in float32."""

    def apply(e: Expr, *args: Array) -> Array:
        wide = [a.astype(np.float32) if e.dtype is F16 else a for a in args]
        return _typed(function)(e, *wide)

    return apply


def erf(x: Array) -> Array:
    """The error function, computed in float64."""
    flat = [math.erf(v) for v in np.asarray(x, np.float64).ravel().tolist()]
    return np.asarray(flat, np.float64).reshape(np.shape(x))


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    quotient = np.floor_divide(a, safe)
    up = (np.remainder(a, safe) != 0) & ((a < 0) != (safe < 0))
    return np.where(zero, 0, quotient + up)


def _guard_zero(function: Callable[..., Any]) -> Callable[[Array, Array], Array]:
    def apply(a: Array, b: Array) -> Array:
        if a.dtype.kind == "f":
            return np.asarray(function(a, b))
        zero = b == 0
        return np.where(zero, 0, function(a, np.where(zero, b.dtype.type(1), b)))

    return apply


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(np.power(a, b))
    positive = np.power(a, np.where(b < 0, b.dtype.type(0), b))
    odd = (b & 1) == 1
    unit = np.where(a == 1, 1, np.where(a + 1 == 0, np.where(odd, -1, 1), 0))
    return np.where(b < 0, unit.astype(a.dtype), positive)


def _shift_left(a: Array, b: Array) -> Array:
    bits = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < bits)
    return np.where(inside, np.left_shift(a, np.where(inside, b, b.dtype.type(0))), 0)


def _shift_right(a: Array, b: Array) -> Array:
    bits = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < bits)
    moved = np.right_shift(a, np.where(inside, b, b.dtype.type(bits - 1)))
    return np.where(inside | (a.dtype.kind == "i"), moved, 0)


def _invert(x: Array) -> Array:
    return np.asarray(np.invert(x))


def _abs(x: Array) -> Array:
    return x if x.dtype.kind in "bu" else np.asarray(np.abs(x))


TABLE: Mapping[str, Callable[..., Array]] = {
    "neg": _typed(np.negative), "abs": _typed(_abs), "sign": _typed(np.sign),
    "floor": _typed(np.floor), "ceil": _typed(np.ceil), "round": _typed(np.rint),
    "trunc": _typed(np.trunc), "sqrt": _wide(np.sqrt), "exp": _wide(np.exp), "log": _wide(np.log),
    "sin": _wide(np.sin), "cos": _wide(np.cos), "tan": _wide(np.tan), "asin": _wide(np.arcsin),
    "acos": _wide(np.arccos), "atan": _wide(np.arctan), "sinh": _wide(np.sinh),
    "cosh": _wide(np.cosh), "tanh": _wide(np.tanh), "asinh": _wide(np.arcsinh),
    "acosh": _wide(np.arccosh), "atanh": _wide(np.arctanh), "erf": _wide(erf),
    "not": _typed(_invert), "isnan": _plain(np.isnan), "isinf": _plain(np.isinf),
    "add": _typed(np.add), "sub": _typed(np.subtract), "mul": _typed(np.multiply),
    "div": _typed(_divide), "floordiv": _typed(_guard_zero(np.floor_divide)),
    "mod": _typed(_guard_zero(np.remainder)), "fmod": _typed(_guard_zero(np.fmod)),
    "pow": _wide(_power), "min": _typed(np.minimum), "max": _typed(np.maximum),
    "and": _typed(np.bitwise_and), "or": _typed(np.bitwise_or), "xor": _typed(np.bitwise_xor),
    "shl": _typed(_shift_left), "shr": _typed(_shift_right),
    "lt": _plain(np.less), "le": _plain(np.less_equal), "eq": _plain(np.equal),
    "cast": lambda e, x: convert(x, e.args[0].dtype, e.dtype), "bitcast": _bitcast,
    "select": _plain(np.where), "given": lambda _, x: x,
}  # fmt: skip
