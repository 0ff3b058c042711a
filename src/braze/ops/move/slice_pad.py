"""Slice and Pad: a window of a tensor, and a tensor inside a larger frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.errors import DTypeError, ShapeError
from braze.expr.index import (
    all_of,
    axes,
    clamp,
    iadd,
    imin,
    imod,
    imul,
    isub,
    to_expr,
    within,
)
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import Expr, axis, const, load, select, unary
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op, Perm, Permuted
from braze.ops.lowering import Lowering, Nest, Pointwise, View
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
from braze.ops.writing.axes import permuted
from braze.ops.writing.grown import check_grown
from braze.ops.writing.run_axes import picked, spread
from braze.ops.writing.run_contents import is_run_size, settled

PAD_MODES = ("constant", "reflect", "edge", "wrap")


@dataclass(frozen=True)
class Slice(Op):
    """out[i..] = x[starts + i * steps], `sizes` elements per axis; all resolved and in range."""

    starts: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    steps: tuple[int, ...]

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        if not len(self.starts) == len(self.sizes) == len(self.steps) == x.rank:
            raise ShapeError(f"Slice: {len(self.starts)} starts for a tensor of rank {x.rank}")
        return (TensorType(x.dtype, self.sizes),)

    def _slices(self) -> tuple[slice, ...]:
        out = []
        for start, size, step in zip(self.starts, self.sizes, self.steps, strict=True):
            stop = dims.number(start) + dims.number(size) * step
            out.append(slice(start, stop if stop >= 0 else None, step) if size else slice(0, 0))
        return tuple(out)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (array_of(inputs, 0)[self._slices()],)

    def known(self, contents: Arrays, types: Types, ctx: InferContext) -> tuple[Array, ...] | None:
        if contents[0] is None or not dims.is_static(self.starts + self.sizes):
            return None
        return (contents[0][self._slices()],)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        starts, sizes = permuted(self.starts, perm), permuted(self.sizes, perm)
        return Slice(starts, sizes, permuted(self.steps, perm)), perm

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        index = tuple(
            iadd(start, imul(axis(i), step))
            for i, (start, step) in enumerate(zip(self.starts, self.steps, strict=True))
        )
        shape = type_of(inputs, 0).shape
        return View(index, reshape=shape == self.sizes and all(s == 1 for s in self.steps))


def slice_axis(g: GraphBuilder, x: Value, k: int, start: Dim, size: Dim) -> Value:
    """Elements start .. start+size-1 of axis k."""
    starts: list[Dim] = [0] * len(x.shape)
    sizes = list(x.shape)
    starts[k], sizes[k] = start, size
    return g.add1(Slice(tuple(starts), tuple(sizes), (1,) * len(sizes)), x)


@dataclass(frozen=True)
class Pad(Op):
    """`begins` and `ends` elements added per axis (negative: removed).

    mode: constant (with `value`, or with the scalar input 1 when value is None), reflect (mirror
    without repeating the border), edge (repeat the border), wrap (periodic).
    """

    mode: str
    begins: tuple[Dim, ...]
    ends: tuple[Dim, ...]
    value: bool | int | float | None = 0

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        if not len(self.begins) == len(self.ends) == x.rank:
            raise ShapeError(f"Pad: {len(self.begins)} begins for a tensor of rank {x.rank}")
        if self.value is None and type_of(inputs, 1).dtype != x.dtype:
            raise DTypeError(
                f"Pad: the value has type {type_of(inputs, 1).dtype} and the data {x.dtype}; "
                f"use one type"
            )
        shape = tuple(b + d + e for b, d, e in zip(self.begins, x.shape, self.ends, strict=True))
        for d, size in zip(x.shape, shape, strict=True):
            at_least(size, 0, ctx, "Pad result")
            if self.mode != "constant":
                check_grown(d, size, ctx, f"Pad in mode {self.mode}")
        return (TensorType(x.dtype, shape),)

    def _source(self, i: int, n: int, size: int) -> Array:
        """Input index of every output position on axis i; -1 where the fill value goes."""
        p: Array = np.arange(size) - dims.number(self.begins[i])
        if self.mode == "constant":
            return np.where((p >= 0) & (p < n), p, -1)
        if self.mode == "edge":
            return np.clip(p, 0, n - 1)
        if self.mode == "wrap":
            return np.mod(p, n)
        period = max(2 * (n - 1), 1)
        m = np.mod(p, period)
        return np.minimum(m, period - m) if n > 1 else np.zeros_like(p)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = array_of(inputs, 0)
        value = array_of(inputs, 1).reshape(()) if self.value is None else self.value
        out = x
        for i, (b, e) in enumerate(zip(self.begins, self.ends, strict=True)):
            n = x.shape[i]
            source = self._source(i, n, n + dims.number(b) + dims.number(e))
            if n == 0:
                shape = (*out.shape[:i], len(source), *out.shape[i + 1 :])
                out = np.full(shape, value, dtype=x.dtype)
                continue
            out = out.take(np.maximum(source, 0), axis=i)
            if (source < 0).any():
                out[(slice(None),) * i + (source < 0,)] = value
        return (out,)

    def known(self, contents: Arrays, types: Types, ctx: InferContext) -> tuple[Array, ...] | None:
        if contents[0] is None or self.value is None or not dims.is_static(self.begins + self.ends):
            return None
        return self.reference(contents[0])

    def _index(self, i: int, n: Dim) -> Expr:
        """Input index on axis i for the output's axis i; outside only where the value goes."""
        p = isub(axis(i), self.begins[i])
        if self.begins[i] == 0 == self.ends[i]:
            return p
        if self.mode == "constant":
            return p
        if self.mode == "edge":
            return clamp(p, n)
        if self.mode == "wrap":
            return imod(p, n)
        reach = (self.begins[i], self.ends[i], n)
        if dims.is_static(reach) and max(dims.static(reach[:2])) < dims.number(n):
            mirrored = unary("abs", isub(n - 1, unary("abs", to_expr(p))))
            return clamp(isub(n - 1, mirrored), n)
        period = dims.dmax(2 * (n - 1), 1)
        m = imod(p, period)
        return clamp(imin(m, isub(period, m)), n)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        begins, ends = permuted(self.begins, perm), permuted(self.ends, perm)
        return replace(self, begins=begins, ends=ends), perm

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x = type_of(inputs, 0)
        index = tuple(self._index(i, n) for i, n in enumerate(x.shape))
        inside = None
        if self.mode == "constant":
            inside = all_of(
                [
                    within(isub(axis(i), b), 0, n)
                    for i, (b, e, n) in enumerate(zip(self.begins, self.ends, x.shape, strict=True))
                    if not b == 0 == e
                ]
            )
        if 0 in x.shape and self.value is not None:
            return Pointwise(const(self.value, x.dtype))
        if self.value is not None:
            return View(index, inside, const(self.value, x.dtype) if inside is not None else None)
        element = load(0, index, x.dtype)
        if inside is not None:
            fill = load(1, tuple(to_expr(0) for _ in type_of(inputs, 1).shape), x.dtype)
            element = select(inside, element, fill)
        return Nest(single_store(inputs, outputs[0], element))


