"""Products by constant weights of few bits, which stay as they are stored until they are multiplied
(braze.passes.rules.multiply_coded)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dtypes import U8
from braze.core.errors import DTypeError, ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, Op
from braze.ops.coded_spec import SCALE_BYTES, CodedSpec
from braze.ops.lowering import Anchor, Decompose, Lowering, MatmulSpec
from braze.ops.product.matmul import MatMul
from braze.ops.writing.arguments import Types, array_of, type_of
from braze.ops.writing.precision import compute_type, narrow, require_float, widen


def bits_as_bytes(codes: Array, bits: int) -> Array:
    """Codes (uint8) of `bits` bits along the last axis, packed with the lowest bits first."""
    per = 8 // bits
    parts = codes.reshape(*codes.shape[:-1], -1, per)
    shifts = np.arange(per, dtype=np.uint8) * np.uint8(bits)
    return np.asarray(np.bitwise_or.reduce(parts << shifts, axis=-1))


def bytes_as_codes(data: Array, bits: int) -> Array:
    """The inverse of `bits_as_bytes`."""
    shifts = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    parts = data[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return np.asarray(parts.reshape(*data.shape[:-1], -1))


def records(codes: Array, scale: Array, zero: Array | None, bits: int) -> Array:
    """Bytes [n, groups, record] of codes [n, groups, group], scales and zero points [n, groups]."""
    parts = [np.ascontiguousarray(scale, np.float32)[..., None].view(np.uint8)]
    if zero is not None:
        parts.append(zero.astype(np.uint8)[..., None])
    return np.concatenate([*parts, bits_as_bytes(codes, bits)], -1)


def weight_of(spec: CodedSpec, data: Array) -> Array:
    """The numbers [k, n] in float32 that records stand for."""
    scale = np.ascontiguousarray(data[..., :SCALE_BYTES]).view(np.float32)
    codes = bytes_as_codes(data[..., SCALE_BYTES + spec.own :], spec.bits).astype(np.float32)
    zero = data[..., SCALE_BYTES, None].astype(np.float32) if spec.own else np.float32(spec.zero)
    with np.errstate(all="ignore"):
        wide = (codes - zero) * scale
    return np.ascontiguousarray(wide.reshape(spec.n, -1)[:, : spec.k].T)


@dataclass(frozen=True)
class CodedMatMul(Op):
    """x [.., m, k] by the weight that records [n, groups, record] stand for (see CodedSpec)."""

    depth: int
    bits: int
    group: int
    own: bool
    zero: int

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, w = type_of(inputs, 0), type_of(inputs, 1)
        require_float(x.dtype, "coded product")
        if w.dtype is not U8:
            raise DTypeError(f"coded product: records are bytes, not {w.dtype}")
        spec = self._spec(x, w)
        if x.rank < 2 or w.shape[1:] != (spec.groups, spec.record):
            raise ShapeError(f"coded product: records of shape {w.shape} for data of {x.shape}")
        ctx.unify(x.shape[-1], self.depth, "coded product inner size")
        return (TensorType(x.dtype, spec.out_shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, w = widen(array_of(inputs, 0)), array_of(inputs, 1)
        kind = TensorType(U8, w.shape)
        weight = weight_of(self._spec(TensorType(U8, x.shape), kind), w)
        return (narrow(np.matmul(x, weight.astype(x.dtype)), array_of(inputs, 0)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        spec = self._spec(type_of(inputs, 0), type_of(inputs, 1))

        def build(g: GraphBuilder, x: Value, w: Value) -> tuple[Value, ...]:
            data = g.array(w)
            assert data is not None, "records are constants"
            weight = weight_of(spec, data).astype(x.dtype.numpy)
            return (g.add1(MatMul(), x, g.constant(weight, w.name)),)

        return Anchor(spec, Decompose(build))

    def _spec(self, x: TensorType, w: TensorType) -> CodedSpec:
        """The anchor: that of a product by the weight as a matrix."""
        n = w.shape[0]
        assert isinstance(n, int), "records are constants"
        out = TensorType(x.dtype, (*x.shape[:-1], n))
        low = MatMul().lower((x, TensorType(x.dtype, (self.depth, n))), [out])
        assert isinstance(low, Anchor) and isinstance(low.spec, MatmulSpec)
        of = low.spec
        return CodedSpec(
            of.batch, of.m, n, self.depth, self.bits, self.group, self.own, self.zero,
            of.lhs, of.out, compute_type(x.dtype), of.block,
        )  # fmt: skip
