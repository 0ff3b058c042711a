"""Gather, GatherElements and GatherND: elements picked by integer indices.

Negative indices count from the end. An index outside its axis raises ExecutionError at run time
(the loops check every load whose index depends on data) and IndexError in the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dims import Dim
from braze.core.dtypes import I32, I64
from braze.core.errors import DTypeError, ShapeError
from braze.expr.index import axes, to_expr, wrap
from braze.expr.scalar import Expr, cast, load
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.shape import reshape
from braze.ops.move.slice_pad import single_store, slice_axis
from braze.ops.writing.arguments import (
    Arrays,
    Types,
    array_of,
    at_least,
    normalize_axis,
    type_of,
)


def require_index_type(t: TensorType, where: str) -> None:
    """Raise DTypeError unless the indices are int32 or int64."""
    if t.dtype not in (I32, I64):
        raise DTypeError(f"{where}: indices are {t.dtype}; use int32 or int64")


def load_index(slot: int, index: Sequence[Expr], t: TensorType, size: Dim) -> Expr:
    """An index read from a tensor, negative values counted from the end of `size`."""
    return wrap(cast(load(slot, tuple(index), t.dtype), I64), size)


@dataclass(frozen=True)
class Gather(Op):
    """numpy.take(data, indices, axis)."""

    axis: int

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        data, indices = type_of(inputs, 0), type_of(inputs, 1)
        require_index_type(indices, "Gather")
        shape = data.shape[: self.axis] + indices.shape + data.shape[self.axis + 1 :]
        return (TensorType(data.dtype, shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        data, indices = array_of(inputs, 0), array_of(inputs, 1)
        return (np.take(data, indices.astype(np.int64), axis=self.axis),)

    def known(self, contents: Arrays, types: Types, ctx: InferContext) -> tuple[Array, ...] | None:
        data, indices = contents[0], contents[1]
        if data is None or indices is None or not all(isinstance(i, int) for i in indices.flat):
            return None
        if type_of(types, 0).dtype.is_float:
            return None  # no shape arithmetic: a wrong index is an error at run time
        size = data.shape[self.axis]
        if any(not -size <= i < size for i in indices.flat):
            raise ShapeError(
                f"Gather: an index is outside 0..{size - 1} of axis {self.axis}; correct it"
            )
        return (np.take(data, indices.astype(np.int64), axis=self.axis),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        data, indices = type_of(inputs, 0), type_of(inputs, 1)
        out = axes(outputs[0].rank)
        k, r = self.axis, indices.rank
        picked = load_index(1, out[k : k + r], indices, data.shape[k])
        element = load(0, (*out[:k], picked, *out[k + r :]), data.dtype)
        return Nest(single_store(inputs, outputs[0], element))


@dataclass(frozen=True)
class GatherElements(Op):
    """out[i, j, ..] = data[i, .., indices[i, j, ..], ..] with the picked index on `axis`."""

    axis: int

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        data, indices = type_of(inputs, 0), type_of(inputs, 1)
        require_index_type(indices, "GatherElements")
        check_element_indices(self.axis, data, indices, ctx, "GatherElements")
        return (TensorType(data.dtype, indices.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        data, indices = array_of(inputs, 0), array_of(inputs, 1).astype(np.int64)
        grid: list[Array] = list(np.indices(indices.shape, sparse=True))
        grid[self.axis] = indices
        return (data[tuple(grid)],)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        data, indices = type_of(inputs, 0), type_of(inputs, 1)
        out = list(axes(outputs[0].rank))
        out[self.axis] = load_index(1, axes(indices.rank), indices, data.shape[self.axis])
        return Nest(single_store(inputs, outputs[0], load(0, tuple(out), data.dtype)))


def check_element_indices(
    k: int, data: TensorType, indices: TensorType, ctx: InferContext, where: str
) -> None:
    """Equal ranks, and no index axis but `k` longer than the data's."""
    if data.rank != indices.rank:
        raise ShapeError(f"{where}: data has rank {data.rank} and indices {indices.rank}")
    for i, (a, b) in enumerate(zip(data.shape, indices.shape, strict=True)):
        if i != k and ctx.range_of(b - a)[0] > 0:
            raise ShapeError(f"{where}: axis {i} of indices ({b}) is longer than the data's ({a})")
        if i != k:
            at_least(a, b, ctx, f"{where} axis {i}: data against indices")


@dataclass(frozen=True)
class GatherND(Op):
    """Slices of data picked by the tuples in the last axis of indices (after `batch_dims`)."""

    batch_dims: int = 0

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        data, indices = type_of(inputs, 0), type_of(inputs, 1)
        require_index_type(indices, "GatherND")
        if indices.rank == 0 or not isinstance(indices.shape[-1], int):
            raise ShapeError("GatherND: the last axis of indices needs a fixed size")
        b, k = self.batch_dims, indices.shape[-1]
        if not 0 <= b < min(data.rank, indices.rank) or b + k > data.rank:
            raise ShapeError(
                f"GatherND: {k}-tuples after {b} batch axes do not index data of rank {data.rank}"
            )
        for i in range(b):
            ctx.unify(data.shape[i], indices.shape[i], f"GatherND batch axis {i}")
        return (TensorType(data.dtype, indices.shape[:-1] + data.shape[b + k :]),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        data, indices = array_of(inputs, 0), array_of(inputs, 1).astype(np.int64)
        b, k = self.batch_dims, indices.shape[-1]
        batch = [
            np.arange(data.shape[i]).reshape((-1,) + (1,) * (indices.ndim - 2 - i))
            for i in range(b)
        ]
        picked = [indices[..., j] for j in range(k)]
        where = (*batch, *picked)
        if not where:
            return (np.broadcast_to(data, indices.shape[:-1] + data.shape),)
        return (data[where],)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        data, indices = type_of(inputs, 0), type_of(inputs, 1)
        b, k = self.batch_dims, indices.shape[-1]
        assert isinstance(k, int)
        out = axes(outputs[0].rank)
        head, tail = out[: indices.rank - 1], out[indices.rank - 1 :]
        picked = tuple(
            load_index(1, (*head, to_expr(j)), indices, data.shape[b + j]) for j in range(k)
        )
        element = load(0, (*out[:b], *picked, *tail), data.dtype)
        return Nest(single_store(inputs, outputs[0], element))


def import_gather(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Gather; one known index that is in range becomes a slice, which moves no data."""
    data, indices = n.need(0), n.need(1)
    k = normalize_axis(int(n.attr("axis", 0)), len(data.shape), n)
    content, size = g.sizes(indices), data.shape[k]
    one = content.reshape(-1)[0] if content is not None and content.size == 1 else None
    if isinstance(one, int) and g.sizes(data) is None and g.range_of(size)[0] >= max(one + 1, -one):
        picked = slice_axis(g, data, k, one if one >= 0 else size + one, 1)
        shape = data.shape[:k] + indices.shape + data.shape[k + 1 :]
        return (reshape(g, picked, shape),)
    return (g.add1(Gather(k), data, indices),)


def import_gather_elements(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """GatherElements (opset 11 on)."""
    k = normalize_axis(int(n.attr("axis", 0)), len(n.need(0).shape), n)
    return (g.add1(GatherElements(k), n.need(0), n.need(1)),)


def import_gather_nd(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """GatherND (opset 11 on; batch_dims from 12)."""
    shape = n.need(1).shape
    if shape and not isinstance(shape[-1], int):
        raise n.unsupported(f"the last axis of indices has the dynamic size {shape[-1]}; fix it")
    return (g.add1(GatherND(int(n.attr("batch_dims", 0))), n.need(0), n.need(1)),)
