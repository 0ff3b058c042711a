"""Scalar expressions: what a fused kernel computes for one element, as immutable data.

An `Expr` is a tree (shared subtrees allowed) of a closed set of operations. It can be hashed,
compared, printed and parsed; nothing in it is a closure, so it can key a cache. Every interpreter
(numpy, LLVM, Triton, intervals, text) is a table {op: function} driven by `braze.expr.fold.fold`.
A new function is named here, means something in `evaluate.py` and has its form in `decompose.py` or
`decompose_pairs.py`: all code generators take it from there.

Semantics follow numpy: integers wrap; integer division by zero gives 0; min, max and sign
propagate NaN; comparisons with NaN are false; float-to-int casts truncate toward zero
(NaN, infinities and values out of range give the type's minimum, or 0 for unsigned types).
"""

from __future__ import annotations

import hashlib
from typing import Final, Union

from braze.core.dims import Dim, DimExpr
from braze.core.dtypes import BOOL, I64, DType

Literal = Union[bool, int, float]

# leaves: attr tells what they stand for
LEAVES: Final = {
    "const",  # attr: Python bool, int or float
    "axis",  # attr: index of a loop axis; outer axes first, then inner axes; int64
    "dim",  # attr: a Dim; int64, known once the input shapes are
    "hole",  # attr: index; the k-th operand of a Pointwise, or the anchor's accumulator (0)
    "red",  # attr: index; the result of an earlier reduction of the same loop nest
}
# What decides where work goes is the cost of an operation on floats. Functions are dozens of
# instructions, in the forms of braze.expr.decompose (one operand) and decompose_pairs (two);
# what is slow is one long instruction or a loop; all others count as one instruction.
FUNCTIONS: Final = {
    "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh", "erf",
}  # fmt: skip
PAIR_FUNCTIONS: Final = {"pow"}
SLOW: Final = {"sqrt", "mod", "fmod", "floordiv"}
# one operand, same type out
UNARY: Final = FUNCTIONS | {
    "neg", "abs", "sign", "floor", "ceil", "round", "trunc", "sqrt",
    "not",  # logical on bool, bitwise on integers
}  # fmt: skip
# one operand, bool out
TESTS: Final = {"isnan", "isinf"}
# two operands of one type, same type out
BINARY: Final = PAIR_FUNCTIONS | {
    "add", "sub", "mul",
    "div",  # floats: IEEE; integers: toward zero
    "floordiv",  # toward minus infinity
    "mod",  # sign of the divisor (Python)
    "fmod",  # sign of the dividend (C)
    "min", "max", "and", "or", "xor", "shl", "shr",
}  # fmt: skip
# two operands of one type, bool out
COMPARE: Final = {"lt", "le", "eq"}
# cast: value conversion to dtype; bitcast: same bits; select(bool, a, b);
# load: attr = slot, args = one int64 index per axis of the tensor in that slot
# given(x): x, where it was read from a tensor whose content turned out to be known; what is
# accessed at a place made of it is checked as if it were data
OTHER: Final = {"cast", "bitcast", "select", "load", "given"}
ALL_OPS: Final = LEAVES | UNARY | TESTS | BINARY | COMPARE | OTHER


class Expr:
    """One scalar operation. Equal structure means equal objects (`==` and `hash` use `key`).

    What `attr` means depends on the op; `slot`, `number`, `size` and `value` read it with its type.
    """

    __slots__ = ("args", "attr", "dtype", "key", "op")
    key: bytes

    def __init__(
        self, op: str, args: tuple[Expr, ...], dtype: DType, attr: Literal | DimExpr | None = None
    ) -> None:
        assert op in ALL_OPS, op
        self.op = op
        self.args = args
        self.dtype = dtype
        self.attr = attr
        text = f"{op}|{dtype}|{attr!r}|".encode() + b"".join(a.key for a in args)
        self.key = hashlib.blake2b(text, digest_size=16).digest()

    @property
    def slot(self) -> int:
        """Of a load: which tensor it reads."""
        assert self.op == "load" and isinstance(self.attr, int), self
        return self.attr

    @property
    def number(self) -> int:
        """Of an axis, hole or red: which one."""
        assert self.op in ("axis", "hole", "red") and isinstance(self.attr, int), self
        return self.attr

    @property
    def size(self) -> Dim:
        """Of a dim or an integer constant: the size it stands for."""
        assert self.op in ("dim", "const") and isinstance(self.attr, (int, DimExpr)), self
        return self.attr

    @property
    def value(self) -> Literal:
        """Of a constant: its Python number."""
        assert self.op == "const" and isinstance(self.attr, (bool, int, float)), self
        return self.attr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        inner = ", ".join(
            [repr(self.attr)] * (self.attr is not None) + [repr(a) for a in self.args]
        )
        return f"{self.op}:{self.dtype}({inner})"


def const(value: bool | int | float, dtype: DType) -> Expr:
    """A literal, stored as Python bool, int or float according to `dtype`."""
    if dtype is BOOL:
        return Expr("const", (), dtype, bool(value))
    return Expr("const", (), dtype, float(value) if dtype.is_float else int(value))


def axis(index: int) -> Expr:
    """The current value of loop axis `index`."""
    return Expr("axis", (), I64, index)


def dim(size: Dim) -> Expr:
    """A size as a value; plain integers become constants."""
    return const(size, I64) if isinstance(size, int) else Expr("dim", (), I64, size)


def given(x: Expr) -> Expr:
    """`x` as an index that nobody has checked."""
    return Expr("given", (x,), x.dtype)


def hole(index: int, dtype: DType) -> Expr:
    """The operand `index` of a pointwise op, or the accumulator of an anchor (index 0)."""
    return Expr("hole", (), dtype, index)


def red(index: int, dtype: DType) -> Expr:
    """The result of reduction `index` of the loop nest."""
    return Expr("red", (), dtype, index)


def load(slot: int, index: tuple[Expr, ...], dtype: DType) -> Expr:
    """Element `index` of the tensor in input slot `slot`."""
    return Expr("load", index, dtype, slot)


def unary(op: str, x: Expr) -> Expr:
    """A one-operand operation; tests give bool."""
    assert op in UNARY or op in TESTS, op
    return Expr(op, (x,), BOOL if op in TESTS else x.dtype)


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """A two-operand operation on equal types; comparisons give bool."""
    assert a.dtype == b.dtype, (op, a.dtype, b.dtype)
    assert op in BINARY or op in COMPARE, op
    return Expr(op, (a, b), BOOL if op in COMPARE else a.dtype)


def select(condition: Expr, a: Expr, b: Expr) -> Expr:
    """`a` where `condition` (bool) holds, else `b`."""
    assert condition.dtype is BOOL and a.dtype == b.dtype, (condition.dtype, a.dtype, b.dtype)
    return Expr("select", (condition, a, b), a.dtype)


def cast(x: Expr, dtype: DType) -> Expr:
    """Value conversion; a cast to the same type is the operand itself."""
    return x if x.dtype == dtype else Expr("cast", (x,), dtype)
