"""TopK by counting ranks, and ops whose result size is known only for constant inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, axis, binary, const, load, red, select, unary
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.index.gather import Gather, GatherElements
from braze.ops.index.scatter import ScatterElements
from braze.ops.lowering import Decompose, Lowering, Nest, Pointwise
from braze.ops.move.shape import reshape
from braze.ops.move.slice_pad import slice_axis
from braze.ops.writing.arguments import (
    Types,
    array_of,
    at_least,
    known_sizes,
    normalize_axis,
    tensor_specs,
    type_of,
)
from braze.ops.writing.indexing import axes, ilt
from braze.ops.writing.precision import widened

# ranks are counted with size ** 2 comparisons
MAX_TOPK_SIZE = 1 << 15


@dataclass(frozen=True)
class Rank(Op):
    """The place of each element in the sorted order of its axis (int64).

    Stable: of equal elements the first comes first. NaN counts as larger than every number.
    """

    axis: int
    largest: bool

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(I64, type_of(inputs, 0).shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        order = sorted_order(array_of(inputs, 0), self.axis, self.largest)
        ranks = np.empty_like(order)
        places = np.arange(order.shape[self.axis], dtype=np.int64)
        shape = [-1 if i == self.axis else 1 for i in range(order.ndim)]
        np.put_along_axis(ranks, order, np.broadcast_to(places.reshape(shape), order.shape),
                          self.axis)  # fmt: skip
        return (ranks,)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x = type_of(inputs, 0)
        mine, other = list(axes(x.rank)), list(axes(x.rank))
        other[self.axis] = axis(x.rank)
        a = widened(load(0, tuple(other), x.dtype))
        b = widened(load(0, tuple(mine), x.dtype))
        before = _less(b, a) if self.largest else _less(a, b)
        after = _less(a, b) if self.largest else _less(b, a)
        tie = binary("and", unary("not", after), ilt(other[self.axis], mine[self.axis]))
        ahead = select(binary("or", before, tie), const(1, I64), const(0, I64))
        nest = LoopNest(
            x.shape,
            (x.shape[self.axis],),
            (Reduce("sum", ahead),),
            (Store(0, tuple(mine), red(0, I64)),),
        )
        return Nest(LoopKernel(tensor_specs((x,)), (TensorSpec(I64, x.shape),), (nest,)))


def _less(a: Expr, b: Expr) -> Expr:
    """a < b with NaN above everything."""
    less = binary("lt", a, b)
    if not a.dtype.is_float:
        return less
    nan = binary("and", unary("isnan", b), unary("not", unary("isnan", a)))
    return binary("or", less, nan)


def sorted_order(x: Array, k: int, largest: bool) -> Array:
    """Stable argsort along axis k, NaN above everything."""
    if not largest:
        return np.argsort(x, axis=k, kind="stable")
    flipped = np.flip(x, k)
    order = np.flip(np.argsort(flipped, axis=k, kind="stable"), k)
    return np.asarray(x.shape[k] - 1 - order)


@dataclass(frozen=True)
class Iota(Op):
    """An int64 tensor that holds its own index on `axis`."""

    shape: tuple[Dim, ...]
    axis: int

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(I64, self.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        size = dims.number(self.shape[self.axis])
        steps = [-1 if i == self.axis else 1 for i in range(len(self.shape))]
        row = np.arange(size, dtype=np.int64).reshape(steps)
        return (np.broadcast_to(row, dims.static(self.shape)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        return Pointwise(axis(self.axis))


@dataclass(frozen=True)
class TopK(Op):
    """The k largest (or smallest) elements of `axis` in order, and their indices (int64)."""

    axis: int
    k: Dim
    largest: bool

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        size = x.shape[self.axis]
        at_least(size, self.k, ctx, "TopK axis")
        shape = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return TensorType(x.dtype, shape), TensorType(I64, shape)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = array_of(inputs, 0)
        order = sorted_order(x, self.axis, self.largest)
        order = order.take(np.arange(dims.number(self.k)), axis=self.axis)
        return np.take_along_axis(x, order, self.axis), order

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        def build(g: GraphBuilder, x: Value) -> tuple[Value, ...]:
            ranks = g.add1(Rank(self.axis, self.largest), x)
            places = g.add1(Iota(x.shape, self.axis))
            order = g.add1(ScatterElements(self.axis), places, ranks, places)
            best = slice_axis(g, order, self.axis, 0, self.k)
            return g.add1(GatherElements(self.axis), x, best), best

        return Decompose(build)


def import_top_k(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """TopK: k is an attribute before opset 10; largest and sorted came with 11. The result is
    always sorted."""
    x = n.need(0)
    if not x.shape:
        raise ShapeError(f"node {n.name!r} (TopK): the input is a scalar; give it an axis")
    k = int(n.attr("k")) if n.opset < 10 else known_sizes(n, g, 1, "k")[0]
    where = normalize_axis(int(n.attr("axis", -1)), len(x.shape), n)
    high = g.range_of(x.shape[where])[1]
    if high > MAX_TOPK_SIZE:
        raise n.unsupported(
            f"an axis of up to {high} elements is too long; {MAX_TOPK_SIZE} are supported"
        )
    return g.add(TopK(where, k, bool(n.attr("largest", 1))), x)


def import_non_zero(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """NonZero of a constant; of other tensors the result has no size before the run."""
    content = g.array(n.need(0))
    if content is None:
        raise n.unsupported("the size of its result depends on data; make the input constant")
    found = np.nonzero(content) if content.ndim else np.nonzero(content.reshape(1))
    return (g.constant(np.stack(found).astype(np.int64), "non_zero"),)


def import_compress(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Compress with a constant condition: a Gather of the places where it holds."""
    x, condition = n.need(0), g.array(n.need(1))
    if condition is None:
        raise n.unsupported("the size of its result depends on data; make the condition constant")
    picked = g.constant(np.flatnonzero(condition).astype(np.int64), "compress")
    given = n.attr("axis")
    if given is None:
        flat = g.range_of(_count(x))
        if flat[0] != flat[1]:
            raise n.unsupported("compressing a flattened tensor of dynamic size; give an axis")
        return (g.add1(Gather(0), reshape(g, x, (flat[0],)), picked),)
    return (g.add1(Gather(normalize_axis(int(given), len(x.shape), n)), x, picked),)


def _count(x: Value) -> Dim:
    total: Dim = 1
    for d in x.shape:
        total = total * d
    return total
