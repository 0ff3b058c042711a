"""Sizes scaled by fractions in floating point: floor(n * 0.5), ceil(n / 3).

Exporters compute sizes in float32 (Shape, Cast, Mul, Floor, Cast). A `Ratio` stands for such a
scaled size in known contents. Only scalings that float32 computes without crossing an integer are
followed: by few-bit factors (products are exact) and one division by a small integer (the
distance of a fraction to the next integer exceeds the rounding error), for sizes below 2**16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from braze.core import dims
from braze.core.dims import Dim, DimExpr

MAX_FACTOR: Final = 256


@dataclass(frozen=True)
class Ratio:
    """numerator / denominator, not known to be a whole number; denominator > 1."""

    numerator: Dim
    denominator: int

    def floor(self) -> Dim:
        """The largest whole number not above it."""
        return dims.floordiv(self.numerator, self.denominator)

    def ceil(self) -> Dim:
        """The smallest whole number not below it."""
        return dims.ceildiv(self.numerator, self.denominator)


def ratio(numerator: Dim, denominator: int) -> Dim | Ratio:
    """The quotient, as a Dim where it is one."""
    whole = dims.exact_div(numerator, denominator)
    if whole is not None:
        return whole
    if isinstance(numerator, int):
        common = math.gcd(numerator, denominator)
        return Ratio(numerator // common, denominator // common)
    return Ratio(numerator, denominator)


def as_ratio(x: Any) -> tuple[Dim, int] | None:
    """Numerator and denominator of an int, float, size or Ratio; None for anything else."""
    if isinstance(x, Ratio):
        return x.numerator, x.denominator
    if isinstance(x, (int, DimExpr)):
        return x, 1
    if isinstance(x, float) and math.isfinite(x):
        numerator, denominator = x.as_integer_ratio()
        return numerator, denominator
    return None


def _is_small(x: Dim) -> bool:
    return isinstance(x, int) and 0 < abs(x) <= MAX_FACTOR


def _is_power_of_two(x: int) -> bool:
    return x & (x - 1) == 0


def few_bits(x: Any) -> tuple[Dim, int] | None:
    """`as_ratio` of a number that adds to sizes without rounding: a small power of two below it."""
    found = as_ratio(x)
    if found is None or not _is_power_of_two(found[1]) or found[1] > MAX_FACTOR:
        return None
    return found


def scale(op: str, a: Any, b: Any) -> Dim | Ratio | None:
    """a * b ("mul") or a / b ("div") of such numbers; None where float32 might round."""
    x, y = as_ratio(a), as_ratio(b)
    if x is None or y is None or not _is_power_of_two(x[1]):
        return None
    if op == "mul":
        if not _is_power_of_two(y[1]) or max(x[1], y[1]) > MAX_FACTOR:
            return None
        if not (_is_small(x[0]) or _is_small(y[0]) or 0 in (x[0], y[0])):
            return None
        return ratio(x[0] * y[0], x[1] * y[1])
    (p, q), (r, s) = x, y
    if not isinstance(r, int) or not _is_small(r) or s > MAX_FACTOR or q > MAX_FACTOR:
        # an exact quotient of sizes needs no rounding
        return dims.exact_div(p, r) if r != 0 and q == s == 1 else None
    sign = -1 if r < 0 else 1
    return ratio(p * s * sign, q * abs(r))
