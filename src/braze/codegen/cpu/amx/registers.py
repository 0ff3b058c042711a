"""AMX's tile registers: their configuration and the instructions on them.

A tile is up to 16 rows of up to 64 bytes. `TileFile` names registers by number, as LLVM's own
intrinsics for them do: nothing allocates or moves tiles, so a template says where each one lives.
Loading a configuration clears all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from llvmlite import ir

from braze.codegen.cpu.llvm.function import I8, I64, KernelFunction, i64

REGISTERS: Final = 8
ROWS: Final = 16  # of a tile
ROW_BYTES: Final = 64
_WORDS: Final = 8  # of 64 bits in a configuration
_BYTES_AT, _ROWS_AT = 16, 48  # bytes of a row, 16 bits each; rows, 8 bits each
_VOID: Final = ir.VoidType()


class TileFile:
    """The tile registers of one kernel, in their usual shapes except where `reshape` says
    otherwise.

    row_bytes: register -> bytes of a row; rows: register -> rows.
    """

    def __init__(
        self, fn: KernelFunction, row_bytes: Mapping[int, int], rows: Mapping[int, int]
    ) -> None:
        self.fn = fn
        self._row_bytes, self._rows = row_bytes, rows
        self._usual = fn.words(_configuration(row_bytes, rows))
        self._changed: ir.Value | None = None

    def configure(self) -> None:
        """The usual shapes. All tiles are cleared."""
        self._call("ldtilecfg", self._usual)

    def reshape(self, rows: ir.Value | int, registers: Sequence[int]) -> None:
        """The usual shapes, but `rows` rows in some registers. All tiles are cleared."""
        fn = self.fn
        if isinstance(rows, int):
            changed = {**self._rows, **dict.fromkeys(registers, rows)}
            self._call("ldtilecfg", fn.words(_configuration(self._row_bytes, changed)))
            return
        if self._changed is None:
            self._changed = fn.alloca(I64, _WORDS)
        for k in range(_WORDS):
            fn.store(fn.load(fn.at(self._usual, k, I64), I64), fn.at(self._changed, k, I64))
        count = fn.builder.trunc(rows, I8)
        for register in registers:
            fn.store(count, fn.at(self._changed, _ROWS_AT + register, I8))
        self._call("ldtilecfg", self._changed)

    def release(self) -> None:
        """Back to no tiles, so that nothing of them is saved with the thread."""
        self._call("tilerelease")

    def clear(self, register: int) -> None:
        """All zeros."""
        self._call("tilezero", register)

    def load(self, register: int, pointer: ir.Value, stride: ir.Value) -> None:
        """Rows from `pointer` on, `stride` bytes apart."""
        self._call("tileloadd64", register, pointer, stride)

    def store(self, register: int, pointer: ir.Value, stride: ir.Value | int) -> None:
        """The rows to `pointer` on, `stride` bytes apart."""
        step = i64(stride) if isinstance(stride, int) else stride
        self._call("tilestored64", register, pointer, step)

    def multiply(self, name: str, sums: int, left: int, right: int) -> None:
        """sums += left * right by the instruction `name`."""
        self._call(name, sums, left, right)

    def _call(self, name: str, *args: int | ir.Value) -> None:
        values = [ir.Constant(I8, a) if isinstance(a, int) else a for a in args]
        self.fn.intrinsic(f"llvm.x86.{name}", _VOID, values)


def _configuration(row_bytes: Mapping[int, int], rows: Mapping[int, int]) -> list[int]:
    """What the processor reads, as words of 64 bits."""
    content = bytearray(8 * _WORDS)
    content[0] = 1  # the palette
    for register, size in row_bytes.items():
        at = _BYTES_AT + 2 * register
        content[at : at + 2] = size.to_bytes(2, "little")
    for register, count in rows.items():
        content[_ROWS_AT + register] = count
    return list(struct.unpack(f"<{_WORDS}q", content))
