"""QuantizeLinear by a constant scale, without a division: the bits of its definition."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.backend import CpuBackend
from braze.codegen.cpu.llvm.requantize import nearest, reciprocal, requantized
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import EFFORTS
from braze.core.dtypes import F32, I8, I16, I32, U8, U16, DType
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, const, load, select, unary
from braze.ops.quant.linear import saturate_array, saturated
from braze.runtime.native import LoadedKernel
from tests.codegen.anchors.harness import host_isas

Array = np.ndarray[Any, Any]
X = load(0, (axis(0),), F32)
# the last two are divisors for which two instructions do not give every quotient
HARD = (7.054290294647217, 2.6690800950746052e-05)
SCALES = (0.5, 1.0, 3.0, 0.0123, 0.1, 1 / 255, 1e-20, 1e20, *HARD)
SPECIAL = (np.inf, -np.inf, np.nan, 0.0, -0.0, 3.4e38, -3.4e38, 1e-38, -1e-38, 1e-45)


def quantize(scale: float, zero: int | None, to: DType) -> Expr:
    q = unary("round", binary("div", X, const(scale, F32)))
    if zero is not None:
        q = binary("add", q, cast(const(zero, to), F32))
    return saturated(q, to, to.bits)


def defined(x: Array, scale: float, zero: int | None, to: DType) -> Array:
    with np.errstate(all="ignore"):
        q = np.rint(x / np.float32(scale)) + np.float32(zero or 0)
        return saturate_array(q, to, to.bits)


def run(expr: Expr, x: Array, isa: str) -> Array:
    nest = LoopNest(x.shape, (), (), (Store(0, (axis(0),), expr),))
    kernel = LoopKernel((TensorSpec(F32, x.shape),), (TensorSpec(expr.dtype, x.shape),), (nest,))
    backend = CpuBackend(CpuTarget(isa, 1))
    code = backend.compile(kernel, backend.tactics(kernel, EFFORTS[0])[0])
    out = np.zeros(x.shape, expr.dtype.numpy)
    assert LoadedKernel(code.own_code.data, code.own_code.entry).run([x, out], [], workers=1) == 0
    return out


def near_ties(scale: float, reach: int) -> Array:
    """Numbers whose quotients lie at and next to the middles between integers, and special ones."""
    rng = np.random.default_rng(1)
    ties = ((rng.integers(-reach, reach, 700) + 0.5) * scale).astype(np.float32)
    inf = np.float32(np.inf)
    both = np.nextafter(ties, inf), np.nextafter(ties, -inf)
    with np.errstate(over="ignore", under="ignore"):
        wide = (rng.standard_normal(300) * 100 * scale).astype(np.float32)
        return np.concatenate([np.array(SPECIAL, np.float32), ties, *both, wide])


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    ("to", "zeros"), [(U8, (None, 0, 3, 255)), (I8, (0, -128, 5)), (U16, (None, 7)), (I16, (-7,))]
)
def test_bits_of_the_definition(scale: float, to: DType, zeros: tuple[int | None, ...]) -> None:
    x = near_ties(float(np.float32(scale)), 300 if to.bits == 8 else 70000)
    for zero in zeros:
        expr = quantize(scale, zero, to)
        assert requantized(expr) is not None
        want = defined(x, scale, zero, to)
        for isa in host_isas() if zero in (None, 5) else host_isas()[:1]:
            np.testing.assert_array_equal(run(expr, x, isa), want, f"{isa} {scale} {zero}")
        wide = cast(expr, I32)  # as a DequantizeLinear reads it
        assert requantized(wide) is not None
        np.testing.assert_array_equal(run(wide, x, host_isas()[0]), want.astype(np.int32))
        for less in (None, zero or 0, 3):  # and its difference from a zero point as a number
            number = wide if less is None else binary("sub", wide, cast(const(less, to), I32))
            got = run(cast(number, F32), x, host_isas()[0])
            assert requantized(cast(number, F32)) is not None
            np.testing.assert_array_equal(got, (want.astype(np.int32) - (less or 0)).astype("f4"))
            assert not np.signbit(got[got == 0]).any()


def test_which_divisors_two_instructions_divide_by() -> None:
    """Against an exact division, at the places that decide and at random ones."""
    rng = np.random.default_rng(2)
    some = np.array([*SCALES[:-2], *np.exp(rng.uniform(-9, 3, 20))], np.float32)
    for divisor in map(float, some):
        parts = reciprocal(divisor)
        assert parts is not None
        high, low = map(Fraction, parts)
        for x in map(Fraction, map(int, rng.integers(1 << 23, 1 << 24, 40))):
            assert nearest(x * high + nearest(x * low)) == nearest(x / Fraction(divisor))
    assert [reciprocal(divisor) for divisor in HARD] == [None, None]
    assert reciprocal(0.25) == (4.0, 0.0)


def test_near_misses() -> None:
    """Other types, scales that are data or out of range, limits the other way round: as written."""
    q = unary("round", binary("div", X, const(0.1, F32)))
    low, high = const(0.0, F32), const(255.0, F32)
    kept = select(binary("lt", low, q), q, low)
    for e in (
        cast(kept, U8),
        saturated(q, I32, 32),
        saturated(unary("floor", q.args[0]), U8, 8),
        saturated(unary("round", binary("div", X, X)), U8, 8),
        saturated(unary("round", binary("div", X, const(-0.1, F32))), U8, 8),
        saturated(unary("round", binary("div", X, const(1e-35, F32))), U8, 8),
        saturated(binary("add", q, const(0.5, F32)), U8, 8),
        saturated(binary("add", q, const(300.0, F32)), U8, 8),
        cast(select(binary("lt", high, kept), high, kept), U8),
    ):
        assert requantized(e) is None
