"""The middle of fused attention: scaled and masked scores, and softmax over rows in place."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llvmlite import ir

from braze.codegen.cpu.llvm.emit import Env, emit
from braze.codegen.cpu.llvm.function import I32, KernelFunction, i64
from braze.codegen.cpu.product.register_tile import (
    TileShape,
    broadcast,
    part,
    splat,
    vector_type,
    zero,
)
from braze.codegen.cpu.product.stored import Stored
from braze.core.dims import Dim, ceildiv
from braze.core.dtypes import F32
from braze.expr.scalar import hole, unary
from braze.ops.lowering import AttentionSpec

SCORE_PADDING = 16  # elements between score rows beyond the last whole vector


def pitch(kv_len: Dim) -> Dim:
    """Elements from one row of scores to the next."""
    return ceildiv(kv_len, SCORE_PADDING) * SCORE_PADDING + SCORE_PADDING


@dataclass(slots=True)
class Scores:
    """What the tile sink applies to q.k sums: scale, mask, causality. Plays the epilogue's part.

    mask: pointer to mask element (row 0, column 0) of the current head; stored_mask: how elements
    are read from there.
    """

    fn: KernelFunction
    spec: AttentionSpec
    mask: ir.Value | None = None
    stored_mask: Stored | None = None
    light: bool = True

    @property
    def stored(self) -> ir.Type:
        return ir.FloatType()

    def apply(self, value: ir.Value, lanes: int, row: ir.Value, column: ir.Value) -> ir.Value:
        """Scores of query `row` with keys column .. column+lanes-1."""
        b = self.fn.builder
        scale = ir.Constant(ir.FloatType(), self.spec.scale)
        score = b.fmul(value, broadcast(self.fn, scale, lanes))
        if self.spec.mask is not None:
            score = b.fadd(score, self._mask(lanes, row, column))
        if self.spec.causal:
            score = self._causal(score, lanes, row, column)
        return score

    def _mask(self, lanes: int, row: ir.Value, column: ir.Value) -> ir.Value:
        fn, b, stored = self.fn, self.fn.builder, self.stored_mask
        assert self.spec.mask is not None and self.mask is not None and stored is not None
        row_step, step = self.spec.mask.strides[2:]
        line = stored.at(self.mask, b.mul(row, fn.dim(row_step)))
        first = stored.at(line, b.mul(column, fn.dim(step)))
        if step == 1:
            return stored.load(first, lanes)
        if step == 0 or lanes == 1:
            return broadcast(fn, stored.load(first), lanes)
        found = ir.Constant(vector_type(ir.FloatType(), lanes), ir.Undefined)
        for i in range(lanes):
            one = stored.load(stored.at(first, b.mul(i64(i), fn.dim(step))))
            found = b.insert_element(found, one, ir.Constant(I32, i))
        return found

    def _causal(self, score: ir.Value, lanes: int, row: ir.Value, column: ir.Value) -> ir.Value:
        """-inf for keys after row + (kv_len - q_len)."""
        b = self.fn.builder
        shift = self.fn.dim(self.spec.kv_len - self.spec.q_len)
        allowed = b.sub(b.add(row, shift), column)
        low, high = i64(-1), i64(lanes)
        allowed = b.select(b.icmp_signed("<", allowed, low), low, allowed)
        allowed = b.trunc(self.fn.minimum(allowed, high), I32)
        kind = vector_type(I32, lanes)
        numbers = ir.Constant(kind, list(range(lanes)) if lanes > 1 else 0)
        hidden = b.icmp_signed(">", numbers, broadcast(self.fn, allowed, lanes))
        return b.select(hidden, splat(score.type, -math.inf), score)


def softmax_row(fn: KernelFunction, shape: TileShape, row: ir.Value, count: ir.Value) -> None:
    """Softmax over row[0:count] in place; rows of -inf alone become zeros.

    The row has room for a whole last vector, which is filled up with zeros.
    """
    b, element, lanes, wide = fn.builder, shape.element, shape.lanes, shape.vector
    rest = b.srem(b.sub(i64(0), count), i64(lanes))
    end = b.add(count, b.select(b.icmp_signed("<", rest, i64(0)), b.add(rest, i64(lanes)), rest))
    with fn.loop(count, end) as i:
        fn.store(splat(element, -math.inf), fn.at(row, i, element))
    with fn.carry_loop(0, end, lanes, [splat(wide, -math.inf)]) as it:
        value = fn.load(fn.at(row, it.index, element), wide)
        it.next = [_larger(fn, value, it.values[0])]
    top = reduce_lanes(fn, it.results[0], _larger)
    empty = b.fcmp_ordered("==", top, splat(element, -math.inf))
    top = broadcast(fn, b.select(empty, splat(element, 0.0), top), lanes)
    power = unary("exp", hole(0, F32))
    with fn.carry_loop(0, end, lanes, [zero(wide)]) as it:
        where = fn.at(row, it.index, element)
        value = emit(fn, power, Env((), {}, (b.fsub(fn.load(where, wide), top),)), lanes)
        fn.store(value, where)
        it.next = [b.fadd(it.values[0], value)]
    total = reduce_lanes(fn, it.results[0], _sum)
    none = b.fcmp_ordered("==", total, splat(element, 0.0))
    factor = b.fdiv(splat(element, 1.0), b.select(none, splat(element, 1.0), total))
    factor = broadcast(fn, factor, lanes)
    with fn.loop(0, end, lanes) as i:
        where = fn.at(row, i, element)
        fn.store(b.fmul(fn.load(where, wide), factor), where)


def _larger(fn: KernelFunction, x: ir.Value, y: ir.Value) -> ir.Value:
    # NaN in x is dropped here and comes back through exp
    return fn.builder.select(fn.builder.fcmp_ordered(">", x, y), x, y)


def _sum(fn: KernelFunction, x: ir.Value, y: ir.Value) -> ir.Value:
    return fn.builder.fadd(x, y)


def reduce_lanes(fn: KernelFunction, value: ir.Value, join: object) -> ir.Value:
    """Fold the lanes of a vector pairwise, halves first."""
    assert callable(join)
    lanes = value.type.count if isinstance(value.type, ir.VectorType) else 1
    while lanes > 1:
        lanes //= 2
        value = join(fn, part(fn, value, 0, lanes), part(fn, value, lanes, lanes))
    return value
