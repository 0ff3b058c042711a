"""ScatterElements, ScatterND, TensorScatter and OneHot.

The data is copied, then the updates are applied one after another in row-major order, so that of
several updates of one element the last one stays and reductions see all of them. Indices outside
raise ExecutionError at run time and IndexError in the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import BOOL, I64
from braze.core.errors import DTypeError, ShapeError
from braze.expr.index import axes, iadd, ieq, imod, to_expr, wrap
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import Expr, axis, cast, load, select
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.index.gather import check_element_indices, load_index, require_index_type
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.slice_pad import single_store
from braze.ops.pointwise.cast import Cast
from braze.ops.writing.arguments import (
    Types,
    array_of,
    at_least,
    known_sizes,
    normalize_axis,
    tensor_specs,
    type_of,
)
from braze.ops.writing.precision import same_dtype
from braze.ops.writing.run_contents import run_contents, settled

# ONNX reduction -> how a store updates the element
REDUCTIONS = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}
UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _apply(out: Array, where: Any, updates: Array, reduction: str) -> None:
    if reduction == "none":
        out[where] = updates
    else:
        UFUNCS[reduction].at(out, where, updates)


def _scatter_kernel(
    inputs: Types, out: TensorType, place: tuple[Expr, ...], over: Sequence[Dim], mode: str,
    slot: int,
) -> LoopKernel:  # fmt: skip
    """Copy input 0, then store the updates of input `slot` at `place` for every point of `over`."""
    updates = type_of(inputs, slot)
    copy = Store(0, axes(out.rank), load(0, axes(out.rank), out.dtype))
    put = Store(0, place, load(slot, axes(updates.rank), updates.dtype), mode=mode)
    return LoopKernel(
        tensor_specs(inputs),
        (TensorSpec(out.dtype, out.shape),),
        (
            LoopNest(out.shape, (), (), (copy,)),
            LoopNest(tuple(over), (), (), (put,), serial=True),
        ),
    )


def _check_reduction(reduction: str, t: TensorType, where: str) -> None:
    if t.dtype is BOOL and reduction in ("add", "mul", "max", "min"):
        raise DTypeError(f"{where}: reduction {reduction!r} on bool; insert a Cast")


@dataclass(frozen=True)
class ScatterElements(Op):
    """Inputs data, indices, updates: data[.., indices[i, j, ..], ..] = updates[i, j, ..] with the
    index on `axis`, combined by `reduction` (a key of REDUCTIONS)."""

    axis: int
    reduction: str = "none"

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        data, indices, updates = (type_of(inputs, i) for i in range(3))
        require_index_type(indices, "ScatterElements")
        same_dtype((data, updates), "ScatterElements")
        _check_reduction(self.reduction, data, "ScatterElements")
        check_element_indices(self.axis, data, indices, ctx, "ScatterElements")
        if updates.rank != indices.rank:
            raise ShapeError("ScatterElements: indices and updates need one shape")
        for a, b in zip(indices.shape, updates.shape, strict=True):
            ctx.unify(a, b, "ScatterElements updates")
        return (data,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        data, indices, updates = (array_of(inputs, i) for i in range(3))
        grid: list[Array] = list(np.indices(indices.shape, sparse=True))
        grid[self.axis] = indices.astype(np.int64)
        out = data.copy()
        _apply(out, tuple(np.broadcast_arrays(*grid)), updates, self.reduction)
        return (out,)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        data, indices = type_of(inputs, 0), type_of(inputs, 1)
        place = list(axes(indices.rank))
        place[self.axis] = load_index(1, axes(indices.rank), indices, data.shape[self.axis])
        mode = REDUCTIONS[self.reduction]
        return Nest(_scatter_kernel(inputs, outputs[0], tuple(place), indices.shape, mode, 2))


@dataclass(frozen=True)
class ScatterND(Op):
    """Inputs data, indices, updates: data[tuple in the last axis of indices] = slice of updates."""

    reduction: str = "none"

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        data, indices, updates = (type_of(inputs, i) for i in range(3))
        require_index_type(indices, "ScatterND")
        same_dtype((data, updates), "ScatterND")
        _check_reduction(self.reduction, data, "ScatterND")
        k = indices.shape[-1] if indices.rank else None
        if not isinstance(k, int) or k > data.rank:
            raise ShapeError(f"ScatterND: tuples of {k} do not index data of rank {data.rank}")
        want = indices.shape[:-1] + data.shape[k:]
        if updates.rank != len(want):
            raise ShapeError(f"ScatterND: updates have rank {updates.rank} instead of {len(want)}")
        for a, b in zip(want, updates.shape, strict=True):
            ctx.unify(a, b, "ScatterND updates")
        return (data,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        data, indices, updates = (array_of(inputs, i) for i in range(3))
        out = data.copy()
        k = indices.shape[-1]
        wide = np.moveaxis(indices.astype(np.int64), -1, 0)
        if k == 0:
            for update in updates.reshape(-1, *data.shape):
                _apply(out, ..., update, self.reduction)
            return (out,)
        _apply(out, tuple(wide), updates, self.reduction)
        return (out,)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        data, indices, updates = (type_of(inputs, i) for i in range(3))
        k, head = dims.number(indices.shape[-1]), axes(indices.rank - 1)
        picked = tuple(load_index(1, (*head, to_expr(j)), indices, data.shape[j]) for j in range(k))
        place = (*picked, *axes(updates.rank - len(head), len(head)))
        mode = REDUCTIONS[self.reduction]
        return Nest(_scatter_kernel(inputs, outputs[0], place, updates.shape, mode, 2))


@dataclass(frozen=True)
class TensorScatter(Op):
    """Inputs cache, update and optional start per batch entry (axis 0): the update overwrites the
    cache from its start on `axis`, modulo the axis when `circular`."""

    axis: int
    circular: bool = False

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        cache, update = type_of(inputs, 0), type_of(inputs, 1)
        same_dtype((cache, update), "TensorScatter")
        if cache.rank != update.rank or self.axis == 0:
            raise ShapeError("TensorScatter: cache and update need one rank and an axis after 0")
        for i, (a, b) in enumerate(zip(cache.shape, update.shape, strict=True)):
            if i != self.axis:
                ctx.unify(a, b, f"TensorScatter axis {i}")
            elif not self.circular:
                at_least(a, b, ctx, f"TensorScatter axis {i}: cache against update")
        if len(inputs) > 2 and inputs[2] is not None:
            require_index_type(inputs[2], "TensorScatter")
            if inputs[2].rank != 1:
                raise ShapeError("TensorScatter: write_indices need rank 1")
            ctx.unify(inputs[2].shape[0], cache.shape[0], "TensorScatter batch")
        return (cache,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        cache, update = array_of(inputs, 0), array_of(inputs, 1)
        given = inputs[2] if len(inputs) > 2 else None
        starts = np.zeros(cache.shape[0], np.int64) if given is None else given.astype(np.int64)
        out = cache.copy()
        for b, start in enumerate(starts):
            place = start + np.arange(update.shape[self.axis])
            if self.circular:
                place = place % cache.shape[self.axis]
            elif len(place) and (place[0] < 0 or place[-1] >= cache.shape[self.axis]):
                raise IndexError(f"TensorScatter: position {place[-1]} is outside the cache")
            np.moveaxis(out[b], self.axis - 1, 0)[place] = np.moveaxis(update[b], self.axis - 1, 0)
        return (out,)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        cache, update = type_of(inputs, 0), type_of(inputs, 1)
        place = list(axes(update.rank))
        starts = inputs[2] if len(inputs) > 2 else None
        if starts is not None:
            start = cast(load(2, (axis(0),), starts.dtype), I64)
            place[self.axis] = iadd(start, place[self.axis])
        if self.circular:
            place[self.axis] = imod(place[self.axis], cache.shape[self.axis])
        return Nest(_scatter_kernel(inputs, outputs[0], tuple(place), update.shape, "set", 1))


@dataclass(frozen=True)
class OneHot(Op):
    """Inputs indices and values [off, on]: a new axis of size `depth` with `on` at the index.

    Negative indices count from the end; an index outside gives `off` everywhere.
    """

    axis: int
    depth: Dim

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        indices, values = type_of(inputs, 0), type_of(inputs, 1)
        if values.shape != (2,):
            raise ShapeError(f"OneHot: values have shape {list(values.shape)}; give [off, on]")
        shape = (*indices.shape[: self.axis], self.depth, *indices.shape[self.axis :])
        return (TensorType(values.dtype, shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        indices, values = array_of(inputs, 0).astype(np.int64), array_of(inputs, 1)
        depth = dims.number(self.depth)
        hot = np.expand_dims(np.where(indices < 0, indices + depth, indices), self.axis)
        at = np.arange(depth).reshape(-1, *(1,) * (indices.ndim - self.axis))
        return (np.where(hot == at, values[1], values[0]),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        indices, values = type_of(inputs, 0), type_of(inputs, 1)
        out = axes(outputs[0].rank)
        at = (*out[: self.axis], *out[self.axis + 1 :])
        hot = wrap(cast(load(0, at, indices.dtype), I64), self.depth)
        on, off = (load(1, (to_expr(i),), values.dtype) for i in (1, 0))
        return Nest(single_store(inputs, outputs[0], select(ieq(hot, out[self.axis]), on, off)))


def _reduction(n: OnnxNode) -> str:
    reduction = n.attr("reduction", "none")
    if reduction not in REDUCTIONS:
        raise n.unsupported(f"reduction {reduction!r} is not one of {', '.join(REDUCTIONS)}")
    return str(reduction)


def import_scatter_elements(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """ScatterElements (Scatter before opset 11); add and mul from opset 16, max and min from 18."""
    k = normalize_axis(int(n.attr("axis", 0)), len(n.need(0).shape), n)
    return (g.add1(ScatterElements(k, _reduction(n)), n.need(0), n.need(1), n.need(2)),)


def import_scatter_nd(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """ScatterND (opset 11 on); add and mul from opset 16, max and min from 18."""
    shape = n.need(1).shape
    if shape and not isinstance(shape[-1], int):
        raise n.unsupported(f"the last axis of indices has the dynamic size {shape[-1]}; fix it")
    return (g.add1(ScatterND(_reduction(n)), n.need(0), n.need(1), n.need(2)),)


def import_tensor_scatter(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """TensorScatter (opset 24 on)."""
    k = normalize_axis(int(n.attr("axis", -2)), len(n.need(0).shape), n)
    mode = n.attr("mode", "linear")
    if mode not in ("linear", "circular"):
        raise n.unsupported(f"mode {mode!r} is unknown; use linear or circular")
    op = TensorScatter(k, mode == "circular")
    return (g.add1(op, n.need(0), n.need(1), n.input(2)),)


def import_one_hot(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """OneHot; the depth may be a number of any type."""
    given = n.need(1)
    depth = g.array(given)
    if depth is not None:
        size: Dim = int(depth.reshape(-1)[0])
    else:
        whole = given if given.dtype.is_int else g.add1(Cast(I64), given)
        found = run_contents(g, whole)
        size = known_sizes(n, g, 1, "depth")[0] if found is None else found.reshape(-1)[0]
        size = settled(g, size, None, f"{n.name}_depth")
    k = normalize_axis(int(n.attr("axis", -1)), len(n.need(0).shape) + 1, n)
    return (g.add1(OneHot(k, size), n.need(0), n.need(2)),)
