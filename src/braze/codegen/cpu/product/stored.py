"""Operands as memory holds them, read as the elements that are multiplied."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from braze.codegen.cpu.llvm.access import from_memory, memory_type
from braze.codegen.cpu.llvm.function import KernelFunction
from braze.codegen.cpu.llvm.vector import Lanes
from braze.codegen.cpu.product.dot import element_type
from braze.codegen.cpu.product.register_tile import vector_type
from braze.core.dtypes import DType


@dataclass(frozen=True, slots=True)
class Stored:
    """Elements of `dtype` in memory. Half types become float32 as they are loaded."""

    fn: KernelFunction
    dtype: DType

    @property
    def kind(self) -> ir.Type:
        """LLVM type of one element in memory."""
        return memory_type(self.dtype)

    @property
    def converts(self) -> bool:
        """Whether memory holds another type than the one multiplied."""
        return element_type(self.dtype) is not self.dtype

    def buffer(self, slot: int, offset: ir.Value | int = 0) -> ir.Value:
        """Element `offset` of buffer `slot`."""
        return self.at(self.fn.buffer(slot, self.kind), offset)

    def at(self, pointer: ir.Value, index: ir.Value | int) -> ir.Value:
        """Address of element `index` from `pointer`."""
        return self.fn.at(pointer, index, self.kind)

    def moved(self, pointer: ir.Value, index: ir.Value) -> ir.Value:
        """`pointer` moved by `index` elements, perhaps out of its buffer (see `moved`)."""
        return self.fn.builder.gep(pointer, [index], inbounds=False, source_etype=self.kind)

    def load(self, pointer: ir.Value, lanes: int = 1) -> ir.Value:
        """`lanes` neighbouring elements as they are multiplied."""
        raw = self.fn.load(pointer, vector_type(self.kind, lanes))
        return from_memory(Lanes(self.fn, lanes), raw, self.dtype)
