"""Importers of ops with weights of few bits: MatMulNBits and GatherBlockQuantized (com.microsoft).

Packed constants are unpacked to one byte a code when they are imported; what multiplies them is
float, so results are those of ONNX Runtime's float path within rounding.
"""

from __future__ import annotations

import numpy as np

from braze.core.dtypes import F32, U8
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Array, OnnxNode
from braze.ops.index.gather import Gather
from braze.ops.move.shape import transpose
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.matmul import MatMul
from braze.ops.quant.coded import bytes_as_codes
from braze.ops.quant.linear import Dequantize, RepeatBlocks
from braze.ops.quant.parameters import held
from braze.ops.writing.arguments import normalize_axis
from braze.ops.writing.vector import check_vector


def unpacked(data: Array, bits: int, count: int) -> Array:
    """The first `count` codes (uint8) of each row of bytes, lowest bits first."""
    if 8 % bits == 0:
        return bytes_as_codes(data.astype(np.uint8, copy=False), bits)[..., :count]
    stream = np.unpackbits(data.astype(np.uint8), axis=-1, bitorder="little")
    codes = stream[..., : count * bits].reshape(*data.shape[:-1], count, bits)
    return np.packbits(codes, axis=-1, bitorder="little")[..., 0]


def _constant(n: OnnxNode, g: GraphBuilder, index: int, what: str) -> Array:
    array = g.array(n.need(index))
    if array is None:
        raise n.unsupported(f"{what} (input {index}) are packed and must be a constant")
    return array


