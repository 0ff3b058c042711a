"""Concat and Split along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.errors import DTypeError, ShapeError
from braze.expr.index import axes, iadd
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import load
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op, Perm, Permuted
from braze.ops.lowering import Decompose, Lowering, Nest
from braze.ops.move.slice_pad import slice_axis
from braze.ops.writing.arguments import (
    Arrays,
    Types,
    array_of,
    at_least,
    normalize_axis,
    run_sizes,
    tensor_specs,
    type_of,
)
from braze.ops.writing.run_contents import settled

# pieces that one kernel joins; compile time grows faster than a kernel's number of loop nests, and
# an op of so many pieces has small ones, which may as well be copied twice
MAX_PIECES = 64


@dataclass(frozen=True)
class Concat(Op):
    """The inputs one after another along `axis`."""

    axis: int

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        first = type_of(inputs, 0)
        shape = list(first.shape)
        for k in range(1, len(inputs)):
            t = type_of(inputs, k)
            if t.rank != first.rank:
                raise ShapeError(f"Concat: input {k} has rank {t.rank}, input 0 has {first.rank}")
            if t.dtype != first.dtype:
                raise DTypeError(
                    f"Concat: input {k} is {t.dtype}, input 0 is {first.dtype}; insert a Cast"
                )
            for i, d in enumerate(t.shape):
                where = f"Concat input {k} axis {i}"
                shape[i] = shape[i] + d if i == self.axis else ctx.unify(shape[i], d, where)
        return (TensorType(first.dtype, tuple(shape)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        arrays = [array_of(inputs, k) for k in range(len(inputs))]
        return (np.concatenate(arrays, axis=self.axis),)

    def known(self, contents: Arrays, types: Types, ctx: InferContext) -> tuple[Array, ...] | None:
        arrays = [c for c in contents if c is not None]
        if len(arrays) != len(contents):
            return None
        return (np.concatenate(arrays, axis=self.axis),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        if len(inputs) > MAX_PIECES:
            return Decompose(self._build_groups)
        nests: list[LoopNest] = []
        offset: Dim = 0
        for k in range(len(inputs)):
            t = type_of(inputs, k)
            index = axes(t.rank)
            place = tuple(iadd(x, offset) if i == self.axis else x for i, x in enumerate(index))
            store = Store(0, place, load(k, index, t.dtype))
            nests.append(LoopNest(t.shape, (), (), (store,)))
            offset = offset + t.shape[self.axis]
        spec = TensorSpec(outputs[0].dtype, outputs[0].shape)
        return Nest(LoopKernel(tensor_specs(inputs), (spec,), tuple(nests)))

    def _build_groups(self, g: GraphBuilder, *inputs: Value) -> tuple[Value, ...]:
        """Groups of few pieces first, then the groups: kernels of bounded size, often equal."""
        count = -(-len(inputs) // MAX_PIECES)
        size = -(-len(inputs) // count)
        groups = [inputs[i : i + size] for i in range(0, len(inputs), size)]
        joined = [g.add1(self, *group) if len(group) > 1 else group[0] for group in groups]
        return (g.add1(self, *joined),)


@dataclass(frozen=True)
class Split(Op):
    """One output per entry of `sizes`, consecutive along `axis`."""

    axis: int
    sizes: tuple[Dim, ...]

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        total: Dim = 0
        for s in self.sizes:
            total = total + s
        ctx.unify(total, x.shape[self.axis], "Split sizes")
        head, tail = x.shape[: self.axis], x.shape[self.axis + 1 :]
        return tuple(TensorType(x.dtype, (*head, s, *tail)) for s in self.sizes)

    def _parts(self, x: Array) -> tuple[Array, ...]:
        ends = np.cumsum(dims.static(self.sizes[:-1]))
        return tuple(np.split(x, ends, axis=self.axis))

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return self._parts(array_of(inputs, 0))

    def known(self, contents: Arrays, types: Types, ctx: InferContext) -> tuple[Array, ...] | None:
        if contents[0] is None or not dims.is_static(self.sizes):
            return None
        return self._parts(contents[0])

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        return replace(self, axis=perm[self.axis]), perm

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        def build(g: GraphBuilder, x: Value) -> tuple[Value, ...]:
            parts: list[Value] = []
            offset: Dim = 0
            for s in self.sizes:
                parts.append(slice_axis(g, x, self.axis, offset, s))
                offset = offset + s
            return tuple(parts)

        return Decompose(build)


def import_concat(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Concat; the axis may be negative from opset 11."""
    first = n.need(0)
    k = normalize_axis(int(n.attr("axis", 1)), len(first.shape), n)
    inputs = [n.need(i) for i in range(len(n.inputs))]
    return (first,) if len(inputs) == 1 else (g.add1(Concat(k), *inputs),)


def _even_sizes(n: OnnxNode, g: GraphBuilder, size: Dim, count: int) -> tuple[Dim, ...]:
    """Equal parts; from opset 18 the last one takes what is left when they do not come out even."""
    exact = dims.exact_div(size, count)
    if exact is not None:
        return (exact,) * count
    if n.opset < 18:
        if isinstance(size, int):
            raise ShapeError(
                f"node {n.name!r} (Split): {size} does not divide into {count} equal parts; "
                f"give the sizes"
            )
        return (dims.floordiv(size, count),) * count
    part = dims.ceildiv(size, count)
    last = at_least(size - part * (count - 1), 0, g, f"node {n.name!r} (Split) last part")
    return (part,) * (count - 1) + (last,)


def import_split(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Split: sizes are an attribute before opset 13, an input from then on."""
    x = n.need(0)
    k = normalize_axis(int(n.attr("axis", 0)), len(x.shape), n)
    sizes: tuple[Dim, ...]
    if n.opset < 13 and n.attr("split") is not None:
        sizes = tuple(n.attr("split"))
    elif n.opset >= 13 and n.input(1) is not None:
        given = run_sizes(n, g, 1, "split sizes")
        sizes = tuple(settled(g, d, x.shape[k], f"{n.name}_{i}") for i, d in enumerate(given))
    else:
        count = int(n.attr("num_outputs", n.num_outputs))
        sizes = _even_sizes(n, g, x.shape[k], count)
    return g.add(Split(k, sizes), x)
