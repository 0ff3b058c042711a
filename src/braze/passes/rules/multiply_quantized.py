"""Products of dequantized bytes become products of the bytes.

    Conv(Dequantize(x, s, p), Dequantize(w, t, q))  ->  float32(IntegerConv(x, w, p, q)) * (s t)

and MatMul alike, for a scale of x that is one number and scales of a constant w that are one for
each output channel. The sum is exact where the float one was rounded in every step; what follows
(bias, activation, the next quantization) stays float and runs where the sum is. Views between a
Dequantize and its product move the bytes instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braze.core.dims import number
from braze.core.dtypes import F32, I8, U8
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.base import Op
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.conv import Conv
from braze.ops.product.matmul import MatMul
from braze.ops.quant.integer import IntegerConv, IntegerMatMul
from braze.ops.quant.linear import Dequantize
from braze.passes.base import PassContext
from braze.passes.rewrite import describe, producer
from braze.passes.rules.multiply_bytes import has_template

Array = np.ndarray[Any, Any]
_VIEWS = (Reshape, Transpose)


@dataclass(frozen=True)
class _Data:
    """Bytes, the views between them and the product, one scale, and one zero point or None."""

    bytes_: Value
    views: Sequence[Op]
    scale: Value
    zero: Value | None


@dataclass(frozen=True)
class _Weight:
    """Bytes with a scale and a zero point (or None) for each output channel, or one for all."""

    bytes_: Array
    scale: Array
    zero: Array | None


def multiply_quantized(graph: Graph, ctx: PassContext) -> Graph:
    """Rewrite products of dequantized bytes that the backend has a template for."""
    editor = GraphEditor(graph)
    for node in editor.walk():
        if isinstance(node.op, (Conv, MatMul)) and _rewrite(node, editor, ctx):
            ctx.trace.decide("rewrite", rule="multiply_quantized", at=describe(node), nodes=1)
    return editor.finish()


def _rewrite(node: Node, editor: GraphEditor, ctx: PassContext) -> bool:
    data, weight = _data(node.inputs[0], editor), _weight(node.inputs[1], editor)
    if data is None or weight is None or node.output.dtype is not F32:
        return False
    op: Op
    if isinstance(node.op, Conv):
        if node.op.layout != "NCHW" or len(node.op.strides) + 2 != weight.bytes_.ndim:
            return False
        op = IntegerConv(node.op.strides, node.op.dilations, node.op.pads, node.op.groups)
        channel, trailing = 0, (1,) * len(node.op.strides)
    else:
        if weight.bytes_.ndim < 2:
            return False
        op, channel, trailing = IntegerMatMul(), weight.bytes_.ndim - 1, ()
    scale, zero = (
        None if a is None else of_channels(a, weight.bytes_.ndim, channel)
        for a in (weight.scale, weight.zero)
    )
    if scale is None or (zero is None) != (weight.zero is None):
        return False
    g = editor.rewriter([node])
    x = data.bytes_
    for view in reversed(data.views):
        x = g.add1(view, x)
    if zero is not None and zero.ndim and isinstance(node.op, Conv):
        zero = zero.reshape(-1, *(1,) * (weight.bytes_.ndim - 1))
    inputs = (x, g.constant(weight.bytes_, "weight"), data.zero,
              None if zero is None else g.constant(zero, "zero"))  # fmt: skip
    if not has_template(op, inputs, node.output, g, ctx):
        return False
    total = g.add1(Cast(F32), g.add1(op, *inputs))
    if scale.ndim:
        scale = scale.reshape(-1, *trailing)
    y = g.add1(Binary("mul"), total, product_of_scales(g, data.scale, scale))
    editor.commit(g, node, {node.output: y})
    return True


def product_of_scales(g: Rewriter, x: Value, w: Array) -> Value:
    """The scale of a product: that of its data, one number, times those of its weight."""
    known = g.array(x)
    if known is not None:
        return g.constant(np.asarray(known.astype(np.float32).reshape(()) * w), "scale")
    return g.add1(Binary("mul"), x, g.constant(w, "scale"))


def _data(v: Value | None, editor: GraphEditor) -> _Data | None:
    views: list[Op] = []
    while v is not None:
        node = producer(editor, v, Dequantize)
        if node is not None:
            return _one_grid(node, tuple(views), editor)
        above = next((n for kind in _VIEWS if (n := producer(editor, v, kind)) is not None), None)
        if above is None:
            return None
        views.append(above.op)
        v = above.inputs[0]
    return None


def _one_grid(node: Node, views: tuple[Op, ...], editor: GraphEditor) -> _Data | None:
    q, scale, zero = (*node.inputs, None)[:3]
    assert q is not None and scale is not None
    single = all(v is None or v.shape == () for v in (scale, zero))
    if not single or q.dtype not in (I8, U8) or scale.dtype is not F32 or q in editor.constants:
        return None
    return _Data(q, views, scale, zero)


def _weight(v: Value | None, editor: GraphEditor) -> _Weight | None:
    turns: list[Transpose] = []
    while (above := producer(editor, v, Transpose)) is not None:
        assert isinstance(above.op, Transpose)
        turns.append(above.op)
        v = above.inputs[0]
    node = producer(editor, v, Dequantize)
    if node is None:
        return None
    q, scale, zero = (constant_of(x, editor) for x in (*node.inputs, None)[:3])
    if q is None or scale is None or (zero is None and (*node.inputs, None)[2] is not None):
        return None
    if q.dtype.itemsize != 1 or scale.dtype != np.float32:
        return None
    for turn in reversed(turns):
        scale = scale.transpose(turn.perm) if scale.ndim == q.ndim else scale
        if zero is not None and zero.ndim == q.ndim:
            zero = zero.transpose(turn.perm)
        if any(a is not None and a.ndim not in (0, q.ndim) for a in (scale, zero)):
            return None
        q = q.transpose(turn.perm)
    return _Weight(np.ascontiguousarray(q), scale, zero)


def constant_of(v: Value | None, editor: GraphEditor) -> Array | None:
    """The content of a constant, or of one in another shape: importers bring parameters into the
    shape of the data, and fold small ones alone."""
    node = producer(editor, v, Reshape)
    if node is None or v is None:
        return editor.array(v)
    array = editor.array(node.inputs[0])
    return None if array is None else array.reshape([number(d) for d in v.shape])


def of_channels(a: Array, rank: int, channel: int) -> Array | None:
    """A number, or a vector over the axis `channel`; None where `a` differs along another axis."""
    if a.size == 1:
        return a.reshape(())
    shape = (1,) * (rank - a.ndim) + a.shape
    alone = all(n == 1 for i, n in enumerate(shape) if i != channel)
    return a.reshape(-1) if alone else None
