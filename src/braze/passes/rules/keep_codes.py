"""Quantized numbers stay codes where an op on them picks or moves codes.

    Quantize(Dequantize(q, s, p), s, p)  ->  q
    MaxPool(Dequantize(q, s, p))         ->  Dequantize(MaxPool(q), s, p)

A code that is scaled and divided again is off by two roundings, far less than a half. The largest
code of a window has the largest number, as scaling by a positive number keeps order.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from braze.core.dtypes import F32
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.pool.pool import MaxPool
from braze.ops.quant.linear import Dequantize, Quantize
from braze.passes.base import PassContext
from braze.passes.rewrite import producer, rewrite_nodes

Array = np.ndarray[Any, Any]
# of scales whose products with codes are normal numbers of float32
SCALES: Final = (2.0**-60, 2.0**60)


def keep_codes(graph: Graph, ctx: PassContext) -> Graph:
    """Take both steps all over the graph."""
    table = {Quantize: _quantized, MaxPool: _pooled}
    return rewrite_nodes(graph, table, ctx, "keep_codes")


def _quantized(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    op, above = node.op, producer(editor, node.inputs[0], Dequantize)
    assert isinstance(op, Quantize)
    if above is None or op.division is not F32 or above.output.dtype is not F32:
        return None
    q, *grid = above.inputs
    assert q is not None
    if (op.to, op.bits) != (q.dtype, 8) or not _is_scale(editor.array(grid[0])):
        return None
    same = all(_same(x, y, editor) for x, y in zip(node.inputs[1:], grid, strict=True))
    return q if same else None


def _pooled(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    op, above = node.op, producer(editor, node.inputs[0], Dequantize)
    assert isinstance(op, MaxPool)
    if above is None or op.with_indices or op.ceil_mode:
        return None
    q, *grid = above.inputs
    single = all(v is None or v.shape == () for v in grid)
    if q is None or q.dtype.bits != 8 or not single or not _is_scale(editor.array(grid[0])):
        return None
    return g.add1(above.op, g.add1(op, q), *grid)


def _is_scale(a: Array | None) -> bool:
    return a is not None and bool(((a >= SCALES[0]) & (a <= SCALES[1])).all())


def _same(x: Value | None, y: Value | None, editor: GraphEditor) -> bool:
    """Whether two parameters are one value, or constants of equal content."""
    if x is y:
        return True
    a, b = editor.array(x), editor.array(y)
    return a is not None and b is not None and a.dtype == b.dtype and np.array_equal(a, b)
