"""Products of 8-bit floats as they are stored: what dequantized products become where a target
multiplies them (braze.passes.rules.multiply_float8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from braze.core.dtypes import F8E4M3FN, F8E5M2, F32
from braze.core.errors import DTypeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, Op
from braze.ops.lowering import Anchor, Decompose, Lowering
from braze.ops.pointwise.cast import Cast
from braze.ops.product.matmul import MatMul
from braze.ops.writing.arguments import Types, array_of, type_of

MULTIPLIED = (F8E4M3FN, F8E5M2)


@dataclass(frozen=True)
class Float8MatMul(Op):
    """numpy.matmul of 8-bit floats of one type, summed in float32, which holds each product."""

    narrow: ClassVar[bool] = True

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        a, b = type_of(inputs, 0), type_of(inputs, 1)
        if a.dtype not in MULTIPLIED or a.dtype is not b.dtype:
            raise DTypeError(f"a product of 8-bit floats: {a.dtype} by {b.dtype}")
        return MatMul().infer([TensorType(F32, t.shape) for t in (a, b)], ctx)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        a, b = array_of(inputs, 0), array_of(inputs, 1)
        wide = np.float64 if a.dtype == np.float64 else np.float32  # the evaluator's float64 mode
        return (np.asarray(np.matmul(a.astype(wide), b.astype(wide))),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        def build(g: GraphBuilder, *v: Value | None) -> tuple[Value, ...]:
            a, b = (g.add1(Cast(F32), x) for x in v if x is not None)
            return (g.add1(MatMul(), a, b),)

        floats = [TensorType(F32, type_of(inputs, i).shape) for i in (0, 1)]
        low = MatMul().lower(floats, outputs)
        assert isinstance(low, Anchor)
        return Anchor(low.spec, Decompose(build))