def import_matmul_nbits(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """MatMulNBits: a @ dequantized(B)ᵀ + bias, B [N, blocks, bytes] in blocks along K."""
    a, bits, block = n.need(0), int(n.attr("bits", 4)), int(n.attr("block_size", 0))
    rows, depth = int(n.attr("N", 0)), int(n.attr("K", 0))
    if bits not in (2, 4, 8) or block < 1:  # how others are packed is not written anywhere
        raise n.unsupported(f"{bits} bits in blocks of {block}; use 2, 4 or 8 bits")
    if n.attr("weight_prepacked", 0):
        raise n.unsupported("its weight is packed for one processor; export it as it was")
    blocks = -(-depth // block)
    packed = _constant(n, g, 1, "weights")
    width = -(-block * bits // 8)
    if packed.size != rows * blocks * width:
        raise ShapeError(
            f"node {n.name!r} (MatMulNBits): {packed.size} bytes of weights are not {rows} rows of "
            f"{blocks} blocks of {width} bytes; correct the model"
        )
    codes = unpacked(packed.reshape(rows, blocks, width), bits, block)
    codes = np.ascontiguousarray(codes.reshape(rows, blocks * block)[:, :depth])
    weight = _blockwise(n, g, codes, bits, block)
    wide = g.add1(MatMul(), cast_to(g, a, F32), transpose(g, weight, (1, 0)))
    if n.input(5) is not None:
        check_vector(n, g, n.need(5), wide.shape[-1], "columns")
        wide = g.add1(Binary("add"), wide, cast_to(g, n.need(5), F32))
    return (cast_to(g, wide, a.dtype),)


def _blockwise(n: OnnxNode, g: GraphBuilder, codes: Array, bits: int, block: int) -> Value:
    """(codes - zero points) * scales as float32 [N, K].

    Zero points are packed codes, floats, or half the range. Where groups are not consecutive
    (g_idx) or zero points are floats the numbers are computed here.
    """
    rows, depth = codes.shape
    blocks = -(-depth // block)
    scale = _of_blocks(n, g, 2, rows, blocks)
    middle = np.asarray(1 << (bits - 1), np.uint8)
    given = n.input(3)
    if given is not None and given.dtype is U8:
        packed = _constant(n, g, 3, "zero points").reshape(rows, -1)
        if packed.shape[1] < -(-blocks * bits // 8):
            raise n.invalid("its packed zero points are too few")
        zeros = unpacked(packed, bits, blocks)
    else:
        zeros = middle if given is None else _of_blocks(n, g, 3, rows, blocks)
    name = n.need(1).name
    if n.input(4) is None and zeros.dtype == np.uint8:
        repeat = RepeatBlocks(1, block, depth)
        wide_scale, zero = g.add1(repeat, g.constant(scale)), g.constant(zeros)
        if zeros.ndim:
            zero = g.add1(repeat, zero)
        return g.add1(Dequantize(F32), g.constant(codes, name), wide_scale, zero)
    groups = _groups(n, g, depth, block, blocks)
    offset = zeros[:, groups] if zeros.ndim else zeros
    wide = (codes.astype(np.float32) - offset.astype(np.float32)) * scale[:, groups]
    return g.constant(wide, name)


def _groups(n: OnnxNode, g: GraphBuilder, depth: int, block: int, blocks: int) -> Array:
    """The block of each element along K: consecutive ones, or as g_idx says."""
    if n.input(4) is None:
        return np.arange(depth) // block
    groups = _constant(n, g, 4, "groups").reshape(-1)[:depth]
    if groups.size < depth or groups.min(initial=0) < 0 or groups.max(initial=0) >= blocks:
        raise n.invalid(f"g_idx does not name one of {blocks} blocks for each of {depth} elements")
    return groups


def _of_blocks(n: OnnxNode, g: GraphBuilder, index: int, rows: int, blocks: int) -> Array:
    """A float for each block, as float32."""
    array = _constant(n, g, index, "scales and float zero points")
    if array.size != rows * blocks:
        raise ShapeError(
            f"node {n.name!r} (MatMulNBits): input {index} has {array.size} elements, not one for "
            f"each of {rows} x {blocks} blocks; correct the model"
        )
    return array.astype(np.float32).reshape(rows, blocks)


def import_gather_block_quantized(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """GatherBlockQuantized: picked slices of codes, scales and zero points, then dequantized.

    Without zero points, bytes (which hold codes of `bits`) are taken from the middle of their
    range, and numbers of a type of 4 bits as they are.
    """
    data, indices, scale, zero = n.need(0), n.need(1), n.need(2), n.input(3)
    centred = zero is None and data.dtype is U8
    bits, block = int(n.attr("bits", 4)), int(n.attr("block_size", 128))
    if data.dtype is U8 and bits < 8:
        data = _unpacked_value(n, g, 0, bits)
        zero = None if zero is None else _unpacked_zero(n, g, bits, scale)
    else:
        data, zero = held(n, g, data), None if zero is None else held(n, g, zero)
    if data.dtype.is_float:
        raise n.unsupported(f"data of {data.dtype}; use integers")
    if centred:
        zero = g.constant(np.asarray(1 << (bits - 1), np.uint8))
    rank = len(data.shape)
    picked_axis = normalize_axis(int(n.attr("gather_axis", 0)), rank, n)
    axis = normalize_axis(int(n.attr("quantize_axis", 1)), rank, n)
    if axis == picked_axis:
        raise n.unsupported("the gathered axis has blocks; quantize along another axis")
    shift = len(indices.shape) - 1 if axis > picked_axis else 0
    repeat = RepeatBlocks(axis + shift, block, data.shape[axis])
    gather = Gather(picked_axis)
    parts = [g.add1(gather, data, indices), g.add1(repeat, g.add1(gather, scale, indices))]
    if zero is not None and all(d == 1 for d in zero.shape):
        parts.append(zero)
    elif zero is not None:
        parts.append(g.add1(repeat, g.add1(gather, zero, indices)))
    return (g.add1(Dequantize(scale.dtype), *parts, *[None] * (3 - len(parts))),)


def _unpacked_value(n: OnnxNode, g: GraphBuilder, index: int, bits: int) -> Value:
    """Packed bytes as one code a byte; the last axis grows."""
    packed = _constant(n, g, index, "packed codes")
    codes = unpacked(packed, bits, packed.shape[-1] * 8 // bits)
    return g.constant(codes, n.need(index).name)


def _unpacked_zero(n: OnnxNode, g: GraphBuilder, bits: int, scale: Value) -> Value:
    """Packed zero points in the shape of the scales, whose last row of bytes may be padded."""
    packed = _constant(n, g, 3, "packed zero points")
    count = scale.shape[-1]
    if not isinstance(count, int) or packed.shape[-1] * 8 < count * bits:
        raise n.invalid("its packed zero points do not have the shape of its scales")
    return g.constant(unpacked(packed, bits, count), n.need(3).name)
