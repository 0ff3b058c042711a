"""Where a tensor is not zero: places in ascending order, and their number, which the run gives.

The number is read by a step between kernels; what uses the places after it has their size. NonZero
and Compress with a computed condition are made of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import BOOL, I64
from braze.expr.index import to_expr
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store
from braze.expr.scalar import Expr, axis, binary, cast, const, load, red, select, unary
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.index.gather import Gather
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.shape import reshape
from braze.ops.move.slice_pad import single_store, slice_axis
from braze.ops.writing.arguments import Types, array_of, normalize_axis, tensor_specs, type_of


@dataclass(frozen=True)
class Places(Op):
    """Of a vector of n elements the positions that are not zero, ascending, and how many they are.

    Both are int64. The first output has n + 1 elements, of which those behind the positions mean
    nothing (the reference has zeros there).
    """

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        n = type_of(inputs, 0).shape[0]
        return TensorType(I64, (n + 1,)), TensorType(I64, (1,))

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        found = np.flatnonzero(array_of(inputs, 0))
        places = np.zeros(array_of(inputs, 0).size + 1, np.int64)
        places[: found.size] = found
        return places, np.array([found.size], np.int64)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x = type_of(inputs, 0)
        element = load(0, (axis(0),), x.dtype)
        if x.dtype is not BOOL:
            element = unary("not", binary("eq", element, const(0, x.dtype)))
        # what is zero goes to the last place, which nobody reads
        at = select(element, red(0, I64), to_expr(x.shape[0]))
        nest = LoopNest(
            outer=(),
            inner=x.shape,
            reduces=(Reduce("sum", cast(element, I64)),),
            stores=(
                Store(0, (at,), axis(0), over="scan_exclusive"),
                Store(1, (to_expr(0),), red(0, I64)),
            ),
            serial=True,
        )
        return Nest(LoopKernel(tensor_specs(inputs), tensor_specs(outputs), (nest,)))


@dataclass(frozen=True)
class Coordinates(Op):
    """Of row-major positions in a tensor of `shape` the index along every axis: [rank, count]."""

    shape: tuple[Dim, ...]

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(I64, (len(self.shape), *type_of(inputs, 0).shape)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        found = np.unravel_index(array_of(inputs, 0), dims.static(self.shape))
        return (np.stack(found).astype(np.int64),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        place = load(0, (axis(1),), I64)
        rest: Dim = 1
        found: list[Expr] = []
        for size in reversed(self.shape):
            at = place if rest == 1 else binary("floordiv", place, to_expr(rest))
            rest = rest * size
            found.insert(0, at if len(found) == len(self.shape) - 1 else _mod(at, size))
        out = found[-1]
        for i in reversed(range(len(found) - 1)):
            out = select(binary("eq", axis(0), const(i, I64)), found[i], out)
        return Nest(single_store(inputs, outputs[0], out))


def _mod(a: Expr, size: Dim) -> Expr:
    return binary("mod", a, to_expr(size))


def find_places(g: GraphBuilder, condition: Value, hint: str) -> Value:
    """The row-major positions where a tensor is not zero, of a size that the run gives.

    Where the content is known, so is the size.
    """
    content = g.array(condition)
    if content is not None:
        return g.constant(np.flatnonzero(content).astype(np.int64), hint)
    n = dims.product(condition.shape)
    places, count = g.add(Places(), reshape(g, condition, (n,)))
    size = g.read_size(count, 0, 0, n, hint)
    return slice_axis(g, places, 0, 0, size)


def import_non_zero(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """NonZero: the index of every element that is not zero, along every axis."""
    x = n.need(0)
    return (g.add1(Coordinates(x.shape or (1,)), find_places(g, x, _hint(n))),)


def import_compress(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Compress: a Gather of the places where the condition holds."""
    x, condition = n.need(0), n.need(1)
    picked = find_places(g, condition, _hint(n))
    given = n.attr("axis")
    if given is None:
        return (g.add1(Gather(0), reshape(g, x, (dims.product(x.shape),)), picked),)
    return (g.add1(Gather(normalize_axis(int(given), len(x.shape), n)), x, picked),)


def _hint(n: OnnxNode) -> str:
    return f"{n.name or n.op_type}_count"
