"""float16 and bfloat16 in memory, float32 in registers: conversions without library calls.

Rounding is to nearest, ties to even. Where the ISA has F16C (avx2 and later), and for bfloat16
where the target has AVX512-BF16, LLVM's conversions become instructions; others are integer
arithmetic.
"""

from __future__ import annotations

from typing import Final

from llvmlite import ir

from braze.codegen.cpu.llvm.function import I32, I64
from braze.codegen.cpu.llvm.vector import BF16, F16, F32, I16, Lanes, with_element

ROUNDS_BF16: Final = "avx512bf16"  # the extra that rounds float32 to bfloat16 at once


def f16_to_f32(a: Lanes, raw: ir.Value) -> ir.Value:
    """float16 bits (i16) to float32."""
    kind = with_element(raw.type, F32)
    if a.features.has_f16c:
        return a.b.fpext(a.b.bitcast(raw, with_element(raw.type, F16)), kind)
    wide = a.resize(raw, I32, signed=False)
    size = a.b.and_(wide, a.const(wide, 0x7FFF))
    sign = a.shift_left(a.b.xor(wide, size), 16)
    shifted = a.shift_left(size, 13)
    normal = a.b.add(shifted, a.const(wide, 112 << 23))
    special = a.b.or_(shifted, a.const(wide, 0x7F800000))
    # denormals are integers times 2**-24; no float32 denormal is touched (they may be flushed)
    tiny = a.bits(a.mul(a.b.sitofp(size, kind), a.const(a.from_bits(size), 2.0**-24)))
    magnitude = a.select(a.lt(size, a.const(wide, 0x400)), tiny, normal)
    magnitude = a.select(a.lt(size, a.const(wide, 0x7C00)), magnitude, special)
    return a.from_bits(a.b.or_(magnitude, sign))


def f32_to_f16(a: Lanes, x: ir.Value) -> ir.Value:
    """float32 to float16 bits (i16)."""
    kind = with_element(x.type, I16)
    if a.features.has_f16c:
        return a.b.bitcast(a.b.fptrunc(x, with_element(x.type, F16)), kind)
    bits = a.bits(x)
    size = a.b.and_(bits, a.const(bits, 0x7FFFFFFF))
    sign = a.shift_right(a.b.xor(bits, size), 16)
    odd = a.b.and_(a.shift_right(size, 13), a.const(bits, 1))
    rounded = a.add(a.add(size, a.const(bits, 0xFFF - (112 << 23))), odd)
    normal = a.shift_right(rounded, 13)
    # adding 0.5 lines float16 denormals up with the low bits of a float32 and rounds them
    half = a.const(x, 0.5)
    tiny = a.sub(a.bits(a.add(a.from_bits(size), half)), a.const(bits, 0x3F000000))
    nan = a.lt(a.const(bits, 0x7F800000), size)
    special = a.select(nan, a.const(bits, 0x7E00), a.const(bits, 0x7C00))
    result = a.select(a.lt(size, a.const(bits, 0x38800000)), tiny, normal)
    result = a.select(a.lt(size, a.const(bits, 0x47800000)), result, special)
    return a.b.trunc(a.b.or_(result, sign), kind)


def bf16_to_f32(a: Lanes, raw: ir.Value) -> ir.Value:
    """bfloat16 bits (i16) to float32."""
    return a.from_bits(a.shift_left(a.resize(raw, I32, signed=False), 16))


def f32_to_bf16(a: Lanes, x: ir.Value) -> ir.Value:
    """float32 to bfloat16 bits (i16)."""
    if ROUNDS_BF16 in a.fn.target.extras:
        return a.b.bitcast(a.b.fptrunc(x, with_element(x.type, BF16)), with_element(x.type, I16))
    bits = a.bits(x)
    high = a.shift_right(bits, 16)
    odd = a.b.and_(high, a.const(bits, 1))
    rounded = a.shift_right(a.add(a.add(bits, a.const(bits, 0x7FFF)), odd), 16)
    quiet = a.b.or_(high, a.const(bits, 0x40))
    return a.b.trunc(a.select(a.is_nan(x), quiet, rounded), with_element(x.type, I16))


def narrow_odd(a: Lanes, x: ir.Value) -> ir.Value:
    """float64 to float32, keeping just enough bits that rounding again to float16 is exact.

    The low 32 bits of the significand only matter as "zero or not": they are folded into one bit,
    and what is left fits in a float32 without rounding.
    """
    bits = a.bits(x)
    low = a.b.and_(bits, a.const(bits, 0xFFFFFFFF))
    sticky = a.resize(a.compare("!=", low, a.const(low, 0)), I64, signed=False)
    kept = a.b.and_(bits, a.const(bits, -(1 << 32)))
    odd = a.from_bits(a.b.or_(kept, a.shift_left(sticky, 32)))
    return a.b.fptrunc(a.select(a.is_nan(x), x, odd), with_element(x.type, F32))


def round_f16(a: Lanes, x: ir.Value) -> ir.Value:
    """float32 rounded to the nearest float16, still as float32."""
    return f16_to_f32(a, f32_to_f16(a, x))


def round_bf16(a: Lanes, x: ir.Value) -> ir.Value:
    """float32 rounded to the nearest bfloat16, still as float32."""
    return bf16_to_f32(a, f32_to_bf16(a, x))
