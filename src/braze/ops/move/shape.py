"""Ops that rearrange elements or speak about sizes: Reshape, Transpose, Expand, Tile, Shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import I64, DType
from braze.core.errors import ShapeError
from braze.expr.index import (
    axes,
    broadcast_index,
    ieq,
    imod,
    ravel,
    reshape_index,
)
from braze.expr.scalar import Expr, axis, const, dim, select
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op, Perm, Permuted
from braze.ops.lowering import Lowering, Pointwise, View
from braze.ops.writing.arguments import (
    Arrays,
    Types,
    array_of,
    at_least,
    normalize_axis,
    object_array,
    run_sizes,
    type_of,
)
from braze.ops.writing.axes import behind_reshape, inverse, permuted
from braze.ops.writing.run_axes import picked, with_ones, without
from braze.ops.writing.run_contents import is_run_size, settled
from braze.ops.writing.run_shapes import expanded_size, shape_of_run


@dataclass(frozen=True)
class Reshape(Op):
    """The same elements in row-major order under the shape `shape` (every size resolved)."""

    narrow: ClassVar[bool] = True

    shape: tuple[Dim, ...]

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        ctx.unify(dims.product(x.shape), dims.product(self.shape), "Reshape element count")
        return (TensorType(x.dtype, self.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (array_of(inputs, 0).reshape(dims.static(self.shape)),)

    def known(self, contents: Arrays, types: Types, ctx: InferContext) -> tuple[Array, ...] | None:
        if contents[0] is None or not dims.is_static(self.shape):
            return None
        return (contents[0].reshape(self.shape),)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        """Where the Transpose tears no group of axes apart."""
        order = behind_reshape(x.shape, self.shape, perm)
        if order is None:
            return None
        return Reshape(tuple(self.shape[k] for k in order)), inverse(order)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        return View(reshape_index(type_of(inputs, 0).shape, self.shape), reshape=True)


@dataclass(frozen=True)
class Transpose(Op):
    """out axis i is input axis perm[i]."""

    narrow: ClassVar[bool] = True

    perm: tuple[int, ...]

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        if sorted(self.perm) != list(range(x.rank)):
            raise ShapeError(
                f"Transpose: perm {list(self.perm)} is not a permutation of the {x.rank} axes of "
                f"its input; correct perm"
            )
        return (TensorType(x.dtype, tuple(x.shape[p] for p in self.perm)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (array_of(inputs, 0).transpose(self.perm),)

    def known(self, contents: Arrays, types: Types, ctx: InferContext) -> tuple[Array, ...] | None:
        return None if contents[0] is None else (contents[0].transpose(self.perm),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        index = tuple(axis(self.perm.index(i)) for i in range(len(self.perm)))
        shape = type_of(inputs, 0).shape
        moved = [p for p in self.perm if shape[p] != 1]
        return View(index, reshape=moved == sorted(moved))


@dataclass(frozen=True)
class Expand(Op):
    """numpy.broadcast_to; `shape` is the shape of the result."""

    shape: tuple[Dim, ...]

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        if x.rank > len(self.shape):
            raise ShapeError(
                f"Expand: a tensor of rank {x.rank} does not fit the shape {list(self.shape)}; "
                f"give every axis a size"
            )
        for have, want in zip(x.shape, self.shape[len(self.shape) - x.rank :], strict=True):
            if have != 1:
                ctx.unify(have, want, "Expand")
        return (TensorType(x.dtype, self.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (np.broadcast_to(array_of(inputs, 0), dims.static(self.shape)),)

    def known(self, contents: Arrays, types: Types, ctx: InferContext) -> tuple[Array, ...] | None:
        if contents[0] is None or not dims.is_static(self.shape):
            return None
        return (np.broadcast_to(contents[0], dims.static(self.shape)),)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        extra = len(self.shape) - len(perm)
        wide = (*range(extra), *(p + extra for p in perm))
        return Expand(permuted(self.shape, wide)), wide

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        shape = type_of(inputs, 0).shape
        same = dims.product(shape) == dims.product(self.shape)
        return View(broadcast_index(shape, len(self.shape)), reshape=same)


@dataclass(frozen=True)
class Tile(Op):
    """numpy.tile with one repeat count per axis."""

    repeats: tuple[Dim, ...]

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        if len(self.repeats) != x.rank:
            raise ShapeError(
                f"Tile: {len(self.repeats)} repeats for a tensor of rank {x.rank}; give one an axis"
            )
        for r in self.repeats:
            at_least(r, 0, ctx, "Tile repeats")
        shape = tuple(d * r for d, r in zip(x.shape, self.repeats, strict=True))
        return (TensorType(x.dtype, shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (np.tile(array_of(inputs, 0), dims.static(self.repeats)),)

    def known(self, contents: Arrays, types: Types, ctx: InferContext) -> tuple[Array, ...] | None:
        if contents[0] is None or not dims.is_static(self.repeats):
            return None
        return (np.tile(contents[0], dims.static(self.repeats)),)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        return Tile(permuted(self.repeats, perm)), perm

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        shape = type_of(inputs, 0).shape
        index = tuple(
            dim(0) if d == 1 else axis(i) if self.repeats[i] == 1 else imod(axis(i), d)
            for i, d in enumerate(shape)
        )
        return View(index, reshape=all(r == 1 for r in self.repeats))


def _sizes_expr(sizes: Sequence[Dim], shape: Sequence[Dim]) -> Expr:
    """Element `axis(..)` of an int64 tensor of `shape` whose row-major content is `sizes`."""
    if not sizes:
        return const(0, I64)
    out = dim(sizes[-1])
    position = ravel(axes(len(shape)), shape)
    for i in range(len(sizes) - 2, -1, -1):
        out = select(ieq(position, i), dim(sizes[i]), out)
    return out


@dataclass(frozen=True)
class Shape(Op):
    """The sizes of axes start .. end-1 as an int64 vector."""

    start: int = 0
    end: int | None = None

    def _dims(self, x: TensorType) -> tuple[Dim, ...]:
        return x.shape[self.start : self.end]

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(I64, (len(self._dims(type_of(inputs, 0))),)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (np.array(array_of(inputs, 0).shape[self.start : self.end], np.int64),)

    def known(self, contents: Arrays, types: Types, ctx: InferContext) -> tuple[Array, ...] | None:
        sizes = self._dims(type_of(types, 0))
        return (object_array(sizes, (len(sizes),)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        sizes = self._dims(type_of(inputs, 0))
        return Pointwise(_sizes_expr(sizes, (len(sizes),)))


@dataclass(frozen=True)
class SizeTensor(Op):
    """An integer tensor (no inputs) whose row-major elements are sizes."""

    dims: tuple[Dim, ...]
    shape: tuple[int, ...]
    dtype: DType = I64

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, self.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (np.array(self.dims, self.dtype.numpy).reshape(self.shape),)

    def known(self, contents: Arrays, types: Types, ctx: InferContext) -> tuple[Array, ...] | None:
        return (object_array(self.dims, self.shape),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        e = _sizes_expr(self.dims, self.shape)
        return Pointwise(e if self.dtype is I64 else Expr("cast", (e,), self.dtype))


def transpose(g: GraphBuilder, x: Value, perm: Sequence[int]) -> Value:
    """`x` with its axes permuted; `x` itself when nothing moves."""
    if list(perm) == list(range(len(perm))):
        return x
    return g.add1(Transpose(tuple(perm)), x)


def reshape(g: GraphBuilder, x: Value, shape: Sequence[Dim]) -> Value:
    """`x` under another shape; `x` itself when the shape is the same."""
    return x if tuple(shape) == x.shape else g.add1(Reshape(tuple(shape)), x)


def _resolve_reshape(
    n: OnnxNode, g: GraphBuilder, source: tuple[Dim, ...], wanted: tuple[Dim, ...], allowzero: bool
) -> tuple[Dim, ...]:
    """The target shape with 0 (copy, unless allowzero) and -1 (the rest) filled in."""
    out: list[Dim] = []
    for i, d in enumerate(wanted):
        if d == 0 and not allowzero and i >= len(source):
            raise ShapeError(
                f"node {n.name!r} (Reshape): 0 at position {i} copies a size the input of rank "
                f"{len(source)} does not have; set allowzero=1 or give the size"
            )
        out.append(source[i] if d == 0 and not allowzero else d)
    unknown = [i for i, d in enumerate(out) if d == -1]
    if len(unknown) > 1 or (unknown and allowzero and 0 in out):
        raise ShapeError(
            f"node {n.name!r} (Reshape): shape {list(wanted)} leaves more than one size open; "
            f"give all sizes but one"
        )
    if unknown:
        total, given = dims.product(source), dims.product(out[: unknown[0]] + out[unknown[0] + 1 :])
        rest = dims.exact_div(total, given)
        if rest is None:
            if given == 0 or (isinstance(total, int) and isinstance(given, int)):
                raise ShapeError(
                    f"node {n.name!r} (Reshape): {total} elements do not fit the shape "
                    f"{list(wanted)}; correct the shape"
                )
            rest = dims.floordiv(total, given)
        out[unknown[0]] = rest
    return tuple(out)


def import_reshape(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Reshape: the shape is an input (opset 5 on); allowzero from opset 14."""
    x = n.need(0)
    wanted = run_sizes(n, g, 1, "the target shape")
    allowzero = bool(n.attr("allowzero", 0)) and n.opset >= 14
    if any(is_run_size(g, d) and g.range_of(d)[0] <= 0 for d in wanted):
        shape = shape_of_run(n, g, x.shape, wanted, allowzero)
        return (g.add1(Reshape(shape), x),)
    return (g.add1(Reshape(_resolve_reshape(n, g, x.shape, wanted, allowzero)), x),)


