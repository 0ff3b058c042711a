"""Elementary functions on lanes: float32 functions without their own form go through float64."""

from __future__ import annotations

from typing import Any

from braze.codegen.cpu.llvm.vector import F64, Lanes, element_of, with_element
from braze.expr.decompose import DOUBLE, SINGLE
from braze.expr.decompose_pairs import PAIRS
from braze.expr.scalar import Expr

V = Any  # an LLVM value


def elementary(a: Lanes, name: str, x: V) -> V:
    """The function called `name` (a key of DOUBLE) of float32 or float64 lanes."""
    if element_of(x.type) == F64:
        return DOUBLE[name](a, x)
    if name in SINGLE:
        return SINGLE[name](a, x)
    wide = a.b.fpext(x, with_element(x.type, F64))
    return a.b.fptrunc(DOUBLE[name](a, wide), x.type)


def power(a: Lanes, e: Expr, x: V, y: V) -> V:
    """x ** y of float lanes; small constant exponents are products."""
    exponent = e.args[1]
    if exponent.op == "const":
        special = _constant_power(a, x, float(exponent.value))
        if special is not None:
            return special
    return of_two(a, "pow", x, y)


def of_two(a: Lanes, name: str, x: V, y: V) -> V:
    """The function called `name` (a key of PAIRS) of float32 or float64 lanes."""
    x, y = a.match(x, y)
    single, double = PAIRS[name]
    if element_of(x.type) == F64:
        return double(a, x, y)
    wide = with_element(x.type, F64)
    return a.b.fptrunc(single(a, a.b.fpext(x, wide), a.b.fpext(y, wide)), x.type)


def _constant_power(a: Lanes, x: V, exponent: float) -> V | None:
    one = a.const(x, 1.0)
    if exponent == 0:
        return one
    if exponent == 1:
        return x
    if exponent == 0.5:
        # numpy: (-0) ** 0.5 is +0 and (-inf) ** 0.5 is inf
        root = a.abs(a.sqrt(a.add(x, a.const(x, 0.0))))
        minus = a.const(x, float("-inf"))
        return a.select(a.compare("==", x, minus), a.const(x, float("inf")), root)
    square = a.mul(x, x)
    products = {2.0: square, -1.0: None, 3.0: None, 4.0: None}
    if exponent not in products:
        return None
    if exponent == 2:
        return square
    if exponent == -1:
        return a.div(one, x)
    return a.mul(square, x) if exponent == 3 else a.mul(square, square)


def remainder(a: Lanes, x: V, y: V) -> V:
    """fmod(x, y), exact: subtract from |x| the largest |y| * 2**k that fits, until none does.

    Every subtraction is exact (the two numbers are within a factor of two), so the result is too.
    """
    double = element_of(x.type) == F64
    digits = 52 if double else 23
    size, divisor = a.abs(x), a.abs(y)
    by_zero = counts_as_zero(a, y)
    divisor = a.select(by_zero, a.const(y, float("inf")), divisor)
    divisor_bits = a.bits(divisor)
    exponent = a.shift_right(divisor_bits, digits)
    inf = a.const(x, float("inf"))
    start = a.select(a.lt(size, inf), size, a.const(x, 0.0))

    def more(values: list[V]) -> V:
        return a.any_lane(a.compare("<=", divisor, values[0]))

    def step(values: list[V]) -> list[V]:
        rest = values[0]
        apart = a.sub(a.shift_right(a.bits(rest), digits), exponent)
        multiple = a.from_bits(a.add(divisor_bits, a.shift_left(apart, digits)))
        halved = a.mul(multiple, a.const(x, 0.5))
        multiple = a.select(a.lt(rest, multiple), halved, multiple)
        busy = a.compare("<=", divisor, rest)
        return [a.select(busy, a.sub(rest, multiple), rest)]

    # a NaN divisor ends the loop at once; with a zero one nothing may be subtracted
    result = a.copysign(a.fn.while_loop([start], more, step)[0], x)
    broken = a.either(a.is_nan(a.add(x, y)), a.compare("==", size, inf))
    return a.select(a.either(broken, by_zero), a.const(x, float("nan")), result)


def counts_as_zero(a: Lanes, x: V) -> V:
    """Whether x is 0 or a denormal: a comparison with 0 is another one for a constant, whose
    denormals the compiler knows from 0, than for the processor, which takes them for 0."""
    least = 2.0**-1022 if element_of(x.type) == F64 else 2.0**-126
    return a.lt(a.abs(x), a.const(x, least))
