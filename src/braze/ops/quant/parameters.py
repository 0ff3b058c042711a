"""What importers of quantized ops ask of scales and zero points."""

from __future__ import annotations

from braze.core.dims import is_static
from braze.core.dtypes import F4E2M1, F8E4M3FN, DType, from_numpy
from braze.core.elements import number_type, numbers, stored
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.move.shape import reshape
from braze.ops.move.single import one_number
from braze.ops.quant.linear import RepeatBlocks
from braze.ops.writing.arguments import normalize_axis


def held(n: OnnxNode, g: GraphBuilder, v: Value) -> Value:
    """`v` in a type of whole bytes that has its numbers: constants below a byte are unpacked.

    Integers become int8 or uint8, float4_e2m1fn becomes float8_e4m3fn, which has all its numbers.
    """
    if v.dtype.bits >= 8:
        return v
    array = g.array(v)
    if array is None:
        raise n.unsupported(f"{v.dtype} is taken only where it is a constant; make it one")
    values = numbers(array, v.dtype)
    return g.constant(stored(values, F8E4M3FN) if v.dtype is F4E2M1 else values, v.name)


def held_type(dtype: DType) -> DType:
    """The type of whole bytes in which integers of `dtype` are held."""
    return from_numpy(number_type(dtype)) if dtype.bits < 8 else dtype


def zero_point(n: OnnxNode, g: GraphBuilder, index: int) -> Value | None:
    """The zero point at input `index`, held in whole bytes; None where it is absent or known 0."""
    v = n.input(index)
    return None if v is None or is_known_zero(g, v) else held(n, g, v)


def is_known_zero(g: GraphBuilder, v: Value) -> bool:
    """Whether `v` is a constant of zeros."""
    array = g.array(v)
    return array is not None and not numbers(array, v.dtype).any()


def zero_of_scale(n: OnnxNode, g: GraphBuilder, index: int, scale: Value) -> Value | None:
    """Like `zero_point`, of the shape of its scale, whatever it holds.

    Where both have one element, their ranks may differ.
    """
    v = n.input(index)
    if v is None:
        return None
    where = f"node {n.name!r} ({n.op_type}): zero point"
    if all(d == 1 for d in scale.shape):
        v = one_number(g, v, where)
    elif len(v.shape) != len(scale.shape) or (
        is_static((*v.shape, *scale.shape)) and v.shape != scale.shape
    ):
        raise ShapeError(
            f"{where} {v.name!r} has shape {list(v.shape)} but its scale {scale.name!r} has "
            f"{list(scale.shape)}; give both one shape"
        )
    else:
        for a, b in zip(v.shape, scale.shape, strict=True):
            g.unify(a, b, f"{where} {v.name!r} and its scale {scale.name!r}")
    return None if is_known_zero(g, v) else held(n, g, v)


def placed(
    n: OnnxNode, g: GraphBuilder, v: Value | None, x: Value, axis: int, block: int
) -> Value | None:
    """A scale or zero point as an operand that broadcasts to `x`.

    One element is for all of x, a vector for `axis`, a tensor of the rank of x for blocks of
    `block` elements on `axis`.
    """
    if v is None or len(v.shape) == 0:
        return v
    rank = len(x.shape)
    if block:
        if len(v.shape) != rank:
            raise ShapeError(
                f"node {n.name!r} ({n.op_type}): {v.name!r} of rank {len(v.shape)} has blocks for "
                f"data of rank {rank}; give it the rank of the data"
            )
        axis = normalize_axis(axis, rank, n)
        return g.add1(RepeatBlocks(axis, block, x.shape[axis]), v)
    if all(d == 1 for d in v.shape):
        return reshape(g, v, ())
    if len(v.shape) != 1:
        raise ShapeError(
            f"node {n.name!r} ({n.op_type}): {v.name!r} has shape {list(v.shape)} and no "
            "block_size; give one element, a vector or a block_size"
        )
    axis = normalize_axis(axis, rank, n)
    g.unify(v.shape[0], x.shape[axis], f"node {n.name!r} ({n.op_type}) {v.name!r}")
    return reshape(g, v, (*v.shape, *(1,) * (rank - axis - 1)))
