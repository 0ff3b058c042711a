"""The instruction under the register tile: what multiplies elements into sums, per ISA.

Three types meet in a product: what memory stores (`product/stored.py`), the element that is
multiplied, and the sum. A row of the table is one way from elements to sums. Bytes are multiplied
four neighbours in k at a time, and bfloat16 two where the processor does that: a word of them is
what the register tile steps through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from braze.codegen.cpu.llvm.function import KernelFunction
from braze.codegen.cpu.llvm.vector import BF16 as BFLOAT
from braze.codegen.cpu.llvm.vector import suffix
from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import Dim
from braze.core.dtypes import BF16, F16, F32, F64, I8, I32, U8, DType

WORD: Final = 4  # bytes that are multiplied into a sum at once
PAIR: Final = 2  # numbers in bfloat16 that are
# elements of the right operand that are multiplied in words of 32 bits -> how many are in one
WORDS: Final = {I8: WORD, BF16: PAIR}
Emit = Callable[[KernelFunction, ir.Value, ir.Value, ir.Value], ir.Value]


@dataclass(frozen=True, slots=True)
class Dot:
    """emit(fn, a, b, sums): `sums` plus, in each lane, the products of `depth` neighbours in k."""

    depth: int
    emit: Emit


def _fused(fn: KernelFunction, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    return fn.intrinsic(f"llvm.fma.{suffix(a.type)}", a.type, [a, b, c])


def _rounded_twice(fn: KernelFunction, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    return fn.builder.fadd(fn.builder.fmul(a, b), c)


def _byte_words(fn: KernelFunction, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """One instruction (VNNI) for four products: unsigned bytes of a by signed bytes of b."""
    bits = 32 * c.type.count
    return fn.intrinsic(f"llvm.x86.avx512.vpdpbusd.{bits}", c.type, [c, a, b])


_PAIRS: Final = {
    4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"
}  # fmt: skip


def _byte_pairs(fn: KernelFunction, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """The same by products of 16-bit pairs, of which no sum overflows (255 * 127 * 2 in 32 bits;
    the instruction for bytes before VNNI saturates at 32,767). Even and odd bytes apart; what is
    made of a is shared by its vectors and what is made of b by its rows."""
    builder, lanes = fn.builder, c.type.count
    halves = ir.VectorType(ir.IntType(16), 2 * lanes)

    def every(value: int) -> ir.Constant:
        return ir.Constant(halves, [value] * (2 * lanes))

    wide_a, wide_b = builder.bitcast(a, halves), builder.bitcast(b, halves)
    parts = (
        (builder.and_(wide_a, every(255)), builder.ashr(builder.shl(wide_b, every(8)), every(8))),
        (builder.lshr(wide_a, every(8)), builder.ashr(wide_b, every(8))),
    )
    for x, y in parts:
        c = builder.add(c, fn.intrinsic(_PAIRS[lanes], c.type, [x, y]))
    return c


def _half_pairs(fn: KernelFunction, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """One instruction (AVX512-BF16) for two products in float32; denormals are zeros to it."""
    halves = ir.VectorType(BFLOAT, PAIR * c.type.count)
    x, y = (fn.builder.bitcast(v, halves) for v in (a, b))
    return fn.intrinsic(f"llvm.x86.avx512bf16.dpbf16ps.{32 * c.type.count}", c.type, [c, x, y])


Key = tuple[DType, DType, DType]  # elements of the left, of the right, sums
_FUSED: Final[dict[Key, Dot]] = {(F32, F32, F32): Dot(1, _fused), (F64, F64, F64): Dot(1, _fused)}
_SEPARATE: Final = {key: Dot(1, _rounded_twice) for key in _FUSED}
_BYTES: Final[Key] = (U8, I8, I32)
_HALVES: Final[Key] = (BF16, BF16, F32)
_PAIRED: Final = {_BYTES: Dot(WORD, _byte_pairs)}
# isa -> types -> instruction
DOTS: Final[Mapping[str, Mapping[Key, Dot]]] = {
    "avx512": _FUSED | _PAIRED,
    "avx2": _FUSED | _PAIRED,
    "x86-64": _SEPARATE | _PAIRED,
}
# instructions beside an instruction set (EXTRAS of target.py) -> types -> instruction; those on
# tiles (codegen/cpu/amx) are none on vectors
_EXTRA_DOTS: Final[Mapping[str, Mapping[Key, Dot]]] = {
    "avx512vnni": {_BYTES: Dot(WORD, _byte_words)},
    "avx512bf16": {_HALVES: Dot(PAIR, _half_pairs)},
    "avxvnni": {_BYTES: Dot(WORD, _byte_words)},
    "amx-int8": {},
    "amx-bf16": {},
}
_ELEMENTS: Final = {F16: F32, BF16: F32}  # stored types that are read as another element


def element_type(stored: DType) -> DType:
    """What a stored operand is multiplied as: the half types as float32."""
    return _ELEMENTS.get(stored, stored)


def multiplied(stored: DType, words: bool) -> DType:
    """The same, or the stored type where words of it are multiplied."""
    return stored if words else element_type(stored)


def dot_refusal(operands: Sequence[DType], acc: DType) -> str | None:
    """None where every ISA multiplies these operands (left, right) into sums, else why not."""
    left, right = map(element_type, operands)
    if all((left, right, acc) in table for table in DOTS.values()):
        return None
    names = " and ".join(sorted({str(dtype) for dtype in operands}))
    return f"no product of {names} into {acc}: templates are for floats, and for u8 by i8"


def is_bytes(operands: Sequence[DType]) -> bool:
    """Whether a product of these operands steps through words of four bytes."""
    return tuple(operands) == _BYTES[:2]


def multiply_add(fn: KernelFunction, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c of floats: one rounding where the instruction set has FMA, two where not."""
    return (_fused if fn.target.has_fma else _rounded_twice)(fn, a, b, c)


def dot(target: CpuTarget, types: Key) -> Dot:
    """The instruction for elements and sums of these types; the target must have it.

    An extra instruction of the target comes first.
    """
    for extra in target.extras:
        if types in _EXTRA_DOTS[extra]:
            return _EXTRA_DOTS[extra][types]
    return DOTS[target.isa][types]


def halves_of(target: CpuTarget) -> frozenset[str]:
    """The half types that `target` multiplies, as options of a build name them."""
    return frozenset({"bf16"} if any(_HALVES in _EXTRA_DOTS[e] for e in target.extras) else ())


def word_extras(target: CpuTarget, operands: Sequence[DType], k: Dim) -> tuple[str, ...]:
    """What a product in words wants beside the instruction set: one name, or none. `k`: of its
    terms. A word of floats is whole: what lies behind the last may be no number."""
    key = next((k for k in (_BYTES, _HALVES) if k[:2] == tuple(operands)), None)
    if key is None or (key is _HALVES and k % PAIR != 0):
        return ()
    return tuple(e for e in target.extras if key in _EXTRA_DOTS[e])[:1]
