"""Element-wise arithmetic as Triton source: what elementary functions are written over.

The same formulas as on the CPU (braze.expr.decompose) become device code here, so that both
targets agree to rounding. Contraction of a*b + c is switched off when kernels are compiled; fused
multiply-adds are those that the formulas ask for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from braze.codegen.cuda.triton.source import Source, Val

BITS = {
    "float32": "int32", "float64": "int64", "int32": "float32", "int64": "float64",
}  # fmt: skip
UNSIGNED = {"int8": "uint8", "int16": "uint16", "int32": "uint32", "int64": "uint64"}
SIGN_BIT = {"float32": 1 << 31, "float64": 1 << 63}


def is_float(type_: str) -> bool:
    return type_.startswith("float")


def literal(value: float | int | bool, type_: str) -> str:
    """`value` as Triton source of exactly that type."""
    if type_ == "int1":
        return f"tl.full([], {int(value)}, tl.int1)"
    if not is_float(type_):
        number = int(value)
        bits = int(type_.removeprefix("u").removeprefix("int"))
        number &= (1 << bits) - 1
        if not type_.startswith("u") and number >> (bits - 1):
            number -= 1 << bits
        return f"tl.full([], {number}, tl.{type_})"
    real = float(value)
    if real == 0 and math.copysign(1.0, real) < 0:  # which Triton makes a zero without a sign
        bits = int(type_.removeprefix("float"))
        word = f"tl.full([], {-(1 << (bits - 1))}, tl.int{bits})"
        return f"{word}.to(tl.{type_}, bitcast=True)"
    text = repr(real) if math.isfinite(real) else f'float("{real}")'
    return f"tl.full([], {text}, tl.{type_})"


class TritonArith:
    """The `Arith` of braze.expr.arith over `Val`s."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def put(self, text: str, type_: str) -> Val:
        return self.source.put(text, type_)

    def of(self, value: float | int | bool, type_: str) -> Val:
        """A literal of a named type."""
        return self.put(literal(value, type_), type_)

    def const(self, like: Val, value: float | int | bool) -> Val:
        return self.of(value, like.type)

    def _same(self, operator: str, x: Val, y: Val) -> Val:
        assert x.type == y.type, (operator, x, y)
        return self.put(f"{x} {operator} {y}", x.type)

    def add(self, x: Val, y: Val) -> Val:
        return self._same("+", x, y)

    def sub(self, x: Val, y: Val) -> Val:
        return self._same("-", x, y)

    def mul(self, x: Val, y: Val) -> Val:
        return self._same("*", x, y)

    def div(self, x: Val, y: Val) -> Val:
        """IEEE division: `/` alone is approximate in float32."""
        if x.type == "float32":
            return self.put(f"tl.div_rn({x}, {y})", x.type)
        return self._same("/", x, y)

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        return self.put(f"tl.fma({x}, {y}, {z})", x.type)

    def neg(self, x: Val) -> Val:
        if is_float(x.type):  # -0.0 and NaN signs need the bit, not 0 - x
            return self.from_bits(
                self.exclusive(self.bits(x), self.of(SIGN_BIT[x.type], BITS[x.type]))
            )
        return self.put(f"-{x}", x.type)

    def abs(self, x: Val) -> Val:
        return self.put(f"tl.abs({x})", x.type)

    def sqrt(self, x: Val) -> Val:
        name = "sqrt_rn" if x.type == "float32" else "sqrt"
        return self.put(f"tl.{name}({x})", x.type)

    def copysign(self, magnitude: Val, sign: Val) -> Val:
        mask = self.of(SIGN_BIT[sign.type], BITS[sign.type])
        size = self.bits(self.abs(magnitude))
        return self.from_bits(self.either(size, self.both(self.bits(sign), mask)))

    def lt(self, x: Val, y: Val) -> Val:
        return self.compare("<", x, y)

    def compare(self, op: str, x: Val, y: Val, signed: bool = True) -> Val:
        if not signed and x.type in UNSIGNED:
            x, y = self.convert(x, UNSIGNED[x.type]), self.convert(y, UNSIGNED[y.type])
        return self.put(f"{x} {op} {y}", "int1")

    def select(self, condition: Val, x: Val, y: Val) -> Val:
        assert x.type == y.type, (x, y)
        return self.put(f"tl.where({condition}, {x}, {y})", x.type)

    def both(self, x: Val, y: Val) -> Val:
        return self._same("&", x, y)

    def either(self, x: Val, y: Val) -> Val:
        return self._same("|", x, y)

    def exclusive(self, x: Val, y: Val) -> Val:
        return self._same("^", x, y)

    def is_nan(self, x: Val) -> Val:
        return self.put(f"{x} != {x}", "int1")

    def floor(self, x: Val) -> Val:
        return self.put(f"tl.floor({x})", x.type)

    def ceil(self, x: Val) -> Val:
        return self.put(f"tl.ceil({x})", x.type)

    def trunc(self, x: Val) -> Val:
        """Toward zero, keeping the sign of zero."""
        return self.copysign(self.floor(self.abs(x)), x)

    def round_even(self, x: Val) -> Val:
        """To nearest, ties to even: beyond 2**digits every float is whole."""
        whole = self.const(x, 2.0**23 if x.type == "float32" else 2.0**52)
        size = self.abs(x)
        near = self.sub(self.add(size, whole), whole)
        return self.copysign(self.select(self.lt(size, whole), near, size), x)

    def bits(self, x: Val) -> Val:
        return self.put(f"{x}.to(tl.{BITS[x.type]}, bitcast=True)", BITS[x.type])

    def from_bits(self, x: Val) -> Val:
        return self.bits(x)

    def convert(self, x: Val, type_: str) -> Val:
        """Value conversion of integers and floats as the hardware does it."""
        return x if x.type == type_ else self.put(f"{x}.to(tl.{type_})", type_)

    def shift_left(self, x: Val, count: int) -> Val:
        return self.put(f"{x} << {count}", x.type)

    def shift_right(self, x: Val, count: int, signed: bool = False) -> Val:
        if signed or x.type.startswith("u"):
            return self.put(f"{x} >> {count}", x.type)
        wide = UNSIGNED[x.type]
        return self.put(
            f"({x}.to(tl.{wide}, bitcast=True) >> {count}).to(tl.{x.type}, bitcast=True)", x.type
        )

    def to_float(self, x: Val) -> Val:
        return self.convert(x, BITS[x.type])

    def shift_by(self, x: Val, count: Val, left: bool) -> Val:
        wide = UNSIGNED[x.type]
        operator = "<<" if left else ">>"
        text = f"({x}.to(tl.{wide}, bitcast=True) {operator} {count}.to(tl.{wide}))"
        return self.put(f"{text}.to(tl.{x.type}, bitcast=True)", x.type)

    def mul_high(self, x: Val, y: Val) -> Val:
        u = UNSIGNED[x.type]
        text = f"tl.umulhi({x}.to(tl.{u}, bitcast=True), {y}.to(tl.{u}, bitcast=True))"
        return self.put(f"{text}.to(tl.{x.type}, bitcast=True)", x.type)

    def table(self, words: Sequence[int], index: Val) -> Val:
        """A chain of selects: device code has no table without a buffer for it."""
        result = self.of(words[0], "int64")
        for k, word in enumerate(words[1:], 1):
            here = self.compare("==", index, self.const(index, k))
            result = self.select(here, self.of(word, "int64"), result)
        return result

    def rarely(
        self, condition: Val, compute: Callable[[], list[Val]], usual: list[Val]
    ) -> list[Val]:
        """Computed always: a branch that threads of one warp take apart costs both ways anyway."""
        rare = compute()
        return [self.select(condition, r, u) for r, u in zip(rare, usual, strict=True)]
