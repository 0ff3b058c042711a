"""Trilu: the upper or lower triangle of the last two axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dtypes import I64
from braze.core.errors import DTypeError, ShapeError
from braze.expr import scalar
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.lowering import Lowering, Pointwise
from braze.ops.writing.precision import present


@dataclass(frozen=True)
class Trilu(Op):
    """x on and above (upper) or below diagonal k, 0 elsewhere; k is a field, or input 1 if None."""

    upper: bool
    k: int | None

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        (x,) = present(inputs, 1, self.name)
        if x.rank < 2:
            raise ShapeError(f"Trilu: x has rank {x.rank} but needs at least 2 axes")
        if self.k is None:
            _, k = present(inputs, 2, self.name)
            if k.dtype is not I64 or any(d != 1 for d in k.shape) or k.rank > 1:
                raise DTypeError(f"Trilu: k is {k} but must be one int64")
        return (x,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        k = self.k
        if k is None:
            assert inputs[1] is not None
            k = int(inputs[1].reshape(-1)[0])
        return (np.triu(x, k) if self.upper else np.tril(x, k),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        x = outputs[0]
        offset = scalar.binary("sub", scalar.axis(x.rank - 1), scalar.axis(x.rank - 2))
        k = scalar.hole(1, I64) if self.k is None else scalar.const(self.k, I64)
        keep = scalar.binary("le", *((k, offset) if self.upper else (offset, k)))
        zero = scalar.const(0, x.dtype)
        return Pointwise(scalar.select(keep, scalar.hole(0, x.dtype), zero))


def import_trilu(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Trilu with an optional k."""
    x, given = n.need(0), n.input(1)
    upper = bool(n.attr("upper", 1))
    sizes = g.sizes(given)
    if given is None:
        return (g.add1(Trilu(upper, 0), x),)
    if sizes is not None and isinstance(sizes.reshape(-1)[0], int):
        return (g.add1(Trilu(upper, int(sizes.reshape(-1)[0])), x),)
    return (g.add1(Trilu(upper, None), x, given),)
