"""Element-wise arithmetic on LLVM values that are scalars or vectors of `width` lanes.

Every operation takes scalars and vectors mixed (scalars are broadcast) and gives the same bits per
lane whether it is done on a scalar or a vector. Fused multiply-add is used only where it is asked
for and the ISA has it. Nothing here lowers to a library call on any ISA.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from braze.codegen.cpu.llvm.function import I1, I32, I64, KernelFunction

F32 = ir.FloatType()
F64 = ir.DoubleType()
F16 = ir.HalfType()


class BFloatType(ir.Type):  # type: ignore[misc]  # llvmlite has no types
    """LLVM's bfloat, for which llvmlite has no class."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloatType)

    def __hash__(self) -> int:
        return hash(BFloatType)


BF16 = BFloatType()
I16 = ir.IntType(16)


def element_of(kind: ir.Type) -> ir.Type:
    """The element type of a vector type, or the scalar type itself."""
    return kind.element if isinstance(kind, ir.VectorType) else kind


def is_vector(value: ir.Value) -> bool:
    return isinstance(value.type, ir.VectorType)


def is_float(kind: ir.Type) -> bool:
    return isinstance(element_of(kind), (ir.FloatType, ir.DoubleType, ir.HalfType))


def with_element(kind: ir.Type, element: ir.Type) -> ir.Type:
    """`kind` with another element type."""
    return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element


class Literal(ir.Constant):  # type: ignore[misc]
    """A constant given by its text in LLVM's syntax (llvmlite spells out vectors in full)."""

    def __init__(self, kind: ir.Type, text: str) -> None:
        self.type = kind
        self.constant = text

    def _to_string(self) -> str:
        return f"{self.type} {self.constant}"

    def _get_reference(self) -> str:
        return str(self.constant)


def constant(kind: ir.Type, value: float | int | bool) -> Literal:
    """A literal of a scalar or vector type (the same in every lane)."""
    element = element_of(kind)
    if is_float(element):
        text = _float_text(element, float(value))
    else:
        text = str(_wrap(int(value), element.width))
    if isinstance(kind, ir.VectorType):
        return Literal(kind, f"splat ({element} {text})")
    return Literal(kind, text)


def _wrap(value: int, width: int) -> int:
    if width == 1:
        return value & 1
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def _float_text(element: ir.Type, value: float) -> str:
    """LLVM spells every float literal as the bits of the double of the same value."""
    if isinstance(element, ir.FloatType) and math.isfinite(value):
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    if math.isnan(value):
        bits = 0x7FF8000000000000
    return f"0x{bits:016X}"


