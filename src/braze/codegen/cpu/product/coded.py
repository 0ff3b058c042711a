"""Products by weights of few bits: codes come from memory and become numbers in registers.

A panel is a run of memory: for each group of k the codes, the scales of its columns, and their zero
points where they have their own. Codes of less than a byte lie in words of 32 bits, one column a
lane and neighbours in k in one word, which may be read from any of its bytes on: what follows the
last word is a scale. Bytes lie a column a lane. Each number is the one that dequantizing gives, and
sums have the order of every product, so results have the bits of a product of dequantized weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from llvmlite import ir

from braze.codegen.cpu.llvm.function import I8, I32, I64, KernelFunction, i64
from braze.codegen.cpu.llvm.vector import F32
from braze.codegen.cpu.product.ahead import CACHE_LINE, fetch_line
from braze.codegen.cpu.product.dot import multiply_add
from braze.codegen.cpu.product.panels import Panel
from braze.codegen.cpu.product.register_tile import (
    Tile,
    TileShape,
    broadcast,
    splat,
    vector_type,
)
from braze.ops.coded_spec import SCALE_BYTES, CodedSpec

WORD_BITS = 32
_BYTE_STEPS = 4  # of k that a loop over bytes takes at once
_HALF = 128  # between unsigned bytes and signed ones
_AHEAD = 8192  # bytes: what the processor fetches by itself ends with a page


@dataclass(frozen=True, slots=True)
class CodedPanels:
    """Panels of `shape.columns` columns from `base` on, each from its first group to its last."""

    uniform: ClassVar[bool] = True
    constant: ClassVar[bool] = False  # no panel is fetched ahead: they are read in one stream
    fn: KernelFunction
    shape: TileShape
    spec: CodedSpec
    base: ir.Value

    def begin(self, first: ir.Value, stop: ir.Value) -> None:
        """Nothing to prepare."""

    def full(self, index: ir.Value) -> Panel:
        """See Panels."""
        step = self.spec.groups * group_bytes(self.spec, self.shape.columns)
        return self.fn.at(self.base, self.fn.builder.mul(index, i64(step)), I8), 0

    def tail(self, index: ir.Value) -> Panel:
        """See Panels."""
        return self.full(index)


def group_bytes(spec: CodedSpec, columns: int) -> int:
    """Bytes of one group of a panel."""
    return columns * spec.record


def word_steps(bits: int) -> int:
    """Neighbours in k that are decoded together."""
    return WORD_BITS // bits if bits < 8 else _BYTE_STEPS


@dataclass(frozen=True, slots=True)
class _Group:
    """Where the codes of a group lie; what its columns' numbers are made with, a vector each."""

    codes: ir.Value
    scales: list[ir.Value]
    zeros: list[ir.Value]


