"""What rules ask of constants: scalars, vectors along one axis, and exact arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from braze.core import elements
from braze.core.dtypes import DType
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import TensorType, Value
from braze.ir.pattern import Const
from braze.ops.base import Array

# Rewritten constants (1/6, sqrt(2), ...) come rounded to half types, so they are compared with
# some slack: a model that means another number is further away than this.
RELATIVE_SLACK = 2e-3
EXACT_SLACK = 1e-6


def near(expected: float, slack: float = EXACT_SLACK) -> Callable[[Array], bool]:
    """A test for one-element constants that are `expected` up to a relative `slack`.

    float16 contents get RELATIVE_SLACK, the rounding of that type. bfloat16 never passes: numpy
    does not count it as a floating-point type.
    """

    def accept(array: Array) -> bool:
        if array.size != 1 or array.dtype.kind != "f":
            return False
        allowed = RELATIVE_SLACK if array.dtype == np.float16 else slack
        value = float(array.reshape(-1)[0])
        return abs(value - expected) <= allowed * abs(expected)

    return accept


def is_scalar(array: Array) -> bool:
    """Whether a constant is one floating-point number."""
    return bool(array.size == 1 and array.dtype.kind == "f")


def number(name: str, expected: float) -> Const:
    """A leaf for a one-element constant near `expected`."""
    return Const(name, near(expected))


def as_float64(graph: GraphEditor | Rewriter, value: Value) -> Array:
    """A constant's content in float64."""
    array = graph.array(value)
    assert array is not None, value
    return array.astype(np.float64)


def stored(array: Array, dtype: DType) -> Array:
    """float64 content rounded once to the storage form of `dtype`."""
    return elements.stored(array, dtype)


def vector_along(value: Value, out: TensorType, axis: int) -> bool:
    """Whether a broadcast operand of `out` varies along `axis` at most."""
    shift = out.rank - value.type.rank
    if shift < 0:
        return False
    return all(d == 1 or i + shift == axis for i, d in enumerate(value.shape))


def keeps_type(value: Value, result: TensorType) -> bool:
    """Whether an operand broadcasts into `result` without enlarging it (rank or size)."""
    if value.dtype != result.dtype or value.type.rank > result.rank:
        return False
    tail = result.shape[result.rank - value.type.rank :]
    return all(d in (1, n) for d, n in zip(value.shape, tail, strict=True))
