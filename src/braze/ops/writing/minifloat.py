"""Conversion of 8-bit and 4-bit floats by integer arithmetic, as expressions.

No kernel computes in these types: a load gives the code of an element, and these expressions turn
codes into float32 numbers (exactly) and numbers into codes (rounded once, to nearest even). The
formats and what becomes of NaN, infinities and numbers out of range are those of the ONNX Cast
operator, https://onnx.ai/onnx/technical/float8.html; `encode` is tested against ml_dtypes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from braze.core.dtypes import (
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0,
    F32,
    F64,
    U8,
    U32,
    DType,
)
from braze.expr.scalar import Expr, binary, cast, const, select, unary


@dataclass(frozen=True, slots=True)
class Format:
    """Bits of the mantissa, bias of the exponent, and the codes (without sign) of special values.

    largest: the largest finite number; overflow: what is above it where nothing saturates; nan: a
    NaN. zero_sign: whether there is a negative zero; where there is none its code is the only NaN.
    """

    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int
    zero_sign: bool


FORMATS: Final[Mapping[DType, Format]] = {
    F8E4M3FN: Format(3, 7, 0x7E, 0x7F, 0x7F, True),
    F8E4M3FNUZ: Format(3, 8, 0x7F, 0x80, 0x80, False),
    F8E5M2: Format(2, 15, 0x7B, 0x7C, 0x7E, True),
    F8E5M2FNUZ: Format(2, 16, 0x7F, 0x80, 0x80, False),
}
_F32_MANTISSA: Final = 23
_F32_BIAS: Final = 127
_F32_NAN: Final = 0x7FC00000
_F32_INF: Final = 0x7F800000


def decode(x: Expr) -> Expr:
    """The float32 number of an element of one of FORMATS, or of float8_e8m0fnu."""
    code = cast(Expr("bitcast", (x,), U8), U32)
    if x.dtype is F8E8M0:
        # a power of two; code 0 is the denormal 2^-127
        power = _select(code, 0, _u32(1 << (_F32_MANTISSA - 1)), _left(code, _F32_MANTISSA))
        return _float(_select(code, 0xFF, _u32(_F32_NAN), power))
    f = FORMATS[x.dtype]
    size = binary("and", code, _u32(0x7F))
    sign = _left(binary("and", code, _u32(0x80)), 24)
    shifted = _left(size, _F32_MANTISSA - f.mantissa)
    normal = binary("add", shifted, _u32((_F32_BIAS - f.bias) << _F32_MANTISSA))
    scale = const(2.0 ** (1 - f.bias - f.mantissa), F32)
    small = Expr("bitcast", (binary("mul", cast(size, F32), scale),), U32)
    number = select(binary("lt", size, _u32(1 << f.mantissa)), small, normal)
    number = binary("or", number, sign)
    if not f.zero_sign:
        return _float(_select(code, f.nan, _u32(_F32_NAN), number))
    if f.overflow != f.nan:
        number = _select(size, f.overflow, binary("or", _u32(_F32_INF), sign), number)
    last = f.largest if f.overflow == f.nan else f.overflow
    return _float(select(binary("lt", _u32(last), size), _u32(_F32_NAN), number))


def encode(x: Expr, to: DType, saturate: bool) -> Expr:
    """`x` (float32 or float64) as an element of `to`, one of FORMATS.

    saturate: numbers out of range and infinities become the largest number of their sign; else
    they become infinity, or NaN in types without one.
    """
    f = FORMATS[to]
    bits = Expr("bitcast", (_to_odd(x) if x.dtype is F64 else x,), U32)
    sign = binary("shr", binary("and", bits, _u32(0x80000000)), _u32(24))
    size = binary("and", bits, _u32(0x7FFFFFFF))
    drop = _F32_MANTISSA - f.mantissa
    odd = binary("and", binary("shr", size, _u32(drop)), _u32(1))
    up = binary("add", binary("add", size, _u32((1 << (drop - 1)) - 1)), odd)
    # a carry out of the mantissa raises the exponent, as it should
    shift = _u32((_F32_BIAS - f.bias) << f.mantissa)
    normal = binary("sub", binary("shr", up, _u32(drop)), shift)
    steps = binary("mul", _float(size), const(2.0 ** (f.bias - 1 + f.mantissa), F32))
    least = (_F32_BIAS + 1 - f.bias) << _F32_MANTISSA
    is_small = binary("lt", size, _u32(least))
    # select first: a huge number has no meaning as an integer
    steps = select(is_small, steps, const(0.0, F32))
    code = select(is_small, cast(unary("round", steps), U32), normal)
    above = binary("lt", _u32(f.largest), code)
    code = select(above, _u32(f.largest if saturate else f.overflow), code)
    code = select(binary("lt", _u32(_F32_INF), size), _u32(f.nan), code)
    if not f.zero_sign:
        sign = select(binary("eq", binary("and", code, _u32(0x7F)), _u32(0)), _u32(0), sign)
    return Expr("bitcast", (cast(binary("or", code, sign), U8),), to)


def _to_odd(x: Expr) -> Expr:
    """float64 as float32, inexact results with an odd last bit, so that rounding again is exact."""
    single = cast(x, F32)
    bits = Expr("bitcast", (single,), U32)
    back, size = unary("abs", cast(single, F64)), unary("abs", x)
    exact = binary("eq", back, size)
    # infinity is far above what any of the formats holds, and NaN equals nothing
    exact = binary("or", exact, binary("le", const(2.0**100, F64), size))
    exact = binary("or", exact, unary("isnan", x))
    less = binary("sub", bits, select(binary("lt", size, back), _u32(1), _u32(0)))
    return _float(select(exact, bits, binary("or", less, _u32(1))))


def _u32(value: int) -> Expr:
    return const(value, U32)


def _left(x: Expr, bits: int) -> Expr:
    return binary("shl", x, _u32(bits))


def _float(bits: Expr) -> Expr:
    return Expr("bitcast", (bits,), F32)


def _select(x: Expr, code: int, then: Expr, otherwise: Expr) -> Expr:
    return select(binary("eq", x, _u32(code)), then, otherwise)
