"""MaxUnpool, Col2Im, ReverseSequence and Det: small ops that gather or scatter by formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.expr.index import (
    all_of,
    axes,
    iadd,
    idiv,
    ieq,
    ilt,
    imod,
    imul,
    isub,
    to_expr,
    within,
)
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, binary, cast, const, load, red, select
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.index.gather import require_index_type
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.slice_pad import Pad, single_store
from braze.ops.pool.window import ints_attr
from braze.ops.writing.arguments import (
    Types,
    array_of,
    known_ints,
    known_sizes,
    normalize_axis,
    tensor_specs,
    type_of,
)
from braze.ops.writing.precision import compute_type, narrow, require_float, widen, widened

MAX_DET_SIZE = 4


@dataclass(frozen=True)
class MaxUnpool(Op):
    """Zeros of `shape` with x at the flat row-major positions of the second input."""

    shape: tuple[Dim, ...]

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, where = type_of(inputs, 0), type_of(inputs, 1)
        require_index_type(where, "MaxUnpool")
        for a, b in zip(x.shape, where.shape, strict=True):
            ctx.unify(a, b, "MaxUnpool indices")
        return (TensorType(x.dtype, self.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, where = array_of(inputs, 0), array_of(inputs, 1)
        y = np.zeros(math.prod(dims.static(self.shape)), x.dtype)
        y[where.reshape(-1)] = x.reshape(-1)
        return (y.reshape(self.shape),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, where, out = type_of(inputs, 0), type_of(inputs, 1), outputs[0]
        position = cast(load(1, axes(x.rank), where.dtype), I64)
        place = []
        for i in range(len(self.shape)):
            at = idiv(position, dims.product(self.shape[i + 1 :]))
            # the first axis keeps what is too large, so that it is caught as out of range
            place.append(at if i == 0 else imod(at, self.shape[i]))
        clear = Store(0, axes(out.rank), const(0, x.dtype))
        put = Store(0, tuple(place), load(0, axes(x.rank), x.dtype))
        nests = (
            LoopNest(out.shape, (), (), (clear,)),
            LoopNest(x.shape, (), (), (put,), serial=True),
        )
        spec = TensorSpec(out.dtype, out.shape)
        return Nest(LoopKernel(tensor_specs(inputs), (spec,), nests))


@dataclass(frozen=True)
class Col2Im(Op):
    """[N, C * taps, blocks] -> [N, C, *image]: every column adds its block to the image."""

    image: tuple[int, ...]
    block: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    def _counts(self) -> tuple[int, ...]:
        """Blocks along each axis."""
        half = len(self.image)
        return tuple(
            (n + self.pads[i] + self.pads[half + i] - (k - 1) * d - 1) // s + 1
            for i, (n, k, d, s) in enumerate(
                zip(self.image, self.block, self.dilations, self.strides, strict=True)
            )
        )

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        taps = math.prod(self.block)
        rows = x.shape[1] if x.rank == 3 else None
        if rows is None or taps < 1 or (isinstance(rows, int) and rows % taps):
            raise ShapeError(
                f"Col2Im: {x} does not hold columns of blocks {list(self.block)}; give it "
                f"[N, C * {taps}, blocks]"
            )
        ctx.unify(dims.mod(rows, taps), 0, f"Col2Im rows that blocks of {taps} leave over")
        channels = dims.floordiv(rows, taps)
        ctx.unify(x.shape[2], dims.product(self._counts()), "Col2Im blocks")
        return (TensorType(x.dtype, (x.shape[0], channels, *self.image)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = widen(array_of(inputs, 0))
        half, counts = len(self.image), self._counts()
        channels = x.shape[1] // int(np.prod(self.block))
        padded = [n + self.pads[i] + self.pads[half + i] for i, n in enumerate(self.image)]
        y = np.zeros((x.shape[0], channels, *padded), x.dtype)
        columns = x.reshape(x.shape[0], channels, *self.block, *counts)
        for tap in np.ndindex(*self.block):
            places = tuple(
                slice(t * d, t * d + (c - 1) * s + 1, s)
                for t, d, c, s in zip(tap, self.dilations, counts, self.strides, strict=True)
            )
            where = (slice(None), slice(None), *places)
            taken = (slice(None), slice(None), *tap)
            y[where] += columns[taken]
        begins = (0, 0, *(-p for p in self.pads[:half]))
        ends = (0, 0, *(-p for p in self.pads[half:]))
        y = Pad("constant", begins, ends, 0).reference(y)[0]
        return (narrow(y, array_of(inputs, 0)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, out = type_of(inputs, 0), outputs[0]
        wide = compute_type(x.dtype)
        batch, channel, *place = axes(out.rank)
        taps = axes(len(self.block), out.rank)
        row, column = channel, to_expr(0)
        conditions: list[Expr] = []
        for i, count in enumerate(self._counts()):
            p = isub(iadd(place[i], self.pads[i]), imul(taps[i], self.dilations[i]))
            q = idiv(p, self.strides[i])
            conditions += [ieq(imod(p, self.strides[i]), 0)] if self.strides[i] > 1 else []
            conditions.append(within(q, 0, count))
            row = iadd(imul(row, self.block[i]), taps[i])
            column = iadd(imul(column, count), q)
        element = widened(load(0, (batch, row, column), x.dtype))
        inside = all_of(conditions)
        assert inside is not None
        term = select(inside, element, const(0, wide))
        store = Store(0, axes(out.rank), cast(red(0, wide), out.dtype))
        nest = LoopNest(out.shape, self.block, (Reduce("sum", term),), (store,))
        spec = TensorSpec(out.dtype, out.shape)
        return Nest(LoopKernel(tensor_specs(inputs), (spec,), (nest,)))


@dataclass(frozen=True)
class ReverseSequence(Op):
    """Reverse the first lengths[b] elements of `time_axis` of every entry b of `batch_axis`.

    A length that is negative or beyond the axis is an index out of range.
    """

    batch_axis: int
    time_axis: int

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, lengths = type_of(inputs, 0), type_of(inputs, 1)
        require_index_type(lengths, "ReverseSequence")
        if lengths.rank != 1 or self.batch_axis == self.time_axis:
            raise ShapeError("ReverseSequence: needs one length per batch entry and two axes")
        ctx.unify(lengths.shape[0], x.shape[self.batch_axis], "ReverseSequence lengths")
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, lengths = array_of(inputs, 0), array_of(inputs, 1).astype(np.int64)
        moved = np.moveaxis(x, (self.batch_axis, self.time_axis), (0, 1))
        t = np.arange(moved.shape[1])
        wrong = lengths[(lengths < 0) | (lengths > moved.shape[1])]
        if len(wrong) and x.size:  # where nothing is, nothing is read
            raise IndexError(f"ReverseSequence: length {wrong[0]} is outside 0..{moved.shape[1]}")
        source = np.where(t < lengths[:, None], lengths[:, None] - 1 - t, t)
        y = moved[np.arange(len(lengths))[:, None], source]
        return (np.moveaxis(y, (0, 1), (self.batch_axis, self.time_axis)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, lengths = type_of(inputs, 0), type_of(inputs, 1)
        index = list(axes(x.rank))
        t = index[self.time_axis]
        length = cast(load(1, (index[self.batch_axis],), lengths.dtype), I64)
        place = select(ilt(t, length), isub(isub(length, 1), t), t)
        index[self.time_axis] = select(ilt(length, 0), to_expr(-1), place)
        return Nest(single_store(inputs, outputs[0], load(0, tuple(index), x.dtype)))


@dataclass(frozen=True)
class Det(Op):
    """Determinants of the matrices in the last two axes, by expansion (up to MAX_DET_SIZE)."""

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x = type_of(inputs, 0)
        require_float(x.dtype, "Det")
        size = x.shape[-1] if x.rank >= 2 else None
        if not isinstance(size, int) or x.shape[-2] != size or not 1 <= size <= MAX_DET_SIZE:
            raise ShapeError(f"Det: {x} is not a stack of matrices of 1 to {MAX_DET_SIZE} rows")
        return (TensorType(x.dtype, x.shape[:-2]),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = array_of(inputs, 0)
        wide = widen(x)

        def minor(row: int, columns: tuple[int, ...]) -> Array:
            """As kernels expand it: elimination makes other results of infinities."""
            total = np.zeros(x.shape[:-2], wide.dtype)
            for i, c in enumerate(columns):
                rest = columns[:i] + columns[i + 1 :]
                part = wide[..., row, c] * minor(row + 1, rest) if rest else wide[..., row, c]
                total = total - part if i % 2 else total + part
            return total

        with np.errstate(all="ignore"):
            return (narrow(minor(0, tuple(range(x.shape[-1]))), x),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x = type_of(inputs, 0)
        front = axes(x.rank - 2)

        def minor(row: int, columns: tuple[int, ...]) -> Expr:
            total: Expr | None = None
            for i, c in enumerate(columns):
                part = widened(load(0, (*front, to_expr(row), to_expr(c)), x.dtype))
                rest = columns[:i] + columns[i + 1 :]
                if rest:
                    part = binary("mul", part, minor(row + 1, rest))
                total = part if total is None else binary("sub" if i % 2 else "add", total, part)
            assert total is not None
            return total

        value = cast(minor(0, tuple(range(dims.number(x.shape[-1])))), x.dtype)
        return Nest(single_store(inputs, outputs[0], value))


def import_max_unpool(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """MaxUnpool: indices refer to the size that kernel, strides and pads give; a larger
    output_shape is filled with zeros at the ends."""
    x = n.need(0)
    rank = len(x.shape) - 2
    kernel = ints_attr(n, "kernel_shape", ())
    strides, pads = ints_attr(n, "strides", (1,) * rank), ints_attr(n, "pads", (0,) * 2 * rank)
    if rank < 1 or not len(kernel) == len(strides) == rank or len(pads) != 2 * rank:
        raise ShapeError(f"node {n.name!r} (MaxUnpool): attributes do not fit {rank} axes")
    shape = x.shape[:2] + tuple(
        (d - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i]
        for i, d in enumerate(x.shape[2:])
    )
    y = g.add1(MaxUnpool(shape), x, n.need(1))
    if n.input(2) is not None:
        wanted = known_sizes(n, g, 2, "output_shape")
        if len(wanted) != len(shape):
            raise ShapeError(f"node {n.name!r} (MaxUnpool): output_shape needs {len(shape)} sizes")
        extra = tuple(w - d for w, d in zip(wanted, shape, strict=True))
        if any(e != 0 for e in extra):
            y = g.add1(Pad("constant", (0,) * len(shape), extra, 0), y)
    return (y,)


def import_col2im(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Col2Im (opset 18 on) of fixed image and block shapes."""
    image, block = known_ints(n, g, 1, "image_shape"), known_ints(n, g, 2, "block_shape")
    rank = len(image)
    strides, dilations = (
        ints_attr(n, "strides", (1,) * rank),
        ints_attr(n, "dilations", (1,) * rank),
    )
    pads = ints_attr(n, "pads", (0,) * 2 * rank)
    if not len(block) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ShapeError(f"node {n.name!r} (Col2Im): attributes do not fit {rank} axes")
    return (g.add1(Col2Im(image, block, strides, dilations, pads), n.need(0)),)


def import_reverse_sequence(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """ReverseSequence (opset 10 on)."""
    rank = len(n.need(0).shape)
    batch = normalize_axis(int(n.attr("batch_axis", 1)), rank, n)
    time = normalize_axis(int(n.attr("time_axis", 0)), rank, n)
    return (g.add1(ReverseSequence(batch, time), n.need(0), n.need(1)),)


def import_det(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Det (opset 11 on) of small matrices."""
    shape = n.need(0).shape
    size = shape[-1] if shape else 0
    if not isinstance(size, int) or size > MAX_DET_SIZE:
        raise n.unsupported(f"matrices of {size} rows; up to {MAX_DET_SIZE} are supported")
    return (g.add1(Det(), n.need(0)),)
