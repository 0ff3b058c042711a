"""Products of dequantized 8-bit floats become products of the 8-bit floats.

    MatMul(float32(x) * s, float32(w) * t)  ->  Float8MatMul(x, w) * (s t)

for a scale of x that is one number and scales of a constant w that are one for each column. Each
product of two such numbers is exact in float32, where the dequantized factors are rounded first.
Only where the backend has a template: elsewhere the numbers are multiplied as written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braze.core.dtypes import F32
from braze.expr.loops import TensorSpec
from braze.ir.editor import GraphEditor
from braze.ir.graph import Graph, Node, TensorType, Value
from braze.ops.base import Op
from braze.ops.lowering import Anchor
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.matmul import MatMul
from braze.ops.quant.float8 import MULTIPLIED, Float8MatMul
from braze.passes.base import PassContext
from braze.passes.rewrite import describe, producer
from braze.passes.rules.multiply_quantized import constant_of, of_channels, product_of_scales

Array = np.ndarray[Any, Any]
_VIEWS = (Reshape, Transpose)


@dataclass(frozen=True)
class _Dequantized:
    """8-bit floats, their scale, and the views behind that, the last first."""

    codes: Value
    scale: Value
    views: Sequence[Op]


def multiply_float8(graph: Graph, ctx: PassContext) -> Graph:
    """Rewrite products of dequantized 8-bit floats that the backend has a template for."""
    editor = GraphEditor(graph)
    for node in editor.walk():
        if isinstance(node.op, MatMul) and _rewrite(node, editor, ctx):
            ctx.trace.decide("rewrite", rule="multiply_float8", at=describe(node), nodes=1)
    return editor.finish()


def _rewrite(node: Node, editor: GraphEditor, ctx: PassContext) -> bool:
    data, weight = (_dequantized(v, editor) for v in node.inputs)
    if data is None or weight is None or node.output.dtype is not F32:
        return False
    codes, scale = editor.array(weight.codes), constant_of(weight.scale, editor)
    if data.codes in editor.constants or data.scale.shape != () or codes is None or scale is None:
        return False
    for view in reversed(weight.views):
        if not isinstance(view, Transpose):
            return False
        scale = scale.transpose(view.perm) if scale.ndim == codes.ndim else scale
        codes = codes.transpose(view.perm)
    if codes.ndim < 2 or (weight.views and scale.ndim not in (0, codes.ndim)):
        return False
    columns = of_channels(scale, codes.ndim, codes.ndim - 1)
    if columns is None or not _has_template(node, data.codes, codes, ctx):
        return False
    g = editor.rewriter([node])
    x = data.codes
    for view in reversed(data.views):
        x = g.add1(view, x)
    total = g.add1(Float8MatMul(), x, g.constant(np.ascontiguousarray(codes), "weight"))
    y = g.add1(Binary("mul"), total, product_of_scales(g, data.scale, columns))
    editor.commit(g, node, {node.output: y})
    return True


def _dequantized(v: Value | None, editor: GraphEditor) -> _Dequantized | None:
    views: list[Op] = []
    while (above := next((n for k in _VIEWS if (n := producer(editor, v, k))), None)) is not None:
        views.append(above.op)
        v = above.inputs[0]
    node = producer(editor, v, Binary)
    if node is None or node.op != Binary("mul"):
        return None
    for i in (0, 1):
        cast, scale = producer(editor, node.inputs[i], Cast), node.inputs[1 - i]
        if cast is None or cast.op != Cast(F32) or scale is None:
            continue
        (codes,) = cast.inputs
        if codes is not None and codes.dtype in MULTIPLIED and codes.shape == node.output.shape:
            return _Dequantized(codes, scale, tuple(views))
    return None


def _has_template(node: Node, data: Value, weight: Array, ctx: PassContext) -> bool:
    x = node.inputs[0]
    assert x is not None
    if data.dtype.numpy != weight.dtype:
        return False
    types = [TensorType(data.dtype, s) for s in (x.shape, weight.shape)]
    low = Float8MatMul().lower(types, [node.output.type])
    assert isinstance(low, Anchor)
    specs = [TensorSpec(t.dtype, t.shape) for t in types]
    return ctx.backend.supports(low.spec, specs, frozenset({1})) is None
