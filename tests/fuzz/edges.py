"""Numbers at the edges of a type, by name, and how they are strewn into data.

Names, not numbers, stand in recipes: NaN is not equal to itself, infinity does not print as Python,
and the largest number depends on the type.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
SAME = "same"  # all elements of a row are its first


def number(name: str, dtype: np.dtype[Any]) -> Any:
    """The number that a name stands for in a type: "nan", "inf", "max", "normal" (the least normal
    one), "denormal" or a literal, with a sign or none; of integers "min", "max" or a literal.
    Literals that the type does not hold are its nearest number that is neither 0 nor infinite."""
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        value = {"min": limits.min, "max": limits.max}.get(name)
        return min(max(int(name) if value is None else value, limits.min), limits.max)
    sign, plain = (-1.0, name[1:]) if name.startswith("-") else (1.0, name)
    limits = ml_dtypes.finfo(dtype)
    top, least = float(limits.max), float(limits.smallest_subnormal)
    named = {"nan": np.nan, "inf": np.inf, "max": top, "normal": float(limits.smallest_normal),
             "denormal": 3 * least}  # fmt: skip
    if plain in named:
        return sign * named[plain]
    value = float(plain)
    return sign * (0.0 if value == 0 else min(max(value, least), top))


def strew(
    a: Array, names: tuple[str, ...], share: float, rows: bool, rng: np.random.Generator
) -> Array:
    """`a` with the named numbers in some places; see `tests.fuzz.case.Fill`."""
    if not a.size:
        return a
    if not a.ndim:
        return strew(a.reshape(1), names, share, False, rng).reshape(())
    count = a.size // a.shape[-1] if rows else a.size
    hit = rng.random(count) < share if share else np.zeros(count, bool)
    hit[rng.integers(count)] = True
    hit = hit.reshape(*a.shape[:-1], 1) if rows else hit.reshape(a.shape)
    if names == (SAME,):
        return np.where(hit, a[..., :1], a)
    values = np.array([number(n, a.dtype) for n in names], a.dtype)
    return np.where(hit, values[rng.integers(len(names), size=hit.shape)], a)
