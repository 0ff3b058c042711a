"""Reductions over axes: sum, mean, max, min, prod, norms, log-sums, arg extremes.

Half types accumulate in float32 and round once. Integer sums wrap. The empty set follows numpy's
neutral elements: sum 0, prod 1, max the least and min the largest value of the type, mean NaN
(0 for integers). max and min propagate NaN; arg extremes take the first NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from braze.core import dims
from braze.core.dims import Dim, Shape
from braze.core.dtypes import BOOL, F64, I64, U8, DType
from braze.core.errors import DTypeError
from braze.expr import scalar
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.loops import Reduce as ReduceLoop
from braze.expr.scalar import Expr
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext, Op, Perm, Permuted
from braze.ops.lowering import Lowering, Nest, Pointwise
from braze.ops.pointwise.elementwise_numpy import truncated_divide
from braze.ops.writing.axes import without
from braze.ops.writing.broadcast import normalize_axes, normalize_axis
from braze.ops.writing.precision import narrow, present, widen, widened
from braze.ops.writing.size_arithmetic import known_binary

REDUCE_NAMES: Final = {
    "sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin",
    "prod": "ReduceProd", "l1": "ReduceL1", "l2": "ReduceL2", "logsum": "ReduceLogSum",
    "logsumexp": "ReduceLogSumExp", "sumsquare": "ReduceSumSquare",
}  # fmt: skip
# reductions that shape arithmetic uses: the two-operand op and the start value
SIZE_FOLDS: Final[Mapping[str, tuple[str, int | None]]] = {
    "sum": ("add", 0),
    "prod": ("mul", 1),
    "max": ("max", None),
    "min": ("min", None),
}
ROOTED: Final = frozenset({"l2", "logsum", "logsumexp"})  # integers go through float64


def kept_index(rank: int, axes: Sequence[int]) -> tuple[Expr, ...]:
    """Index of a rank-`rank` input in a nest whose outer axes are the axes kept and whose inner
    axes are `axes`, both in ascending order."""
    kept = [a for a in range(rank) if a not in axes]
    position = {a: i for i, a in enumerate([*kept, *axes])}
    return tuple(scalar.axis(position[a]) for a in range(rank))


def reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """`shape` with `axes` set to 1 or dropped."""
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def reduced_index(rank: int, axes: Sequence[int], keepdims: bool) -> tuple[Expr, ...]:
    """Index of the output in the nest of `kept_index`."""
    kept = [a for a in range(rank) if a not in axes]
    if not keepdims:
        return tuple(scalar.axis(i) for i in range(len(kept)))
    return tuple(
        scalar.const(0, I64) if a in axes else scalar.axis(kept.index(a)) for a in range(rank)
    )


def count_expr(sizes: Sequence[Dim], dtype: DType) -> Expr:
    """The number of reduced elements as a value of `dtype`."""
    return scalar.cast(scalar.dim(dims.product(sizes)), dtype)


def specs(types: Sequence[TensorType | None]) -> tuple[TensorSpec, ...]:
    """Tensor specs of the present types."""
    return tuple(TensorSpec(t.dtype, t.shape) for t in types if t is not None)


@dataclass(frozen=True)
class Reduce(Op):
    """Reduce over `axes` (ascending, counted from the front) by `kind`, a key of REDUCE_NAMES.

    With no axes only the elementwise part remains (squares, absolute values, logarithms).
    """

    kind: str
    axes: tuple[int, ...]
    keepdims: bool

    @property
    def name(self) -> str:
        return REDUCE_NAMES[self.kind]

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        normalize_axes(self.axes, x.rank, self.name)
        if x.dtype is BOOL and self.kind not in ("max", "min"):
            raise DTypeError(f"{self.name}: element type bool does not fit; insert a Cast")
        return (TensorType(x.dtype, reduced_shape(x.shape, self.axes, self.keepdims)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        with np.errstate(all="ignore"):
            return (narrow(self._numpy(self._working(x)), x),)

    def _working(self, x: Array) -> Array:
        if self.kind in ROOTED and x.dtype.kind != "f":
            return x.astype(np.float64)
        return widen(x)

    def _numpy(self, x: Array) -> Any:
        where: dict[str, Any] = {"axis": self.axes, "keepdims": self.keepdims}
        if self.kind in ("max", "min"):
            function = np.max if self.kind == "max" else np.min
            return function(x, initial=neutral(self.kind, x.dtype), **where)
        if self.kind == "prod":
            return np.prod(x, dtype=x.dtype, **where)
        if self.kind == "logsumexp":
            top = np.max(x, initial=-np.inf, axis=self.axes, keepdims=True)
            top = np.where(np.isinf(top), x.dtype.type(0), top)
            total = np.asarray(np.log(np.sum(np.exp(x - top), **where)))
            return total + top.reshape(total.shape)
        maps = {"l1": np.abs, "l2": np.square, "sumsquare": np.square}
        terms = maps.get(self.kind, np.asarray)(x)
        total = np.sum(terms, dtype=x.dtype, **where)
        if self.kind == "mean":
            count = np.prod([x.shape[a] for a in self.axes], dtype=np.int64)
            if x.dtype.kind != "f":
                return truncated_divide(np.asarray(total), np.asarray(count, x.dtype))
            return total / x.dtype.type(count)
        if self.kind == "l2":
            return np.sqrt(total)
        return np.log(total) if self.kind == "logsum" else total

    def known(
        self,
        contents: Sequence[Array | None],
        types: Sequence[TensorType | None],
        ctx: InferContext,
    ) -> tuple[Array, ...] | None:
        x, t = contents[0], types[0]
        if x is None or t is None or not t.dtype.is_int or self.kind not in SIZE_FOLDS:
            return None
        op, start = SIZE_FOLDS[self.kind]
        kept = [a for a in range(x.ndim) if a not in self.axes]
        count = math.prod(x.shape[a] for a in self.axes)
        rows = np.transpose(x, (*kept, *self.axes)).reshape(*(x.shape[a] for a in kept), count)
        terms = [rows[..., i] for i in range(count)]
        if start is not None:
            terms.insert(0, np.full(rows.shape[:-1], start, dtype=object))
        if not terms:
            return None
        total: Array | None = np.asarray(terms[0], dtype=object)
        for term in terms[1:]:
            total = known_binary(op, total, np.asarray(term, dtype=object), t.dtype, ctx.range_of)
        shape = tuple(
            1 if i in self.axes else d
            for i, d in enumerate(x.shape)
            if self.keepdims or i not in self.axes
        )
        return None if total is None else (total.reshape(shape),)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        moved = replace(self, axes=tuple(sorted(perm[a] for a in self.axes)))
        return moved, perm if self.keepdims else without(self.axes, perm)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = present(inputs, 1, self.name)
        if not self.axes:
            return Pointwise(self._finish([self._term(self._in(scalar.hole(0, x.dtype)), None)], x))
        element = self._in(scalar.load(0, kept_index(x.rank, self.axes), x.dtype))
        reduces = self._reduces(element)
        results = [scalar.red(i, r.expr.dtype) for i, r in enumerate(reduces)]
        nest = LoopNest(
            outer=tuple(d for i, d in enumerate(x.shape) if i not in self.axes),
            inner=tuple(x.shape[a] for a in self.axes),
            reduces=reduces,
            stores=(
                Store(
                    0,
                    reduced_index(x.rank, self.axes, self.keepdims),
                    self._finish(results, x),
                ),
            ),
        )
        return Nest(LoopKernel(specs(inputs), specs(outputs), (nest,)))

    def _in(self, x: Expr) -> Expr:
        """One element in the type the reduction works in."""
        if x.dtype is BOOL:
            return scalar.cast(x, U8)
        if x.dtype.is_int and self.kind in ROOTED:
            return scalar.cast(x, F64)
        return widened(x)

    def _reduces(self, element: Expr) -> tuple[ReduceLoop, ...]:
        if self.kind in ("max", "min", "prod"):
            return (ReduceLoop(self.kind, element),)
        if self.kind == "logsumexp":
            top = ReduceLoop("max", element)
            shift = finite_or_zero(scalar.red(0, element.dtype))
            return (top, ReduceLoop("sum", self._term(element, shift)))
        return (ReduceLoop("sum", self._term(element, None)),)

    def _term(self, x: Expr, shift: Expr | None) -> Expr:
        """What is summed for one element."""
        if self.kind == "l1":
            return scalar.unary("abs", x) if x.dtype.is_signed else x
        if self.kind in ("l2", "sumsquare"):
            return scalar.binary("mul", x, x)
        if self.kind == "logsumexp" and shift is not None:
            return scalar.unary("exp", scalar.binary("sub", x, shift))
        return x

    def _finish(self, results: Sequence[Expr], x: TensorType) -> Expr:
        """The output element from the reductions' results."""
        total = results[-1]
        if self.kind == "mean":
            count = count_expr([x.shape[a] for a in self.axes], total.dtype)
            total = scalar.binary("div", total, count)
        elif self.kind == "l2":
            total = scalar.unary("sqrt", total)
        elif self.kind == "logsum":
            total = scalar.unary("log", total)
        elif self.kind == "logsumexp" and len(results) == 2:
            total = scalar.binary("add", scalar.unary("log", total), finite_or_zero(results[0]))
        return scalar.cast(total, x.dtype)


