"""MatMul with numpy semantics; Gemm in terms of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dims import Dim, Shape
from braze.core.errors import ShapeError
from braze.expr.index import axes, to_expr
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, load, red
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.lowering import Anchor, Lowering, MatmulSpec, Operand
from braze.ops.move.shape import transpose
from braze.ops.operands import row_major_strides
from braze.ops.pointwise.elementwise import Binary, constant_like
from braze.ops.writing.arguments import Types, array_of, tensor_specs, type_of
from braze.ops.writing.broadcast import broadcast_shapes, broadcast_to
from braze.ops.writing.precision import compute_type, narrow, same_dtype, widen


@dataclass(frozen=True)
class MatMul(Op):
    """numpy.matmul; float16 and bfloat16 are summed in float32, integers in their own type."""

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        a, b = type_of(inputs, 0), type_of(inputs, 1)
        dtype = same_dtype((a, b), "MatMul")
        if a.rank == 0 or b.rank == 0:
            raise ShapeError("MatMul: an operand is a scalar; use Mul")
        inner = b.shape[0] if b.rank == 1 else b.shape[-2]
        ctx.unify(a.shape[-1], inner, "MatMul inner size")
        batch = broadcast_shapes(ctx, (a.shape[:-2], b.shape[:-2]), "MatMul batch")
        rows = a.shape[-2:-1]
        columns = b.shape[-1:] if b.rank > 1 else ()
        return (TensorType(dtype, batch + rows + columns),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        a, b = array_of(inputs, 0), array_of(inputs, 1)
        return (narrow(np.matmul(widen(a), widen(b)), a),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        a, b = type_of(inputs, 0), type_of(inputs, 1)
        return Anchor(_spec(a, b, outputs[0].shape), matmul_nest(a, b, outputs[0]))


def _spec(left: TensorType, right: TensorType, out: Shape) -> MatmulSpec:
    """The anchor of a product of contiguous operands; axes keep their own names (see Anchor)."""
    a, b, acc = left.shape, right.shape, compute_type(left.dtype)
    k = a[-1]
    m: Dim = a[-2] if len(a) > 1 else 1
    n: Dim = b[-1] if len(b) > 1 else 1
    rhs_tail: tuple[Dim, ...] = (b[-1], 1) if len(b) > 1 else (1, 0)
    batch = out[: len(out) - (len(a) > 1) - (len(b) > 1)]
    lhs = Operand(0, (*_batch_strides(a, batch, 2), k, 1))
    rhs = Operand(1, (*_batch_strides(b, batch, 2), *rhs_tail))
    result = Operand(0, (*(s * m * n for s in row_major_strides(batch)), n, 1))
    return MatmulSpec(batch, m, n, k, lhs, rhs, result, acc)


def _batch_strides(shape: Shape, batch: Shape, core: int) -> tuple[Dim, ...]:
    """Strides of the batch axes of an operand, 0 where it is broadcast."""
    strides = row_major_strides(shape)[: max(len(shape) - core, 0)]
    own = shape[: len(strides)]
    padding: tuple[Dim, ...] = (0,) * (len(batch) - len(strides))
    return padding + tuple(0 if d == 1 else s for d, s in zip(own, strides, strict=True))


def matmul_nest(a: TensorType, b: TensorType, out: TensorType) -> LoopKernel:
    """The product as a generic loop nest."""
    wide = compute_type(a.dtype)
    index = axes(out.rank)
    k = axis(out.rank)
    columns = index[-1:] if b.rank > 1 else ()
    front = index[: out.rank - len(columns)]
    rows = front[-1:] if a.rank > 1 else ()
    batch = front[: len(front) - len(rows)]
    lhs = load(0, (*batch_index(a.shape[:-2], batch), *rows, k), a.dtype)
    rhs_core = (k, *columns)
    rhs = load(1, (*batch_index(b.shape[:-2], batch), *rhs_core), b.dtype)
    product = binary("mul", cast(lhs, wide), cast(rhs, wide))
    return LoopKernel(
        tensor_specs((a, b)),
        (TensorSpec(out.dtype, out.shape),),
        (
            LoopNest(
                out.shape,
                (a.shape[-1],),
                (Reduce("sum", product),),
                (Store(0, index, cast(red(0, wide), out.dtype)),),
            ),
        ),
    )


def batch_index(shape: Shape, batch: Sequence[Expr]) -> tuple[Expr, ...]:
    """Index of an operand of `shape` under broadcasting against the index `batch`."""
    used = batch[len(batch) - len(shape) :]
    return tuple(to_expr(0) if d == 1 else x for d, x in zip(shape, used, strict=True))


def import_matmul(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """MatMul of every opset."""
    return (g.add1(MatMul(), n.need(0), n.need(1)),)


def _scaled(n: OnnxNode, g: GraphBuilder, x: Value, factor: float) -> Value:
    """x * factor, nothing for 1."""
    if factor == 1.0:
        return x
    if x.dtype.is_int and factor != int(factor):
        raise n.unsupported(f"factor {factor} on {x.dtype} data; cast the data to float32")
    return g.add1(Binary("mul"), x, constant_like(g, factor, x.dtype))


def import_gemm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Gemm: alpha * A' B' + beta * C; C is optional from opset 11."""
    a, b, c = n.need(0), n.need(1), n.input(2)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ShapeError(f"node {n.name!r} (Gemm): A and B must be matrices; use MatMul")
    if n.attr("transA", 0):
        a = transpose(g, a, (1, 0))
    if n.attr("transB", 0):
        b = transpose(g, b, (1, 0))
    alpha, beta = float(n.attr("alpha", 1.0)), float(n.attr("beta", 1.0))
    y = _scaled(n, g, g.add1(MatMul(), a, b), alpha)
    if c is None or beta == 0.0:
        return (y,)
    broadcast_to(g, c.shape, y.shape, f"node {n.name!r} (Gemm) C")
    return (g.add1(Binary("add"), y, _scaled(n, g, c, beta)),)
