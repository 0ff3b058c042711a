"""A heap of unsigned integers in scratch memory, and elements as integers that sort like them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.core.dtypes import DType

_EXPONENT: Final = {
    "float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0xFF << 23, "float64": 0x7FF << 52
}  # fmt: skip


def sort_key(b: ir.IRBuilder, bits: ir.Value, dtype: DType, largest: bool) -> ir.Value:
    """The bits of a value as an unsigned integer that is smaller for what comes first.

    largest: large values come first. NaN counts as larger than every number, and -0 equals 0.
    """
    kind, width = bits.type, dtype.itemsize * 8
    sign = ir.Constant(kind, 1 << (width - 1))
    ones = ir.Constant(kind, (1 << width) - 1)
    key = bits
    if dtype.is_float:
        size = b.and_(bits, ir.Constant(kind, (1 << (width - 1)) - 1))
        zero = b.icmp_unsigned("==", size, ir.Constant(kind, 0))
        bits = b.select(zero, size, bits)
        negative = b.icmp_signed("<", bits, ir.Constant(kind, 0))
        key = b.xor(bits, b.select(negative, ones, sign))
        infinity = ir.Constant(kind, _EXPONENT[dtype.name])
        key = b.select(b.icmp_unsigned("<", infinity, size), ones, key)
    elif dtype.is_signed:
        key = b.xor(bits, sign)
    return b.xor(key, ones) if largest else key


@dataclass(frozen=True, slots=True)
class Heap:
    """Integers of type `item` at `base`, none of them above what it was put below."""

    fn: KernelFunction
    base: ir.Value
    item: ir.Type

    def at(self, index: ir.Value) -> ir.Value:
        """The address of an integer."""
        return self.fn.at(self.base, index, self.item)

    def load(self, index: ir.Value) -> ir.Value:
        """An integer; the largest is at 0."""
        return self.fn.load(self.at(index), self.item)

    def order(self, count: ir.Value) -> None:
        """Make a heap of the first `count` integers."""
        fn, b = self.fn, self.fn.builder
        half = b.sdiv(count, i64(2))
        with fn.loop(0, half) as i:
            start = b.sub(b.sub(half, i64(1)), i)
            self.sift(start, count, self.load(start))

    def sift(self, start: ir.Value, limit: ir.Value, item: ir.Value) -> None:
        """Put `item` at `start` or below, where it is not less than both its children."""
        fn, b = self.fn, self.fn.builder
        final = b.sub(limit, i64(1))
        found: list[ir.Value] = []

        def larger_child_is_above(values: list[ir.Value]) -> ir.Value:
            left = b.add(b.mul(values[0], i64(2)), i64(1))
            # reads stay in the heap where there is no child
            places = [fn.minimum(p, final) for p in (left, b.add(left, i64(1)))]
            x, y = (self.load(p) for p in places)
            second = b.icmp_unsigned("<", x, y)
            found[:] = [b.select(second, places[1], places[0]), b.select(second, y, x)]
            return b.and_(b.icmp_signed("<", left, limit), b.icmp_unsigned("<", item, found[1]))

        def move_it_up(values: list[ir.Value]) -> list[ir.Value]:
            fn.store(found[1], self.at(values[0]))
            return [found[0]]

        (place,) = fn.while_loop([start], larger_child_is_above, move_it_up)
        fn.store(item, self.at(place))
