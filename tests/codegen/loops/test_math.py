"""Accuracy of generated elementary functions against extended precision, on every ISA.

Limits are in units in the last place. float32 functions computed through float64 are rounded
correctly almost always; float64 ones are measured against numpy's 80-bit functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from braze.core.dtypes import F32, F64, DType
from braze.expr.decompose import FUNCTIONS, SINGLE
from braze.expr.scalar import binary, const, unary
from tests.codegen.loops.pointwise import host_isas, operand, run_pointwise

Array = np.ndarray[Any, Any]
NUMPY: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": lambda x: np.array([math.erf(v) for v in x.astype(np.float64)], np.longdouble),
}  # fmt: skip
RANGES = {
    "log": (0.0, 100.0), "acosh": (1.0, 50.0), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0),
    "atanh": (-1.0, 1.0), "sin": (-1e5, 1e5), "cos": (-1e5, 1e5), "tan": (-1e4, 1e4),
    "exp": (-87.0, 88.0),
}  # fmt: skip
ENDS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, 88.72283, 88.723, -87.3,
        -87.4, 709.78, 709.79, -708.3, -708.5, 1e-30, 1e-8, 0.56, 4.0, -6.0]  # fmt: skip


def arguments(name: str, dtype: DType) -> Array:
    rng = np.random.default_rng(len(name))
    low, high = RANGES.get(name, (-12.0, 12.0))
    x = np.concatenate([rng.uniform(low, high, 6000), rng.uniform(-1, 1, 2000), ENDS])
    return x.astype(dtype.numpy)


def units_off(got: Array, exact: Array) -> Array:
    """Distance in units in the last place; NaN and infinities must match exactly."""
    with np.errstate(all="ignore"):
        want = exact.astype(got.dtype)
        tiny = float(np.finfo(got.dtype).smallest_normal)  # type: ignore[type-var]
        flushed = (np.abs(exact) <= tiny) & (np.abs(got) <= tiny)
        same = (want == got) | (np.isnan(want) & np.isnan(got)) | flushed
        off = np.abs(got.astype(np.longdouble) - exact) / np.spacing(np.abs(want))
    return np.where(same, 0.0, np.where(np.isfinite(want), off, np.inf))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_units_in_the_last_place(name: str, dtype: DType) -> None:
    x = arguments(name, dtype)
    with np.errstate(all="ignore"):
        exact = NUMPY[name](x.astype(np.longdouble))
    limit = 3.5 if dtype is F64 else 1.5 if name in SINGLE else 0.51
    for isa in host_isas():
        off = units_off(run_pointwise(unary(name, operand(0, dtype)), [x], [dtype], isa, 8), exact)
        worst = int(np.argmax(off))
        assert off[worst] <= limit, f"{isa}: {off[worst]} at {x[worst]!r}"


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalar_and_vector_agree_to_the_bit(name: str, dtype: DType) -> None:
    x = arguments(name, dtype)
    isa = host_isas()[-1]
    e = unary(name, operand(0, dtype))
    one = run_pointwise(e, [x], [dtype], isa, 1)
    for width in (4, 16):
        np.testing.assert_array_equal(run_pointwise(e, [x], [dtype], isa, width), one)


# exact values of sin, cos and tan, computed with 400 digits
LARGE_ANGLES = {
    1100000.0: (0.3832575514850701, -0.9236415155403469, -0.41494188495940176),
    1000000000.0: (0.5458434494486996, 0.8378871813639024, 0.6514522021451413),
    520000012288.0: (0.1158817789403831, -0.9932630131589579, -0.11666776815924568),
    2300000075776.0: (0.09886125118918872, -0.9951012275207524, -0.09934793411469992),
    100000000376832.0: (0.967148746500151, 0.25421113693775593, 3.8045097400156753),
    4199999931940864.0: (0.042299937089431215, -0.9991049571102278, -0.04233783126427267),
    1.0000000272564224e16: (-0.49657464352605457, 0.8679940226792877, -0.5720945427633807),
    9.999999778196308e21: (-0.7340815352961015, 0.679061337095051, -1.0810239004865465),
    1.0000000150474662e30: (-0.7911634385219837, -0.6116047854178966, 1.2935860826880194),
    3.3999999521443642e38: (-0.24408487440838297, 0.9697538729415026, -0.2516977567390511),
    1000000.3: (-0.057532381215564705, 0.998343640792922, -0.05762783360834584),
    1e16: (0.7796880066069788, -0.6261681981330862, -1.2451734357184063),
    1e22: (-0.8522008497671888, 0.523214785395139, -1.6287782256068988),
    1e300: (-0.8178819121159085, -0.5753861119575491, 1.4214488238747245),
    1.7976931348623157e308: (0.004961954789184062, -0.9999876894265599, -0.004962015874444895),
    5.319372648326541e255: (1.0, -4.687165924254628e-19, -2.133485385753704e18),
}


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("position", [0, 1, 2], ids=["sin", "cos", "tan"])
def test_large_angles(position: int, dtype: DType) -> None:
    """Every finite angle is reduced exactly, beside small ones and in both signs."""
    name = ("sin", "cos", "tan")[position]
    with np.errstate(over="ignore"):
        chosen = [x for x in LARGE_ANGLES if float(dtype.numpy.type(x)) == x]
    exact = np.array([LARGE_ANGLES[x][position] for x in chosen])
    sign = 1.0 if name == "cos" else -1.0
    x = np.array([v for c in chosen for v in (c, -c, 0.25)], dtype.numpy)
    want = np.array([v for e in exact for v in (e, sign * e, getattr(np, name)(0.25))])
    for isa in host_isas():
        for width in (1, 4):
            got = run_pointwise(unary(name, operand(0, dtype)), [x], [dtype], isa, width)
            off = units_off(got, want.astype(np.longdouble))
            assert off.max() <= (3.5 if dtype is F64 else 0.51), f"{isa} {width}: {off.max()}"


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_across_the_change_of_method(name: str) -> None:
    x = np.linspace(2.0**20 - 50, 2.0**20 + 50, 4001)
    exact = NUMPY[name](x.astype(np.longdouble))
    for isa in host_isas():
        got = run_pointwise(unary(name, operand(0, F64)), [x], [F64], isa, 8)
        assert np.abs(got - exact).max() < 4e-16


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_power(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    reach = 30 if dtype is F32 else 300
    a = np.concatenate(
        [
            rng.uniform(0, 50, 3000),
            np.exp(rng.uniform(-reach, reach, 3000)),
            rng.integers(-30, 30, 1000),
        ]
    ).astype(dtype.numpy)
    b = np.concatenate(
        [rng.uniform(-20, 20, 3000), rng.uniform(-2, 2, 3000), rng.integers(-20, 60, 1000)]
    ).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        exact = np.power(a.astype(np.longdouble), b.astype(np.longdouble))
    e = binary("pow", operand(0, dtype), operand(1, dtype))
    for isa in host_isas():
        off = units_off(run_pointwise(e, [a, b], [dtype, dtype], isa, 8), exact)
        assert off.max() <= 2.0, f"{isa}: {off.max()}"


def test_power_of_whole_numbers_is_whole() -> None:
    a, b = (v.ravel().astype(np.float64) for v in np.meshgrid(range(-12, 13), range(15)))
    e = binary("pow", operand(0, F64), operand(1, F64))
    for isa in host_isas():
        got = run_pointwise(
            e, [np.ascontiguousarray(a), np.ascontiguousarray(b)], [F64, F64], isa, 4
        )
        np.testing.assert_array_equal(
            got, [float(int(x) ** int(y)) for x, y in zip(a, b, strict=True)]
        )


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 4.0, 0.5, -1.0, 2.5])
def test_power_with_a_constant(exponent: float) -> None:
    x = np.array([0.0, -0.0, 1.0, -2.0, 3.5, np.inf, -np.inf, np.nan, 1e-20, 7.0], np.float32)
    with np.errstate(all="ignore"):
        # an array of exponents: numpy takes shortcuts for a scalar
        want = np.power(x, np.full_like(x, exponent))
    got = run_pointwise(
        binary("pow", operand(0, F32), const(exponent, F32)), [x], [F32], host_isas()[-1], 4
    )
    np.testing.assert_allclose(got, want, rtol=3e-7, atol=1.2e-38)
    np.testing.assert_array_equal(np.signbit(got[:2]), np.signbit(want[:2]))
