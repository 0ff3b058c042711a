"""CumSum and CumProd: running sums and products along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from braze.core.dtypes import BOOL, I64
from braze.core.errors import DTypeError
from braze.expr import scalar
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, Importer, InferContext, OnnxNode, Op, Perm, Permuted
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.shape import reshape
from braze.ops.reduce.reduce import kept_index, reduced_shape, specs
from braze.ops.writing.arguments import run_sizes
from braze.ops.writing.broadcast import normalize_axis
from braze.ops.writing.precision import narrow, present, widen, widened
from braze.ops.writing.run_axes import around


@dataclass(frozen=True)
class Cumulative(Op):
    """Running sum or product (kind "sum" or "prod") along `axis`, counted from the front.

    exclusive: element j holds the total before j; reverse: from the end backwards.
    """

    kind: str
    axis: int
    exclusive: bool = False
    reverse: bool = False

    @property
    def name(self) -> str:
        return "CumSum" if self.kind == "sum" else "CumProd"

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        normalize_axis(self.axis, x.rank, self.name)
        if x.dtype is BOOL:
            raise DTypeError(f"{self.name}: element type bool does not fit; insert a Cast")
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        wide = widen(x)
        wide = np.flip(wide, self.axis) if self.reverse else wide
        function = np.cumsum if self.kind == "sum" else np.cumprod
        with np.errstate(all="ignore"):
            total = function(wide, axis=self.axis, dtype=wide.dtype)
        if self.exclusive and total.size:
            total = np.moveaxis(np.roll(total, 1, self.axis), self.axis, 0)
            total[0] = 0 if self.kind == "sum" else 1
            total = np.moveaxis(total, 0, self.axis)
        return (narrow(np.flip(total, self.axis) if self.reverse else total, x),)

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        return replace(self, axis=perm[self.axis]), perm

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        (x,) = present(inputs, 1, self.name)
        index = list(kept_index(x.rank, (self.axis,)))
        if self.reverse:
            last = scalar.binary("sub", scalar.dim(x.shape[self.axis]), scalar.const(1, I64))
            index[self.axis] = scalar.binary("sub", last, index[self.axis])
        element = widened(scalar.load(0, tuple(index), x.dtype))
        result = scalar.cast(scalar.red(0, element.dtype), x.dtype)
        over = "scan_exclusive" if self.exclusive else "scan"
        nest = LoopNest(
            outer=reduced_shape(x.shape, (self.axis,), False),
            inner=(x.shape[self.axis],),
            reduces=(Reduce(self.kind, element),),
            stores=(Store(0, tuple(index), result, over=over),),
        )
        return Nest(LoopKernel(specs(inputs), specs(outputs), (nest,)))


def cumulative_importer(kind: str) -> Importer:
    """Importer of CumSum ("sum") and CumProd ("prod")."""

    def import_cumulative(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        x = n.need(0)
        where = f"node {n.name!r} ({n.op_type})"
        given = run_sizes(n, g, 1, "axis")[0]
        if not isinstance(given, int):
            shape = around(g, x.shape, given, n.name)
            op = Cumulative(kind, 1, bool(n.attr("exclusive", 0)), bool(n.attr("reverse", 0)))
            return (reshape(g, g.add1(op, reshape(g, x, shape)), x.shape),)
        axis = normalize_axis(given, x.type.rank, where)
        op = Cumulative(kind, axis, bool(n.attr("exclusive", 0)), bool(n.attr("reverse", 0)))
        return (g.add1(op, x),)

    return import_cumulative
