"""Unique: elements or slices without repetitions, by a stable sort and the places where runs begin.

NaN are equal to each other and behind every number, as numpy's unique has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import BOOL, I64
from braze.expr.index import to_expr
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store
from braze.expr.scalar import axis, binary, cast, const, load, red, select, unary
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.index.gather import Gather
from braze.ops.index.places import find_places
from braze.ops.index.scatter import ScatterElements
from braze.ops.index.topk import MAX_TOPK_SIZE, Select
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.shape import Expand, reshape, transpose
from braze.ops.move.slice_pad import single_store, slice_axis
from braze.ops.writing.arguments import Types, array_of, normalize_axis, tensor_specs, type_of

MAX_COLUMNS: Final = 64  # of slices: each is one more sort


@dataclass(frozen=True)
class RunStarts(Op):
    """Of sorted vectors: whether element i is the first, or differs from i - 1 in one of them."""

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(BOOL, type_of(inputs, 0).shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        out = np.zeros(array_of(inputs, 0).shape, np.bool_)
        out[:1] = True
        for i in range(len(inputs)):
            x = array_of(inputs, i)
            with np.errstate(invalid="ignore"):
                differ = (x[1:] != x[:-1]) & ((x[1:] == x[1:]) | (x[:-1] == x[:-1]))
            out[1:] |= differ
        return (out,)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        before = binary("max", binary("sub", axis(0), const(1, I64)), const(0, I64))
        out = binary("eq", axis(0), const(0, I64))
        for slot, t in enumerate(tensor_specs(inputs)):
            x, y = load(slot, (axis(0),), t.dtype), load(slot, (before,), t.dtype)
            differ = unary("not", binary("eq", x, y))
            if t.dtype.is_float:
                differ = binary("and", differ, binary("or", binary("eq", x, x), binary("eq", y, y)))
            out = binary("or", out, differ)
        return Nest(single_store(inputs, outputs[0], out))


@dataclass(frozen=True)
class RunNumbers(Op):
    """Of the starts of runs: the number of the run that each element is in (int64)."""

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(I64, type_of(inputs, 0).shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (np.cumsum(array_of(inputs, 0), dtype=np.int64) - 1,)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        start = cast(load(0, (axis(0),), BOOL), I64)
        number = binary("sub", binary("add", red(0, I64), start), const(1, I64))
        nest = LoopNest(
            outer=(),
            inner=outputs[0].shape,
            reduces=(Reduce("sum", start),),
            stores=(Store(0, (axis(0),), number, over="scan_exclusive"),),
            serial=True,
        )
        return Nest(LoopKernel(tensor_specs(inputs), tensor_specs(outputs), (nest,)))


@dataclass(frozen=True)
class RunLengths(Op):
    """Of the places where runs begin, of `total` elements: how long each run is (int64)."""

    total: Dim

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(I64, type_of(inputs, 0).shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (np.diff(array_of(inputs, 0), append=dims.number(self.total)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        last = binary("sub", to_expr(outputs[0].shape[0]), const(1, I64))
        after = binary("min", binary("add", axis(0), const(1, I64)), last)
        end = select(binary("eq", axis(0), last), to_expr(self.total), load(0, (after,), I64))
        length = binary("sub", end, load(0, (axis(0),), I64))
        return Nest(single_store(inputs, outputs[0], length))


@dataclass(frozen=True)
class Positions(Op):
    """0, 1, 2, .. as int64, as many as the input has elements."""

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(I64, type_of(inputs, 0).shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (np.arange(array_of(inputs, 0).size),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        return Nest(single_store(inputs, outputs[0], axis(0)))


def import_unique(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Unique of all elements, or of the slices of an axis."""
    x = n.need(0)
    given = n.attr("axis")
    where = 0 if given is None else normalize_axis(int(given), len(x.shape), n)
    if given is None:
        x = reshape(g, x, (dims.product(x.shape),))
    front = [where, *(i for i in range(len(x.shape)) if i != where)]
    rows = transpose(g, x, front)
    y, *others = _unique(n, g, rows)
    back = [front.index(i) for i in range(len(front))]
    return (transpose(g, y, back), *others)[: max(1, n.num_outputs)]


def _unique(n: OnnxNode, g: GraphBuilder, rows: Value) -> tuple[Value, Value, Value, Value]:
    keys, count = _keys(n, g, rows), rows.shape[0]
    order: Value | None = None
    for key in reversed(keys):
        now = key if order is None else g.add1(Gather(0), key, order)
        turn = g.add1(Select(0, count, False), now)
        order = turn if order is None else g.add1(Gather(0), order, turn)
    assert order is not None, "there is a key"
    starts = g.add1(RunStarts(), *(g.add1(Gather(0), key, order) for key in keys))
    places = find_places(g, starts, f"{n.name or n.op_type}_count")
    first, lengths = g.add1(Gather(0), order, places), g.add1(RunLengths(count), places)
    numbers = g.add1(RunNumbers(), starts)
    if not n.attr("sorted", 1):
        turn = g.add1(Select(0, places.shape[0], False), first)
        place = g.add1(ScatterElements(0), _zeros(g, places.shape), turn, g.add1(Positions(), turn))
        first, lengths = g.add1(Gather(0), first, turn), g.add1(Gather(0), lengths, turn)
        numbers = g.add1(Gather(0), place, numbers)
    inverse = g.add1(ScatterElements(0), _zeros(g, (count,)), order, numbers)
    return g.add1(Gather(0), rows, first), first, inverse, lengths


def _zeros(g: GraphBuilder, shape: Sequence[Dim]) -> Value:
    return g.add1(Expand(tuple(shape)), g.constant(np.zeros(1, np.int64), "zeros"))


def _keys(n: OnnxNode, g: GraphBuilder, rows: Value) -> list[Value]:
    """What is compared, most significant first: one vector for each element of a slice."""
    count, *rest = rows.shape
    columns = dims.product(rest)
    if not isinstance(columns, int) or not 1 <= columns <= MAX_COLUMNS:
        raise n.unsupported(
            f"slices of {columns} elements are not, of 1 to {MAX_COLUMNS} are; "
            "reshape or cut the slices"
        )
    if isinstance(count, int) and count > MAX_TOPK_SIZE:
        raise n.unsupported(f"{count} elements are too many; {MAX_TOPK_SIZE} are supported")
    table = reshape(g, rows, (count, columns))
    return [reshape(g, slice_axis(g, table, 1, k, 1), (count,)) for k in range(columns)]
