"""Workspace of one worker: regions handed out while a template is built."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from braze.codegen.cpu.llvm.function import KernelFunction
from braze.core.dims import Dim, ceildiv

_CACHE_LINE = 64  # regions start on cache lines


@dataclass(slots=True)
class Scratch:
    """Workspace of one worker, handed out in cache-line multiples."""

    itemsize: int
    used: Dim = 0

    def take(self, elements: Dim) -> Dim:
        """Reserve `elements`; gives their byte offset."""
        start = self.used
        size = ceildiv(elements * self.itemsize, _CACHE_LINE) * _CACHE_LINE
        self.used = start + size
        return start


def scratch_base(fn: KernelFunction, slot: int, per_worker: Dim) -> ir.Value:
    """This worker's part of the scratch buffer, as a byte pointer."""
    byte = ir.IntType(8)
    offset = fn.builder.mul(fn.worker, fn.dim(per_worker))
    return fn.at(fn.buffer(slot, byte), offset, byte)
