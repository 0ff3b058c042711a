"""What follows a code of 8 bits, where it is long and depends on nothing else, as a table.

A quantized network rounds to codes between its nodes, so that an activation behind a product is a
function of 256 values. A kernel computes it for all of them once, by the code that would compute
it for each element, so that no bit changes, and looks elements up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from braze.codegen.cpu.llvm.emit import Emitter, Env
from braze.codegen.cpu.llvm.function import I8, I32, KernelFunction, i64
from braze.codegen.cpu.product.register_tile import part, splat, vector_type, zero
from braze.core.dims import Dim
from braze.core.dtypes import I8 as CODE
from braze.core.dtypes import U8, DType
from braze.expr.fold import rewrite
from braze.expr.loops import TensorSpec
from braze.expr.scalar import FUNCTIONS, Expr, hole

_LANES: Final = 16
_VALUES: Final = 256
_LONG: Final = 40  # nodes that take longer than a look-up
_MANY: Final = 64 * _VALUES  # elements that make up for the table
_SPARE: Final = 3  # bytes behind the table: whole words are loaded


def split(root: Expr, elements: Dim) -> tuple[Expr, Expr] | None:
    """(code, function of hole 0) of `root`, an expression of 8 bits for so many elements; None
    where a table does not pay."""
    if root.dtype not in (U8, CODE) or not isinstance(elements, int) or elements < _MANY:
        return None
    for code in _codes(root):
        above = _above(root, code)
        if above is None:
            continue
        if len(above) < _LONG and not any(e.op in FUNCTIONS for e in above):
            return None
        places = {code: hole(0, code.dtype)}
        return code, rewrite(root, places.get)
    return None


def _codes(root: Expr) -> list[Expr]:
    """Casts to 8 bits below `root`, those that most of it lies above first."""
    found, todo = dict[Expr, None](), [root]
    while todo:
        e = todo.pop(0)
        for x in e.args:
            if x not in found:
                found[x] = None
                todo.append(x)
    return [e for e in reversed(found) if e.op == "cast" and e.dtype in (U8, CODE) and e.args]


def _above(root: Expr, code: Expr) -> set[Expr] | None:
    """What lies above `code`, if nothing but it and constants are below."""
    found, todo = {root}, [root]
    while todo:
        for x in todo.pop().args:
            if x == code or x in found:
                continue
            if not x.args and x.op != "const":
                return None
            found.add(x)
            todo.append(x)
    return found


@dataclass(frozen=True, slots=True)
class Table:
    """The values of a function for every code of `dtype`, in the kernel's stack."""

    fn: KernelFunction
    dtype: DType
    values: ir.Value

    @classmethod
    def of(
        cls, fn: KernelFunction, function: Expr, dtype: DType, tensors: Sequence[TensorSpec]
    ) -> Table:
        """Computed here, for all that follows. `function` reads hole 0, a code of `dtype`."""
        b, values = fn.builder, fn.alloca(I8, _VALUES + _SPARE)
        kind = vector_type(I32, _LANES)
        with fn.loop(0, _VALUES, _LANES) as first:
            undefined = ir.Constant(kind, ir.Undefined)
            start = b.insert_element(undefined, b.trunc(first, I32), ir.Constant(I32, 0))
            start = b.shuffle_vector(start, undefined, ir.Constant(kind, [0] * _LANES))
            places = b.add(start, ir.Constant(kind, list(range(_LANES))))
            codes = b.xor(b.trunc(places, vector_type(I8, _LANES)), _flip(dtype, _LANES))
            emitter = Emitter(fn, Env(tensors, {}, (codes,)), _LANES, [function])
            found = emitter.lanes.splat(emitter.value(function))
            fn.store(found, fn.at(values, first, I8))
        for k in range(_SPARE):
            fn.store(ir.Constant(I8, 0), fn.at(values, _VALUES + k, I8))
        return cls(fn, dtype, values)

    def look_up(self, codes: ir.Value, lanes: int) -> ir.Value:
        """The values for `lanes` codes."""
        fn, b = self.fn, self.fn.builder
        codes = b.xor(codes, _flip(self.dtype, lanes))
        if lanes == 1:
            return fn.load(fn.at(self.values, b.zext(codes, i64(0).type), I8), I8)
        if lanes < _LANES:
            more = [*range(lanes), *[lanes] * (_LANES - lanes)]
            mask = ir.Constant(vector_type(I32, _LANES), more)
            codes = b.shuffle_vector(codes, zero(codes.type), mask)
        kind = vector_type(I32, _LANES)
        words = fn.intrinsic(
            "llvm.x86.avx512.mask.gather.dpi.512", kind,
            [zero(kind), self.values, b.zext(codes, kind),
             splat(vector_type(ir.IntType(1), _LANES), 1), ir.Constant(I32, 1)],
        )  # fmt: skip
        return part(fn, b.trunc(words, vector_type(I8, _LANES)), 0, lanes)


def _flip(dtype: DType, lanes: int) -> ir.Constant:
    """What turns codes into places of the table by an exclusive or, and back."""
    return splat(vector_type(I8, lanes), -128 if dtype is CODE else 0)
