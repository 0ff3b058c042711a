"""Softmax, LogSoftmax and Hardmax along one axis.

Before opset 13 ONNX flattens the tensor to two axes at `axis` first; importers do that with
Reshape. A row of -inf only gives NaN, as the plain formula does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from braze.core.dims import product
from braze.core.dtypes import I64
from braze.expr import scalar
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, Importer, InferContext, OnnxNode, Op, Perm, Permuted
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.shape import Reshape
from braze.ops.reduce.reduce import kept_index, reduced_shape, specs
from braze.ops.writing.broadcast import normalize_axis
from braze.ops.writing.precision import narrow, present, require_float, widen, widened


@dataclass(frozen=True)
class Softmax(Op):
    """exp(x) / sum(exp(x)) along `axis` (counted from the front), or its logarithm."""

    axis: int
    log: bool = False

    @property
    def name(self) -> str:
        return "LogSoftmax" if self.log else "Softmax"

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        require_float(x.dtype, self.name)
        normalize_axis(self.axis, x.rank, self.name)
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        with np.errstate(all="ignore"):
            wide = widen(x)
            shifted = wide - np.max(wide, axis=self.axis, keepdims=True, initial=-np.inf)
            e = np.exp(shifted)
            total = np.sum(e, axis=self.axis, keepdims=True)
            return (narrow(shifted - np.log(total) if self.log else e / total, x),)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        return replace(self, axis=perm[self.axis]), perm

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = present(inputs, 1, self.name)
        index = kept_index(x.rank, (self.axis,))
        element = widened(scalar.load(0, index, x.dtype))
        top, total = scalar.red(0, element.dtype), scalar.red(1, element.dtype)
        shifted = scalar.binary("sub", element, top)
        e = scalar.unary("exp", shifted)
        if self.log:
            result = scalar.binary("sub", shifted, scalar.unary("log", total))
        else:
            result = scalar.binary("div", e, total)
        nest = LoopNest(
            outer=reduced_shape(x.shape, (self.axis,), False),
            inner=(x.shape[self.axis],),
            reduces=(Reduce("max", element), Reduce("sum", e)),
            stores=(Store(0, index, scalar.cast(result, x.dtype), over="all"),),
        )
        return Nest(LoopKernel(specs(inputs), specs(outputs), (nest,)))


@dataclass(frozen=True)
class Hardmax(Op):
    """1 at the first largest element along `axis` (counted from the front), 0 elsewhere."""

    axis: int

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        require_float(x.dtype, self.name)
        normalize_axis(self.axis, x.rank, self.name)
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        out = np.zeros_like(x)
        if x.size and x.shape[self.axis]:
            top = np.argmax(x, axis=self.axis, keepdims=True)
            np.put_along_axis(out, top, 1, axis=self.axis)
        return (out,)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        return replace(self, axis=perm[self.axis]), perm

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = present(inputs, 1, self.name)
        index = kept_index(x.rank, (self.axis,))
        element = widened(scalar.load(0, index, x.dtype))
        here = scalar.binary("eq", scalar.axis(x.rank - 1), scalar.red(0, I64))
        nest = LoopNest(
            outer=reduced_shape(x.shape, (self.axis,), False),
            inner=(x.shape[self.axis],),
            reduces=(Reduce("argmax", element),),
            stores=(Store(0, index, scalar.cast(here, x.dtype), over="all"),),
        )
        return Nest(LoopKernel(specs(inputs), specs(outputs), (nest,)))


def _import_along_axis(n: OnnxNode, g: GraphBuilder, kind: str) -> tuple[Value, ...]:
    x = n.need(0)
    rank = x.type.rank
    default = 1 if n.opset < 13 else -1
    axis = n.attr("axis", default)
    if rank == 0:  # one element: an axis of length 1
        y = g.add1(_op(kind, 0), g.add1(Reshape((1,)), x))
        return (g.add1(Reshape(()), y),)
    if n.opset >= 13:
        axis = normalize_axis(axis, rank, f"node {n.name!r} ({n.op_type})")
        return (g.add1(_op(kind, axis), x),)
    # axis = rank is allowed: every element is a row of its own
    axis = axis if axis == rank else normalize_axis(axis, rank, f"node {n.name!r} ({n.op_type})")
    if axis == rank - 1:
        return (g.add1(_op(kind, axis), x),)
    flat = g.add1(Reshape((product(x.shape[:axis]), product(x.shape[axis:]))), x)
    return (g.add1(Reshape(x.shape), g.add1(_op(kind, 1), flat)),)


def _op(kind: str, axis: int) -> Op:
    return Hardmax(axis) if kind == "hardmax" else Softmax(axis, log=kind == "log_softmax")


def softmax_importer(kind: str) -> Importer:
    """Importer of "softmax", "log_softmax" or "hardmax": default axis 1 and flattening before
    opset 13, one axis (default -1) from then on."""

    def import_softmax(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        return _import_along_axis(n, g, kind)

    return import_softmax
