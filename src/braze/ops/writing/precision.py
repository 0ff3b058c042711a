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


def round_to_bfloat16(x: Array) -> Array:
    """float64 or float32 values rounded to the nearest bfloat16, ties to even, as float32.

    A float64 is first rounded to float32 toward odd, so that it is rounded only once in effect.
    """
    if x.dtype == np.float64:
        with np.errstate(all="ignore"):
            single = x.astype(np.float32)
            back = single.astype(np.float64)
        bits = single.view(np.uint32).copy()
        inexact = np.isfinite(x) & np.isfinite(single) & (back != x)
        overshoot = inexact & (np.abs(back) > np.abs(x))
        bits = np.where(overshoot, bits - np.uint32(1), bits)
        bits = np.where(inexact, bits | np.uint32(1), bits).astype(np.uint32)
        x = bits.view(np.float32)
    x = np.ascontiguousarray(x, dtype=np.float32).reshape(x.shape)
    bits = x.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.where(np.isnan(x), bits | np.uint32(0x00400000), rounded)
    kept = (rounded & np.uint32(0xFFFF0000)).astype(np.uint32)
    return np.asarray(kept.view(np.float32).reshape(x.shape))


def from_bfloat16(bits: Array) -> Array:
    """The float32 values of bfloat16 bit patterns (uint16)."""
    wide = bits.astype(np.uint32) << np.uint32(16)
    return np.asarray(np.ascontiguousarray(wide).view(np.float32).reshape(bits.shape))


def to_bfloat16(x: Array) -> Array:
    """Bit patterns (uint16) of `x` rounded to bfloat16."""
    rounded = np.ascontiguousarray(round_to_bfloat16(x))
    bits = rounded.view(np.uint32) >> np.uint32(16)
    return np.asarray(bits.astype(np.uint16).reshape(x.shape))


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
