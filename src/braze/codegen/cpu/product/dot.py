"""The instruction under the register tile: what multiplies elements into sums, per ISA.

Three types meet in a product: what memory stores (`product/stored.py`), the element that is
multiplied, and the sum. A row of the table is one way from elements to sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from braze.codegen.cpu.llvm.function import KernelFunction
from braze.codegen.cpu.llvm.vector import suffix
from braze.codegen.cpu.target import CpuTarget
from braze.core.dtypes import BF16, F16, F32, F64, DType


@dataclass(frozen=True, slots=True)
class Dot:
    """emit(fn, a, b, sums): `sums` plus, in each lane, the products of `depth` neighbours in k."""

    depth: int
    emit: Callable[[KernelFunction, ir.Value, ir.Value, ir.Value], ir.Value]


def _fused(fn: KernelFunction, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    return fn.intrinsic(f"llvm.fma.{suffix(a.type)}", a.type, [a, b, c])


def _rounded_twice(fn: KernelFunction, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    return fn.builder.fadd(fn.builder.fmul(a, b), c)


_FUSED: Final = {(F32, F32): Dot(1, _fused), (F64, F64): Dot(1, _fused)}
_SEPARATE: Final = {(F32, F32): Dot(1, _rounded_twice), (F64, F64): Dot(1, _rounded_twice)}
# isa -> (element, sum) -> instruction
DOTS: Final[Mapping[str, Mapping[tuple[DType, DType], Dot]]] = {
    "avx512": _FUSED,
    "avx2": _FUSED,
    "x86-64": _SEPARATE,
}
_ELEMENTS: Final = {F16: F32, BF16: F32}  # stored types that are read as another element


def element_type(stored: DType) -> DType:
    """What a stored operand is multiplied as: the half types as float32."""
    return _ELEMENTS.get(stored, stored)


def dot_refusal(operands: Sequence[DType], acc: DType) -> str | None:
    """None where every ISA multiplies these operands into sums of type `acc`, else why not."""
    elements = {element_type(dtype) for dtype in operands}
    if len(elements) == 1 and all((*elements, acc) in table for table in DOTS.values()):
        return None
    names = " and ".join(sorted({str(dtype) for dtype in operands}))
    return f"no product of {names} into {acc}: templates are for floats"


def multiply_add(fn: KernelFunction, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c of floats: one rounding where the instruction set has FMA, two where not."""
    return (_fused if fn.target.has_fma else _rounded_twice)(fn, a, b, c)


def dot(target: CpuTarget, element: DType, acc: DType) -> Dot:
    """The instruction for elements and sums of these types; the target must have it."""
    return DOTS[target.isa][element, acc]
