"""numpy meaning of the scalar operations that Unary and Binary name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from braze.ops.base import Array


def erf(x: Array) -> Array:
    """The error function, computed in float64 and rounded to the type of `x`."""
    flat = [math.erf(v) for v in np.asarray(x, np.float64).reshape(-1).tolist()]
    return np.asarray(flat, np.float64).reshape(np.shape(x)).astype(np.asarray(x).dtype)


def truncated_divide(a: Array, b: Array) -> Array:
    """a / b: IEEE for floats; toward zero for integers, where division by zero gives 0."""
    if a.dtype.kind == "f":
        return np.asarray(np.divide(a, b))
    divisor = np.where(b == 0, np.ones_like(b), b)
    q = np.floor_divide(a, divisor)
    rounded_down = (a - q * divisor != 0) & ((a < 0) != (divisor < 0))
    return np.where(b == 0, np.zeros_like(q), q + rounded_down.astype(q.dtype))


def integer_or_float(function: Callable[[Any, Any], Any]) -> Callable[[Array, Array], Array]:
    """`function`, with integer results by a zero divisor set to 0."""

    def apply(a: Array, b: Array) -> Array:
        if a.dtype.kind == "f":
            return np.asarray(function(a, b))
        divisor = np.where(b == 0, np.ones_like(b), b)
        return np.where(b == 0, np.zeros_like(a), function(a, divisor))

    return apply


def power(a: Array, b: Array) -> Array:
    """a ** b; integers wrap, negative integer exponents cut the fraction off (0**-1 is 0)."""
    if a.dtype.kind != "i":
        return np.asarray(np.power(a, b))
    result = np.power(a, np.maximum(b, 0))
    sign = np.where(b & 1, a, a * a)
    inverse = np.where(np.abs(a) == 1, sign, np.zeros_like(a))
    return np.where(b < 0, inverse, result)


def sign(x: Array) -> Array:
    """-1, 0 or 1; NaN stays NaN."""
    return np.asarray(np.sign(x))


UNARY_NUMPY: Final[Mapping[str, Callable[[Any], Any]]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": erf,
    "reciprocal": lambda x: np.asarray(1, x.dtype) / x,
    "not": np.invert,
}
BINARY_NUMPY: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": truncated_divide,
    "floordiv": integer_or_float(np.floor_divide),
    "mod": integer_or_float(np.mod),
    "fmod": integer_or_float(np.fmod),
    "pow": power,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
