"""Random: numbers drawn by position from a seeded generator, the source of all random ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import I64, U64, DType
from braze.expr.index import axes, ravel
from braze.expr.scalar import Expr, binary, cast, const, unary
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext, Op
from braze.ops.lowering import Lowering, Pointwise
from braze.ops.random.philox import WORD, philox, philox_expr
from braze.ops.writing.arguments import Types


@dataclass(frozen=True)
class Random(Op):
    """A tensor of `shape` (no inputs) of float32 or float64: the same in every run.

    normal: mean 0 and deviation 1, else uniform in [0, 1). key and stream: two 32-bit words each;
    tensors of another key or stream are independent. Element i is made of block i of the stream:
    uniform numbers are its first 24 or 53 `bits`, normal ones the cosine of Box and Muller.
    """

    folds: ClassVar[bool] = False  # numpy's logarithm and cosine may end in another bit
    normal: bool
    shape: tuple[Dim, ...]
    dtype: DType
    bits: int
    key: tuple[int, int]
    stream: tuple[int, int]

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, self.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        shape = dims.static(self.shape)
        i = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
        low, high = (np.full(shape, word, np.uint64) for word in self.stream)
        w = philox((i & np.uint64(WORD), i >> np.uint64(32), low, high), self.key)
        kind = self.dtype.numpy
        if not self.normal:
            return (self._uniform(w).astype(kind),)
        first, second = (self._open(x, kind) for x in w[:2])
        root = np.sqrt(kind.type(-2) * np.log(first))
        return (root * np.cos(kind.type(2 * math.pi) * second),)

    def _uniform(self, w: Sequence[Array]) -> Array:
        if self.bits == 24:
            return np.asarray((w[0] >> np.uint64(8)).astype(np.float64) * 2.0**-24)
        high, low = (w[0] >> np.uint64(5)).astype(np.float64), w[1] >> np.uint64(6)
        return np.asarray((high * 2.0**26 + low.astype(np.float64)) * 2.0**-53)

    def _open(self, w: Array, kind: Any) -> Array:
        """A word as a number in (0, 1]."""
        return np.asarray((w.astype(np.int64).astype(kind) + kind.type(0.5)) * kind.type(2.0**-32))

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        i = cast(ravel(axes(len(self.shape)), self.shape), U64)
        low, high = (const(word, U64) for word in self.stream)
        place = binary("and", i, const(WORD, U64)), binary("shr", i, const(32, U64))
        w = philox_expr((*place, low, high), self.key)
        if not self.normal:
            return Pointwise(self._uniform_expr(w))
        first, second = (self._open_expr(x) for x in w[:2])
        root = unary("sqrt", self._times(unary("log", first), -2.0))
        turn = unary("cos", self._times(second, 2 * math.pi))
        return Pointwise(binary("mul", root, turn))

    def _times(self, x: Expr, factor: float) -> Expr:
        return binary("mul", x, const(factor, self.dtype))

    def _number(self, w: Expr, drop: int) -> Expr:
        """A word without its last bits, as a float (exact where few enough are left)."""
        return cast(cast(binary("shr", w, const(drop, U64)), I64), self.dtype)

    def _uniform_expr(self, w: Sequence[Expr]) -> Expr:
        if self.bits == 24:
            return self._times(self._number(w[0], 8), 2.0**-24)
        high = self._times(self._number(w[0], 5), 2.0**26)
        return self._times(binary("add", high, self._number(w[1], 6)), 2.0**-53)

    def _open_expr(self, w: Expr) -> Expr:
        shifted = binary("add", self._number(w, 0), const(0.5, self.dtype))
        return self._times(shifted, 2.0**-32)
