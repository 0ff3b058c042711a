"""Which comparisons and selections are limits."""

from __future__ import annotations

import math

import pytest

from braze.core.dtypes import F32
from braze.expr.limits import limit
from braze.expr.scalar import axis, binary, const, load, select


@pytest.mark.parametrize("number", [0.0, 0.5, math.inf, math.nan])
def test_a_number_limits_what_it_is_compared_with_unless_it_is_nan(number: float) -> None:
    """select(c < x, x, c) and select(x < c, x, c); the last with NaN is NaN whatever x is."""
    x, c = load(0, (axis(0),), F32), const(number, F32)
    found = [limit(select(binary("lt", *pair), x, c)) for pair in ((c, x), (x, c))]
    assert found == ([None, None] if math.isnan(number) else ["max", "min"])