class Lanes:
    """Arithmetic at the end of `fn`'s current block; `width` is the vector length of splats."""

    def __init__(self, fn: KernelFunction, width: int) -> None:
        self.fn = fn
        self.width = width
        self.features = fn.target.features

    @property
    def b(self) -> ir.IRBuilder:
        return self.fn.builder

    def splat(self, value: ir.Value) -> ir.Value:
        """A vector with `value` in every lane (vectors and width 1 pass through)."""
        if is_vector(value) or self.width == 1:
            return value
        kind = ir.VectorType(value.type, self.width)
        if isinstance(value, Literal):
            return Literal(kind, f"splat ({value.type} {value.constant})")
        first = self.b.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
        order = ir.Constant(ir.VectorType(I32, self.width), [0] * self.width)
        return self.b.shuffle_vector(first, ir.Constant(kind, ir.Undefined), order)

    def match(self, *values: ir.Value) -> list[ir.Value]:
        """The values with scalars broadcast when any of them is a vector."""
        if any(is_vector(v) for v in values):
            return [self.splat(v) for v in values]
        return list(values)

    def const(self, like: ir.Value, value: float | int | bool) -> ir.Value:
        """A literal of the type of `like`."""
        return constant(like.type, value)

    def call(self, name: str, *values: ir.Value) -> ir.Value:
        """The LLVM intrinsic `name` on values of one type."""
        kind = values[0].type
        return self.fn.intrinsic(f"llvm.{name}.{suffix(kind)}", kind, values)

    # -- arithmetic ---------------------------------------------------------------------------
    def add(self, x: ir.Value, y: ir.Value) -> ir.Value:
        x, y = self.match(x, y)
        return self.b.fadd(x, y) if is_float(x.type) else self.b.add(x, y)

    def sub(self, x: ir.Value, y: ir.Value) -> ir.Value:
        x, y = self.match(x, y)
        return self.b.fsub(x, y) if is_float(x.type) else self.b.sub(x, y)

    def mul(self, x: ir.Value, y: ir.Value) -> ir.Value:
        x, y = self.match(x, y)
        return self.b.fmul(x, y) if is_float(x.type) else self.b.mul(x, y)

    def div(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Float division."""
        x, y = self.match(x, y)
        return self.b.fdiv(x, y)

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """x * y + z, fused where the ISA has it."""
        x, y, z = self.match(x, y, z)
        if self.features.has_fma:
            return self.call("fma", x, y, z)
        return self.b.fadd(self.b.fmul(x, y), z)

    def neg(self, x: ir.Value) -> ir.Value:
        return self.b.fneg(x) if is_float(x.type) else self.b.neg(x)

    def abs(self, x: ir.Value) -> ir.Value:
        """Magnitude (signed integers wrap)."""
        if is_float(x.type):
            return self.call("fabs", x)
        return self.select(self.lt(x, self.const(x, 0)), self.b.neg(x), x)

    def sqrt(self, x: ir.Value) -> ir.Value:
        return self.call("sqrt", x)

    def copysign(self, magnitude: ir.Value, sign: ir.Value) -> ir.Value:
        return self.call("copysign", *self.match(magnitude, sign))

    # -- comparisons and choice ---------------------------------------------------------------
    def compare(self, op: str, x: ir.Value, y: ir.Value, signed: bool = True) -> ir.Value:
        """`x op y` as i1; ordered for floats (false with NaN), except "!=" (true with NaN)."""
        x, y = self.match(x, y)
        if is_float(x.type):
            return (self.b.fcmp_unordered if op == "!=" else self.b.fcmp_ordered)(op, x, y)
        return (self.b.icmp_signed if signed else self.b.icmp_unsigned)(op, x, y)

    def lt(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.compare("<", x, y)

    def is_nan(self, x: ir.Value) -> ir.Value:
        return self.b.fcmp_unordered("uno", x, x)

    def select(self, condition: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        x, y = self.match(x, y)
        if is_vector(condition):
            x, y = self.splat(x), self.splat(y)
        return self.b.select(condition, x, y)

    def both(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.and_(*self.match(x, y))

    def either(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.or_(*self.match(x, y))

    def exclusive(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.xor(*self.match(x, y))

    def extreme(self, op: str, x: ir.Value, y: ir.Value, signed: bool = True) -> ir.Value:
        """The larger (op ">") or smaller (op "<") value; NaN if either float is NaN."""
        x, y = self.match(x, y)
        if not is_float(x.type):
            return self.b.select(self.compare(op, x, y, signed), x, y)
        if isinstance(y, Literal):
            x, y = y, x
        # `x op y ? x : y` gives y when unordered, so NaN in y passes; only NaN in x needs help
        best = self.b.select(self.b.fcmp_ordered(op, x, y), x, y)
        if isinstance(x, Literal) and "7FF8" not in str(x.constant):
            return best
        return self.b.select(self.is_nan(x), x, best)

    def limited(self, kind: str, x: ir.Value, number: ir.Value) -> ir.Value:
        """x where it is above ("max") or below ("min") a number, else that, for NaN too; see
        expr/limits.py for why this is no selection."""
        return self.call(f"{kind}num", *self.match(x, number))

    # -- rounding -----------------------------------------------------------------------------
    def round_even(self, x: ir.Value) -> ir.Value:
        """Nearest integral value, ties to even."""
        if self.features.has_rounding:
            return self.call("roundeven", x)
        limit = self.const(x, 2.0**23 if element_of(x.type) == F32 else 2.0**52)
        size = self.abs(x)
        whole = self.b.fsub(self.b.fadd(size, limit), limit)
        # NaN and large values are their own rounding
        return self.select(self.lt(size, limit), self.copysign(whole, x), x)

    def floor(self, x: ir.Value) -> ir.Value:
        if self.features.has_rounding:
            return self.call("floor", x)
        near = self.round_even(x)
        lower = self.b.fsub(near, self.const(x, 1.0))
        return self.copysign(self.select(self.lt(x, near), lower, near), x)

    def ceil(self, x: ir.Value) -> ir.Value:
        if self.features.has_rounding:
            return self.call("ceil", x)
        return self.neg(self.floor(self.neg(x)))

    def trunc(self, x: ir.Value) -> ir.Value:
        if self.features.has_rounding:
            return self.call("trunc", x)
        return self.copysign(self.floor(self.abs(x)), x)

    # -- bits and conversions -----------------------------------------------------------------
    def bits(self, x: ir.Value) -> ir.Value:
        """The integer with the bits of a float."""
        return self.b.bitcast(x, with_element(x.type, int_of(element_of(x.type))))

    def from_bits(self, x: ir.Value) -> ir.Value:
        """The float32 or float64 with the bits of an integer."""
        return self.b.bitcast(x, with_element(x.type, F32 if element_of(x.type) == I32 else F64))

    def shift_left(self, x: ir.Value, count: int) -> ir.Value:
        return self.b.shl(x, self.const(x, count))

    def shift_right(self, x: ir.Value, count: int, signed: bool = False) -> ir.Value:
        return (self.b.ashr if signed else self.b.lshr)(x, self.const(x, count))

    def shift_by(self, x: ir.Value, count: ir.Value, left: bool) -> ir.Value:
        """A logical shift by a count per lane, less than the width."""
        x, count = self.match(x, count)
        return self.b.shl(x, count) if left else self.b.lshr(x, count)

    def mul_high(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The upper half of the unsigned product of 64-bit integers."""
        wide = ir.IntType(128)
        x, y = (self.resize(v, wide, signed=False) for v in self.match(x, y))
        product = self.b.mul(x, y)
        return self.resize(self.b.lshr(product, constant(product.type, 64)), I64, signed=False)

    def table(self, words: Sequence[int], index: ir.Value) -> ir.Value:
        """words[index] per lane, from a constant table of 64-bit words."""
        place = self.fn.words(words)
        if not is_vector(index):
            return self.fn.load(self.fn.at(place, index, I64), I64)
        found: ir.Value = ir.Constant(index.type, ir.Undefined)
        for lane in range(index.type.count):
            where = self.fn.at(place, self.extract(index, lane), I64)
            one = self.fn.load(where, I64)
            found = self.b.insert_element(found, one, ir.Constant(I32, lane))
        return found

    def rarely(
        self,
        condition: ir.Value,
        compute: Callable[[], list[ir.Value]],
        usual: list[ir.Value],
    ) -> list[ir.Value]:
        """`compute()` in lanes where `condition` holds, run only when there are any."""
        before = self.b.block
        with self.fn.if_(self.any_lane(condition), likely=False):
            chosen = [self.select(condition, x, y) for x, y in zip(compute(), usual, strict=True)]
            inside = self.b.block
        merged = []
        for x, y in zip(chosen, usual, strict=True):
            phi = self.b.phi(y.type)
            phi.add_incoming(x, inside)
            phi.add_incoming(y, before)
            merged.append(phi)
        return merged

    def to_float(self, x: ir.Value) -> ir.Value:
        """A signed integer as the float type of its size."""
        return self.b.sitofp(x, with_element(x.type, F32 if element_of(x.type) == I32 else F64))

    def resize(self, x: ir.Value, element: ir.Type, signed: bool) -> ir.Value:
        """An integer with another width (sign- or zero-extended, or cut)."""
        have, want = element_of(x.type).width, element.width
        kind = with_element(x.type, element)
        if have == want:
            return x
        if have > want:
            return self.b.trunc(x, kind)
        return self.b.sext(x, kind) if signed else self.b.zext(x, kind)

    def as_float(self, x: ir.Value, element: ir.Type, signed: bool) -> ir.Value:
        """An integer converted to float32 or float64, rounded to nearest even."""
        kind = with_element(x.type, element)
        return self.b.sitofp(x, kind) if signed else self.b.uitofp(x, kind)

    def lane_numbers(self) -> ir.Value:
        """<0, 1, 2, ...> as i64 lanes."""
        return ir.Constant(ir.VectorType(I64, self.width), list(range(self.width)))

    def extract(self, x: ir.Value, lane: int) -> ir.Value:
        """One lane of a vector (a scalar passes through)."""
        return self.b.extract_element(x, ir.Constant(I32, lane)) if is_vector(x) else x

    def any_lane(self, x: ir.Value) -> ir.Value:
        """True when an i1 scalar, or any lane of an i1 vector, is true."""
        if not is_vector(x):
            return x
        kind = f"v{x.type.count}i1"
        return self.fn.intrinsic(f"llvm.vector.reduce.or.{kind}", I1, [x])


def int_of(element: ir.Type) -> ir.Type:
    """The integer type as wide as a float type."""
    return {ir.FloatType: I32, ir.DoubleType: I64, ir.HalfType: I16}[type(element)]


def suffix(kind: ir.Type) -> str:
    """How LLVM spells a type in an intrinsic's name."""
    element: Any = element_of(kind)
    if isinstance(element, ir.IntType):
        name = f"i{element.width}"
    else:
        name = {ir.FloatType: "f32", ir.DoubleType: "f64", ir.HalfType: "f16"}[type(element)]
    return f"v{kind.count}{name}" if isinstance(kind, ir.VectorType) else name
