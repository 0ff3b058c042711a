"""TopK by selection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim, dmin
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.index.gather import GatherElements
from braze.ops.lowering import Anchor, Decompose, Lowering, SelectSpec
from braze.ops.writing.arguments import (
    Types,
    array_of,
    at_least,
    normalize_axis,
    run_sizes,
    type_of,
)
from braze.ops.writing.run_contents import settled

# positions share a 64-bit word with 32-bit elements
MAX_TOPK_SIZE = (1 << 32) - 1


def sorted_order(x: Array, k: int, largest: bool) -> Array:
    """Stable argsort along axis k, NaN above everything."""
    if not largest:
        return np.argsort(x, axis=k, kind="stable")
    flipped = np.flip(x, k)
    order = np.flip(np.argsort(flipped, axis=k, kind="stable"), k)
    return np.asarray(x.shape[k] - 1 - order)


@dataclass(frozen=True)
class Select(Op):
    """Positions of the first `count` elements of `axis` in sorted order (int64).

    Stable: of equal elements the first comes first. NaN counts as larger than every number.
    """

    axis: int
    count: Dim
    largest: bool

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        at_least(x.shape[self.axis], self.count, ctx, "TopK axis")
        return (TensorType(I64, (*x.shape[: self.axis], self.count, *x.shape[self.axis + 1 :])),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        order = sorted_order(array_of(inputs, 0), self.axis, self.largest)
        return (order.take(np.arange(dims.number(self.count)), axis=self.axis),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        shape = type_of(inputs, 0).shape
        return Anchor(SelectSpec(shape, self.axis, self.count, self.largest), None)


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
        (order,) = Select(self.axis, self.k, self.largest).reference(x)
        return np.take_along_axis(x, order, self.axis), order

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        def build(g: GraphBuilder, x: Value) -> tuple[Value, ...]:
            best = g.add1(Select(self.axis, self.k, self.largest), x)
            return g.add1(GatherElements(self.axis), x, best), best

        return Decompose(build)


def import_top_k(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """TopK: k is an attribute before opset 10; largest and sorted came with 11. The result is
    always sorted."""
    x = n.need(0)
    if not x.shape:
        raise ShapeError(f"node {n.name!r} (TopK): the input is a scalar; give it an axis")
    where = normalize_axis(int(n.attr("axis", -1)), len(x.shape), n)
    k: Dim = int(n.attr("k")) if n.opset < 10 else run_sizes(n, g, 1, "k")[0]
    k = settled(g, k, x.shape[where], f"{n.name}_k")
    low, high = g.range_of(x.shape[where])
    if low <= MAX_TOPK_SIZE < high and not isinstance(x.shape[where], int):
        g.unify(dmin(x.shape[where], MAX_TOPK_SIZE), x.shape[where], "TopK axis below 2**32")
    elif high > MAX_TOPK_SIZE:
        raise n.unsupported(
            f"an axis of up to {high} elements is too long; {MAX_TOPK_SIZE} are supported"
        )
    return g.add(TopK(where, k, bool(n.attr("largest", 1))), x)