def single_store(inputs: Types, output: TensorType, element: Expr) -> LoopKernel:
    """A kernel that computes every element of one output independently."""
    store = Store(0, axes(output.rank), element)
    return LoopKernel(
        tensor_specs(inputs),
        (TensorSpec(output.dtype, output.shape),),
        (LoopNest(output.shape, (), (), (store,)),),
    )


def _pads(n: OnnxNode, g: GraphBuilder, size: Dim, begin: Dim, end: Dim) -> tuple[Dim, Dim]:
    """What is added in front and behind; of the run's sizes only such that are not negative."""
    if is_run_size(g, begin):
        begin = settled(g, begin + size, None, f"{n.name}_begin") - size
    if is_run_size(g, begin) or is_run_size(g, end):
        whole = settled(g, begin + size + end, None, f"{n.name}_size")
        end = whole - size - begin
    return begin, end


def import_pad(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Pad: attributes before opset 11, inputs from then on; axes from 18; wrap from 19."""
    x = n.need(0)
    rank = len(x.shape)
    mode = n.attr("mode", "constant")
    if mode not in PAD_MODES:
        raise n.unsupported(f"mode {mode!r} is not one of {', '.join(PAD_MODES)}")
    value: bool | int | float | None = 0
    extra: tuple[Value, ...] = ()
    if n.opset < 11:
        pads = tuple(n.attr("pads", n.attr("paddings", ())))
        value = n.attr("value", 0.0)
    else:
        pads = run_sizes(n, g, 1, "pads")
        fill = n.input(2) if mode == "constant" else None
        given = g.array(fill)
        if fill is not None and given is not None and given.size:
            value = given.reshape(-1)[0].item()
        elif fill is not None and given is None:
            value, extra = None, (fill,)
    if x.dtype.is_float and value is not None:
        value = float(value)
    which = tuple(range(rank))
    axes = run_sizes(n, g, 3, "axes") if n.opset >= 18 and n.input(3) is not None else which
    if not dims.is_static(axes) and len(pads) == 2 * len(axes):
        picked(g, axes, rank, n.name)
        pads = spread(axes, pads[: len(axes)], (0,) * rank) + spread(
            axes, pads[len(axes) :], (0,) * rank
        )
    else:
        which = tuple(normalize_axis(a, rank, n) for a in dims.static(axes))
    if len(pads) != 2 * len(which) or len(set(which)) != len(which):
        raise ShapeError(
            f"node {n.name!r} (Pad): {len(pads)} pads for {len(which)} axes; "
            f"give a begin and an end for each"
        )
    begins: list[Dim] = [0] * rank
    ends: list[Dim] = [0] * rank
    for i, a in enumerate(which):
        begins[a], ends[a] = _pads(n, g, x.shape[a], pads[i], pads[len(which) + i])
    return (g.add1(Pad(mode, tuple(begins), tuple(ends), value), x, *extra),)