def import_flatten(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Flatten to a matrix at `axis` (0 .. rank; negative from opset 11)."""
    x = n.need(0)
    k = int(n.attr("axis", 1))
    if not -len(x.shape) <= k <= len(x.shape):
        raise ShapeError(f"node {n.name!r} (Flatten): axis {k} is outside rank {len(x.shape)}")
    k = k + len(x.shape) if k < 0 else k
    shape = (dims.product(x.shape[:k]), dims.product(x.shape[k:]))
    return (g.add1(Reshape(shape), x),)


def _axes_argument(n: OnnxNode, g: GraphBuilder) -> tuple[Dim, ...] | None:
    """`axes`: an attribute before opset 13, the optional input 1 from then on."""
    if n.opset < 13:
        given = n.attr("axes")
        return None if given is None else tuple(given)
    return None if n.input(1) is None else run_sizes(n, g, 1, "axes")


def import_squeeze(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Squeeze: without axes, every axis of size 1 (a size that may be 1 or not is refused)."""
    x = n.need(0)
    given = _axes_argument(n, g)
    if given is None:
        for d in x.shape:
            lo, hi = g.range_of(d)
            if not isinstance(d, int) and lo <= 1 <= hi and lo != hi:
                why = f"no axes are given and the size {d} may be 1 or more; give the axes"
                raise n.needs_content(0, why) if is_run_size(g, d) else n.unsupported(why)
        drop = {i for i, d in enumerate(x.shape) if g.range_of(d) == (1, 1)}
    elif not dims.is_static(given):
        mask = picked(g, given, len(x.shape), n.name)
        kept = without(g, x.shape, mask, len(x.shape) - len(given), n.name)
        return (g.add1(Reshape(kept), x),)
    else:
        drop = {normalize_axis(a, len(x.shape), n) for a in dims.static(given)}
        for a in drop:
            g.unify(x.shape[a], 1, f"node {n.name!r} (Squeeze) axis {a}")
    return (g.add1(Reshape(tuple(d for i, d in enumerate(x.shape) if i not in drop)), x),)


def import_unsqueeze(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Unsqueeze: axes count in the result."""
    x = n.need(0)
    given = _axes_argument(n, g)
    if given is None:
        raise n.unsupported("axes are missing; give them")
    if not dims.is_static(given):
        return (g.add1(Reshape(with_ones(g, x.shape, given, n.name)), x),)
    rank = len(x.shape) + len(given)
    new = {normalize_axis(a, rank, n) for a in dims.static(given)}
    if len(new) != len(given):
        raise ShapeError(f"node {n.name!r} (Unsqueeze): axes {list(given)} repeat; correct them")
    rest = iter(x.shape)
    return (g.add1(Reshape(tuple(1 if i in new else next(rest) for i in range(rank))), x),)


def import_transpose(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Transpose; the default reverses the axes."""
    x = n.need(0)
    perm = n.attr("perm")
    if perm is None:
        perm = reversed(range(len(x.shape)))
    return (g.add1(Transpose(tuple(perm)), x),)


def import_expand(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Expand: two-way broadcast of the input's shape and the given one."""
    x = n.need(0)
    wanted = run_sizes(n, g, 1, "the target shape")
    rank = max(len(wanted), len(x.shape))
    have = (1,) * (rank - len(x.shape)) + x.shape
    want = (1,) * (rank - len(wanted)) + wanted
    where = f"node {n.name!r} (Expand)"
    shape = tuple(expanded_size(n, g, a, b, where) for a, b in zip(have, want, strict=True))
    return (g.add1(Expand(shape), x),)


def import_tile(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Tile with repeats as an input (opset 6 on)."""
    repeats = run_sizes(n, g, 1, "repeats")
    sizes = tuple(settled(g, d, None, f"{n.name}_{i}") for i, d in enumerate(repeats))
    return (g.add1(Tile(sizes), n.need(0)),)


def import_shape(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Shape; start and end from opset 15."""
    rank = len(n.need(0).shape)
    start = int(n.attr("start", 0))
    end = int(n.attr("end", rank))
    start, end = (min(max(v + rank if v < 0 else v, 0), rank) for v in (start, end))
    return (g.add1(Shape(start, max(start, end)), n.need(0)),)


def import_size(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Size: the number of elements, a scalar."""
    return (g.add1(SizeTensor((dims.product(n.need(0).shape),), ())),)
