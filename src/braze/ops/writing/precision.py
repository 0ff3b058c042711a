"""Half precision rules shared by all ops: compute in float32, round the result.

`compute_type` names the type an op computes in; `widen` and `narrow` do it for numpy arrays,
`pointwise` for scalar expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from braze.core.dtypes import BF16, F16, F32, DType
from braze.core.errors import DTypeError
from braze.expr import scalar
from braze.expr.scalar import Expr
from braze.ir.graph import TensorType
from braze.ops.base import Array
from braze.ops.lowering import Pointwise


def compute_type(dtype: DType) -> DType:
    """float32 for float16 and bfloat16, every other type itself."""
    return F32 if dtype in (F16, BF16) else dtype


def widen(x: Array) -> Array:
    """`x` in its compute type (bfloat16 reaches references as float32 already)."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def narrow(x: Array, like: Array) -> Array:
    """`x` rounded to the element type of `like`; always an array, never a numpy scalar."""
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(like.dtype, copy=False)


def widened(x: Expr) -> Expr:
    """`x` in its compute type."""
    return scalar.cast(x, compute_type(x.dtype))


def holes(inputs: Sequence[TensorType | None]) -> list[Expr]:
    """The operands of a pointwise op in their compute types (absent ones are left out)."""
    return [widened(scalar.hole(i, t.dtype)) for i, t in enumerate(inputs) if t is not None]


def pointwise(
    inputs: Sequence[TensorType | None], dtype: DType, build: Callable[..., Expr]
) -> Pointwise:
    """The Pointwise of `build(*operands)`, computed wide and rounded to `dtype`."""
    return Pointwise(scalar.cast(build(*holes(inputs)), dtype))


def present(inputs: Sequence[TensorType | None], count: int, where: str) -> list[TensorType]:
    """The first `count` input types; raises DTypeError when one is missing."""
    found = [t for t in inputs[:count] if t is not None]
    if len(found) < count or len(inputs) < count:
        raise DTypeError(f"{where}: {count} inputs are needed but {len(found)} are given")
    return found


def same_dtype(types: Sequence[TensorType], where: str) -> DType:
    """The common element type; raises DTypeError naming all of them when they differ."""
    names = sorted({t.dtype.name for t in types})
    if len(names) > 1:
        raise DTypeError(
            f"{where}: operands have element types {' and '.join(names)}; insert a Cast"
        )
    return types[0].dtype


def require_float(dtype: DType, where: str) -> None:
    """Raise DTypeError unless `dtype` is a floating-point type."""
    if not dtype.is_float:
        raise DTypeError(f"{where}: element type {dtype} is not floating point; insert a Cast")
