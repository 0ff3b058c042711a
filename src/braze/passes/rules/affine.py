"""Constant factors and shifts behind a convolution or matrix product go into its weights.

    (conv(x, w) + b) * s  ->  conv(x, w * s) + b * s        s: one value per output channel
    (conv(x, w) + b) + c  ->  conv(x, w) + (b + c)

This is how batch normalisation and learnable affine blocks disappear. Products are taken in
float64 and rounded once; results differ from the unfused ones by a few roundings of each term.
Half types are left alone: there the rounding of the weights would show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from braze.core.dtypes import F32, F64, DType
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Node, Value
from braze.ir.pattern import Const, Match, Var, call, one_of
from braze.ops.base import Array
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.conv import Conv
from braze.ops.product.conv_transpose import ConvTranspose
from braze.ops.product.matmul import MatMul
from braze.ops.writing.layout import channel_axis
from braze.passes.rewrite import Refusal, Rule
from braze.passes.rules.contents import as_float64, keeps_type, stored, vector_along

WIDE_TYPES: Final = (F32, F64)
X, WEIGHT, BIAS = Var("x"), Const("weight"), Const("bias")
HEAVY: Final = one_of(
    call(Conv, X, WEIGHT, name="heavy"),
    call(ConvTranspose, X, WEIGHT, name="heavy"),
    call(MatMul, X, WEIGHT, name="heavy"),
)


def _is_add(op: Binary) -> bool:
    return op.op == "add"


def _is_mul(op: Binary) -> bool:
    return op.op == "mul"


def _is_div(op: Binary) -> bool:
    return op.op == "div"


BIASED: Final = call(Binary, HEAVY, BIAS, where=_is_add, commutative=True)


def weighted_axis(heavy: Node) -> int:
    """The axis of the result along which its weights have one slice per element."""
    rank = heavy.output.type.rank
    return rank - 1 if isinstance(heavy.op, MatMul) else channel_axis(heavy.op.layout, rank)


def scaled_weight(heavy: Node, w: Array, scale: Array) -> Array:
    """The weight that gives results multiplied by `scale` (one element, or one per channel)."""
    if scale.size == 1:
        return np.asarray(w * scale.reshape(()))
    if isinstance(heavy.op, Conv):
        return np.asarray(w * scale.reshape(-1, *(1,) * (w.ndim - 1)))
    if isinstance(heavy.op, MatMul):
        return np.asarray(w * scale.reshape(-1))
    groups = heavy.op.groups
    grouped = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    factor = scale.reshape(groups, 1, w.shape[1], *(1,) * (w.ndim - 2))
    return np.asarray((grouped * factor).reshape(w.shape))


def _peaks(heavy: Node, w: Array) -> Array:
    """The largest magnitude of a weight for each output channel (of a group)."""
    channel = {Conv: 0, ConvTranspose: 1}.get(type(heavy.op), w.ndim - 1)
    return np.asarray(np.abs(w).max(tuple(i for i in range(w.ndim) if i != channel), initial=0.0))


def _between(peaks: Array, least: float) -> Array:
    return (peaks > 0) & (peaks < least)


def _factor(m: Match, graph: GraphEditor | Rewriter) -> Array:
    scale = as_float64(graph, m["scale"])
    with np.errstate(all="ignore"):
        return np.asarray(1 / scale) if m.root.op.op == "div" else scale


@dataclass(frozen=True)
class FoldScaleIntoWeights:
    """A constant factor per output channel becomes part of the weights (and of the bias)."""

    name: str = "FoldScaleIntoWeights"
    pattern = one_of(
        call(Binary, one_of(HEAVY, BIASED), Const("scale"), where=_is_mul, commutative=True),
        call(Binary, one_of(HEAVY, BIASED), Const("scale"), where=_is_div),
    )

    def check(self, m: Match, graph: GraphEditor) -> Refusal | None:
        heavy, out = m.calls["heavy"], m.root.output.type
        if out.dtype not in WIDE_TYPES:
            return Refusal(f"weights of type {out.dtype} would be rounded once more")
        if heavy.output.type != out or m["weight"].type.rank < 2 or m["x"].type.rank < 2:
            return Refusal("the factor's shape broadcasts to a larger result")
        if not vector_along(m["scale"], out, weighted_axis(heavy)):
            return Refusal("the factor varies along more than the channels")
        weight, factor = as_float64(graph, m["weight"]), _factor(m, graph)
        with np.errstate(all="ignore"):
            exact = scaled_weight(heavy, weight, factor)
            scaled = stored(exact, out.dtype)
        if (np.isfinite(weight) & ~np.isfinite(scaled)).any():
            return Refusal("the scaled weights would overflow")
        least = float(np.finfo("f4" if out.dtype is F32 else "f8").tiny)  # less is zero in kernels
        if ((_peaks(heavy, weight) >= least) & _between(_peaks(heavy, exact), least)).any():
            return Refusal("the scaled weights of a channel would vanish")
        return None

    def rewrite(self, m: Match, g: Rewriter) -> Value:
        heavy, dtype, factor = m.calls["heavy"], m.root.output.dtype, _factor(m, g)
        weight = scaled_weight(heavy, as_float64(g, m["weight"]), factor)
        w = g.constant(stored(weight, dtype), m["weight"].name)
        y = g.add1(heavy.op, m["x"], w)
        if not m.has("bias"):
            return y
        bias = as_float64(g, m["bias"]) * factor
        return g.add1(Binary("add"), y, g.constant(stored(bias, dtype), m["bias"].name))


@dataclass(frozen=True)
class MergeShifts:
    """Two constant shifts behind a heavy op become one."""

    name: str = "MergeShifts"
    pattern = call(Binary, BIASED, Const("shift"), where=_is_add, commutative=True)

    def check(self, m: Match, graph: GraphEditor) -> Refusal | None:
        out = m.calls["heavy"].output.type
        if out.dtype not in WIDE_TYPES:
            return Refusal(f"the sum of shifts would be rounded to {out.dtype} once more")
        if m.root.output.type != out or not all(keeps_type(m[v], out) for v in ("bias", "shift")):
            return Refusal("a shift broadcasts to a larger result")
        parts = as_float64(graph, m["bias"]), as_float64(graph, m["shift"])
        total = self._total(parts, out.dtype)
        if all(np.isfinite(p).all() for p in parts) and not np.isfinite(total).all():
            return Refusal("the sum of shifts would overflow")
        return None

    @staticmethod
    def _total(parts: tuple[Array, Array], dtype: DType) -> Array:
        with np.errstate(all="ignore"):
            return stored(parts[0] + parts[1], dtype)

    def rewrite(self, m: Match, g: Rewriter) -> Value:
        dtype = m.root.output.dtype
        total = self._total((as_float64(g, m["bias"]), as_float64(g, m["shift"])), dtype)
        shift = g.constant(total, m["bias"].name)
        return g.add1(Binary("add"), g.add1(m.calls["heavy"].op, m["x"], m["weight"]), shift)


RULES: Final[tuple[Rule, ...]] = (FoldScaleIntoWeights(), MergeShifts())
