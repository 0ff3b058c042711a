"""Vectors of neighbouring hidden units in memory; the last of a row may have fewer than lanes."""

from __future__ import annotations

from llvmlite import ir

from braze.codegen.cpu.llvm.access import from_memory, memory_type
from braze.codegen.cpu.llvm.emit import Emitter, Env
from braze.codegen.cpu.llvm.function import I32, KernelFunction, element_bytes, i64
from braze.codegen.cpu.llvm.vector import constant, suffix
from braze.core.dtypes import DType

_MASKED_BYTES = 4  # smaller elements are moved under a mask by no instruction of some sets


class Units:
    """`lanes` units from `first` on, of rows of `hidden` units."""

    def __init__(self, fn: KernelFunction, lanes: int, hidden: int, first: ir.Value) -> None:
        self.fn, self.lanes = fn, lanes
        self.first = first
        self._emitter = Emitter(fn, Env((), {}), lanes, ())
        self._left = fn.builder.sub(i64(hidden), first) if hidden % lanes else None

    def load(self, slot: int, dtype: DType, offset: ir.Value) -> ir.Value:
        """Those of the row that begins at element `offset` of a buffer, in register form."""
        element = memory_type(dtype)
        kind = ir.VectorType(element, self.lanes)
        where = self._address(slot, element, offset)
        if self._left is None:
            raw = self.fn.load(where, kind)
        elif element_bytes(element) < _MASKED_BYTES:
            whole = self.fn.alloca(kind)
            self.fn.store(constant(kind, 0), whole)
            self._copy(where, whole, element)
            raw = self.fn.load(whole, kind)
        else:
            align = ir.Constant(I32, element_bytes(kind))
            name = f"llvm.masked.load.{suffix(kind)}.p0"
            raw = self.fn.intrinsic(name, kind, [where, align, self._mask(), constant(kind, 0)])
        return from_memory(self._emitter.lanes, raw, dtype)

    def store(self, value: ir.Value, slot: int, dtype: DType, offset: ir.Value) -> None:
        """Write them, rounded to `dtype`."""
        element = memory_type(dtype)
        raw = self._emitter.memory.to_memory(value, dtype)
        where = self._address(slot, element, offset)
        if self._left is None:
            self.fn.store(raw, where)
        elif element_bytes(element) < _MASKED_BYTES:
            whole = self.fn.alloca(raw.type)
            self.fn.store(raw, whole)
            self._copy(whole, where, element)
        else:
            align = ir.Constant(I32, element_bytes(raw.type))
            name = f"llvm.masked.store.{suffix(raw.type)}.p0"
            self.fn.intrinsic(name, ir.VoidType(), [raw, where, align, self._mask()])

    def _mask(self) -> ir.Value:
        lanes = self._emitter.lanes
        return self.fn.builder.icmp_signed("<", lanes.lane_numbers(), lanes.splat(self._left))

    def _copy(self, source: ir.Value, target: ir.Value, element: ir.Type) -> None:
        """Those that exist, one by one."""
        fn = self.fn
        with fn.loop(0, fn.minimum(self._left, i64(self.lanes))) as i:
            fn.store(fn.load(fn.at(source, i, element), element), fn.at(target, i, element))

    def _address(self, slot: int, element: ir.Type, offset: ir.Value) -> ir.Value:
        place = self.fn.builder.add(offset, self.first)
        return self.fn.at(self.fn.buffer(slot, element), place, element)