def finite_or_zero(x: Expr) -> Expr:
    """`x`, or 0 where it is an infinity (NaN stays)."""
    return scalar.select(scalar.unary("isinf", x), scalar.const(0, x.dtype), x)


def neutral(kind: str, dtype: np.dtype[Any]) -> Any:
    """The start value of a max or min reduction."""
    if dtype.kind == "b":
        return kind == "min"
    if dtype.kind == "f":
        return -np.inf if kind == "max" else np.inf
    info = np.iinfo(dtype)
    return info.min if kind == "max" else info.max


@dataclass(frozen=True)
class ArgReduce(Op):
    """Index (int64) of the extreme along `axis`; kind "max" or "min".

    The first extreme wins, or the last one when `last`; NaN counts as the extreme.
    """

    kind: str
    axis: int
    keepdims: bool
    last: bool = False

    @property
    def name(self) -> str:
        return "ArgMax" if self.kind == "max" else "ArgMin"

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        normalize_axis(self.axis, x.rank, self.name)
        if x.dtype is BOOL:
            raise DTypeError(f"{self.name}: element type bool does not fit; insert a Cast")
        return (TensorType(I64, reduced_shape(x.shape, (self.axis,), self.keepdims)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        function = np.argmax if self.kind == "max" else np.argmin
        if self.last:
            flipped = function(np.flip(x, self.axis), axis=self.axis, keepdims=self.keepdims)
            found = x.shape[self.axis] - 1 - flipped
        else:
            found = function(x, axis=self.axis, keepdims=self.keepdims)
        return (np.asarray(found, np.int64),)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        moved = replace(self, axis=perm[self.axis])
        return moved, perm if self.keepdims else without((self.axis,), perm)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = present(inputs, 1, self.name)
        axes = (self.axis,)
        element = widened(scalar.load(0, kept_index(x.rank, axes), x.dtype))
        kind = f"arg{self.kind}" + ("_last" if self.last else "")
        nest = LoopNest(
            outer=reduced_shape(x.shape, axes, False),
            inner=(x.shape[self.axis],),
            reduces=(ReduceLoop(kind, element),),
            stores=(Store(0, reduced_index(x.rank, axes, self.keepdims), scalar.red(0, I64)),),
        )
        return Nest(LoopKernel(specs(inputs), specs(outputs), (nest,)))
