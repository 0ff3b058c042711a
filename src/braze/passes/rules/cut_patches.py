"""A convolution of a picture whose windows lie side by side becomes a product of its patches.

    Conv<kernel = strides>(x, w)  ->  MatMul(patches of x, w as columns)

Few channels are no width for a template to read, and the picture is moved to channels last for the
convolution anyway: the same move makes patches, whose product reads rows of many elements. It has
as many terms in each sum.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from braze.core.dims import Dim, exact_div, is_static, number
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.product.conv import Conv
from braze.ops.product.matmul import MatMul
from braze.ops.writing.axes import channels_first
from braze.passes.base import PassContext
from braze.passes.rewrite import operand, rewrite_nodes

FEW_CHANNELS: Final = 4
LEAST_TERMS: Final = 128  # of a patch; shorter sums are no work for a product's template


def cut_patches(graph: Graph, ctx: PassContext) -> Graph:
    """Convolutions that cut pictures into patches, as a vision transformer's first one does."""
    if not ctx.backend.preferences.patch_products:
        return graph
    return rewrite_nodes(graph, {Conv: _cut}, ctx, "cut_patches")


def _cut(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    op, x = node.op, operand(node)
    w = node.inputs[1]
    weight = editor.array(w)
    if weight is None or w is None or len(editor.users_of(w)) > 1 or op.layout != "NCHW":
        return None
    filters, channels, *kernel = weight.shape
    plain = not any(op.pads) and all(d == 1 for d in op.dilations) and op.groups == 1
    if not plain or tuple(kernel) != op.strides or channels > FEW_CHANNELS:
        return None
    counts = [exact_div(d, k) for d, k in zip(x.shape[2:], kernel, strict=True)]
    if channels * math.prod(kernel) < LEAST_TERMS or not is_static(x.shape[2:]) or None in counts:
        return None
    grid = [number(c) for c in counts if c is not None]
    return _product(g, x, weight.reshape(filters, -1), tuple(kernel), grid)


def _product(
    g: Rewriter, x: Value, rows: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
    kernel: tuple[int, ...], grid: list[int],
) -> Value:  # fmt: skip
    """x [N, C, *(grid * kernel)] -> [N, filters, *grid]."""
    batch, channels = x.shape[:2]
    count = len(grid)
    split: list[Dim] = [batch, channels]
    for n, k in zip(grid, kernel, strict=True):
        split += [n, k]
    places, taps = range(2, 2 + 2 * count, 2), range(3, 3 + 2 * count, 2)
    y = g.add1(Transpose((0, *places, 1, *taps)), g.add1(Reshape(tuple(split)), x))
    y = g.add1(Reshape((batch, *grid, rows.shape[1])), y)
    y = g.add1(MatMul(), y, g.constant(np.ascontiguousarray(rows.T), "patch_weights"))
    return g.add1(Transpose(channels_first(2 + count)), y)