@dataclass(frozen=True, slots=True)
class CodedTile:
    """The inner loops of a tile over one block of k (see `accumulate` of the register tile)."""

    fn: KernelFunction
    shape: TileShape
    spec: CodedSpec

    def accumulate(
        self,
        rows: Sequence[ir.Value],
        panel: ir.Value,
        start: ir.Value,
        length: ir.Value,
        tile: Tile,
    ) -> Tile:
        """tile[r][v] += sum of rows[r][k] * weight[start + k], k < length ascending.

        `start` is the first of a group; `length` ends with one, or with the last k of all.
        """
        fn, b, spec = self.fn, self.fn.builder, self.spec
        size = group_bytes(spec, self.shape.columns)
        place = fn.at(panel, b.mul(b.sdiv(start, i64(spec.group)), i64(size)), I8)
        whole = b.sdiv(length, i64(spec.group))

        def group(sums: list[ir.Value], index: ir.Value, terms: int) -> list[ir.Value]:
            moved = b.mul(index, i64(spec.group))
            lines = [fn.at(row, moved, F32) for row in rows]
            return self._group(sums, lines, fn.at(place, b.mul(index, i64(size)), I8), terms)

        sums = [value for row in tile for value in row]
        with fn.carry_loop(0, whole, 1, sums) as it:
            it.next = group(list(it.values), it.index, spec.group)
        sums = it.results
        rest = spec.k % spec.group
        if rest:
            cut = b.icmp_signed("<", b.mul(whole, i64(spec.group)), length)
            with fn.carry_loop(0, b.zext(cut, I64), 1, sums) as last:
                last.next = group(list(last.values), whole, rest)
            sums = last.results
        vectors = len(tile[0])
        return [sums[r * vectors : (r + 1) * vectors] for r in range(len(tile))]

    def _group(
        self, sums: list[ir.Value], rows: Sequence[ir.Value], base: ir.Value, terms: int
    ) -> list[ir.Value]:
        """`sums` plus the first `terms` terms of the group at `base`."""
        fn, b, bits = self.fn, self.fn.builder, self.spec.bits
        group = self._parameters(base, len(sums) // len(rows))
        per = word_steps(bits)
        with fn.carry_loop(0, terms // per, 1, sums) as it:
            k = b.mul(it.index, i64(per))
            it.next = self._steps(list(it.values), rows, group, (it.index, k), per)
        sums = it.results
        if terms % per:
            place = i64(terms // per), i64(terms // per * per)
            sums = self._steps(sums, rows, group, place, terms % per)
        return sums

    def _parameters(self, base: ir.Value, vectors: int) -> _Group:
        """Scales and zero points of a group, and where its codes begin."""
        fn, spec, shape = self.fn, self.spec, self.shape
        size = SCALE_BYTES + spec.own
        behind = fn.at(base, shape.columns * (spec.record - size), I8)
        self._fetch(behind, shape.columns * size)
        scales = [
            fn.load(fn.at(behind, v * shape.lanes * SCALE_BYTES, I8), shape.vector)
            for v in range(vectors)
        ]
        zeros = []
        if spec.own:
            own = fn.at(behind, shape.columns * SCALE_BYTES, I8)
            zeros = [self._number(own, v * shape.lanes) for v in range(vectors)]
        return _Group(base, scales, zeros)

    def _fetch(self, where: ir.Value, size: int) -> None:
        """Ask for what lies `_AHEAD` behind `size` bytes (panels are one stream); no harm where
        that is behind all of them."""
        for offset in range(0, size, CACHE_LINE):
            line = self.fn.builder.gep(where, [i64(_AHEAD + offset)], source_etype=I8)
            fetch_line(self.fn, line)

    def _number(self, base: ir.Value, offset: ir.Value | int) -> ir.Value:
        """A vector of bytes as float32: signed ones where codes are bytes, else unsigned."""
        fn, lanes = self.fn, self.shape.lanes
        raw = fn.load(fn.at(base, offset, I8), vector_type(I8, lanes))
        widen = fn.builder.sext if self.spec.bits == 8 else fn.builder.zext
        return fn.builder.sitofp(widen(raw, vector_type(I32, lanes)), self.shape.vector)

    def _steps(
        self,
        sums: list[ir.Value],
        rows: Sequence[ir.Value],
        group: _Group,
        place: tuple[ir.Value, ir.Value],
        count: int,
    ) -> list[ir.Value]:
        """`sums` plus `count` terms from place (number of the word, first k) on."""
        fn, b, shape = self.fn, self.fn.builder, self.shape
        word, first = place
        vectors, lanes = len(group.scales), shape.lanes
        size = shape.columns * (WORD_BITS // 8)  # of the codes of `word_steps` terms
        line = fn.at(group.codes, b.mul(word, i64(size)), I8)
        self._fetch(line, size)
        for j in range(count):
            k = b.add(first, i64(j))
            data = [broadcast(fn, fn.load(fn.at(row, k, F32), F32), lanes) for row in rows]
            for v in range(vectors):
                if self.spec.bits < 8:
                    code = self._code(fn.at(line, v * lanes * (WORD_BITS // 8), I8), j)
                else:
                    at = b.add(b.mul(k, i64(shape.columns)), i64(v * lanes))
                    code = self._less(self._number(group.codes, at), _HALF)
                if group.zeros:
                    code = b.fsub(code, group.zeros[v])
                number = b.fmul(code, group.scales[v])
                for r, value in enumerate(data):
                    at_sum = r * vectors + v
                    sums[at_sum] = multiply_add(fn, value, number, sums[at_sum])
        return sums

    def _code(self, where: ir.Value, j: int) -> ir.Value:
        """Code `j` of each of the words at `where` as float32, less the zero point of all."""
        fn, b, bits = self.fn, self.fn.builder, self.spec.bits
        kind = vector_type(I32, self.shape.lanes)
        # of few registers none holds a word: it is read again, from the byte of a code on
        step = 8 if fn.target.registers < 32 else WORD_BITS
        words = fn.load(fn.at(where, j * bits // step * (step // 8), I8), kind)
        if j * bits % step:
            words = b.lshr(words, splat(kind, j * bits % step))
        if fn.target.vector_bits == 512 and self.shape.lanes == 16:
            # an index of 4 bits into a register of numbers: higher bits of a lane do not count
            zero = 0 if self.spec.own else self.spec.zero
            table = [float((i & ((1 << bits) - 1)) - zero) for i in range(16)]
            numbers = ir.Constant(self.shape.vector, table)
            name = "llvm.x86.avx512.permvar.sf.512"
            return fn.intrinsic(name, self.shape.vector, [numbers, words])
        code = b.and_(words, splat(words.type, (1 << bits) - 1))
        return self._less(b.sitofp(code, self.shape.vector), 0)

    def _less(self, code: ir.Value, moved: int) -> ir.Value:
        """`code`, smaller by `moved` than stored, less the zero point of all columns."""
        zero = self.spec.zero - moved
        if self.spec.own or zero == 0:
            return code
        return self.fn.builder.fsub(code, splat(code.type, float(zero)))
