"""A mask of attention whose content is known, and that hides later keys alone, becomes `causal`.

`fuse_attention` sees that of constants, where what hides is so low that no score undoes it. Here a
mask may also be computed from constants and be larger than what is folded, such as one for every
image of a batch, and may hide by the lowest number of its type, as exporters of float16 do. Scores
of that type were rounded to it before: one that is not hidden by -65504 lies 65,000 above all that
the query sees.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from braze.core.dims import product
from braze.core.dtypes import F16
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.base import Array
from braze.ops.product.attention import LAYOUTS, FusedAttention
from braze.passes.base import PassContext
from braze.passes.rewrite import rewrite_nodes
from braze.passes.rules.attention import HIDDEN

MOST_ELEMENTS: Final = 1 << 24  # of a mask that is looked at
MAX_DEPTH: Final = 8


def known_masks(graph: Graph, ctx: PassContext) -> Graph:
    """Causal masks that are made of constants."""
    if not ctx.backend.preferences.lowest_hides:
        return graph
    return rewrite_nodes(graph, {FusedAttention: _causal}, ctx, "known_masks")


def _causal(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    op, inputs = node.op, node.inputs
    mask = inputs[3] if len(inputs) > 3 else None
    if mask is None or op.causal or inputs[0] is None or inputs[1] is None:
        return None
    rows = inputs[0].shape[LAYOUTS[op.q_layout][2]]
    keys = inputs[1].shape[LAYOUTS[op.k_layout][2]]
    if rows != keys or mask.shape[-2:] != (rows, keys):
        return None
    content = _content(mask, editor)
    if content is None or not _hides_later_keys(content, -65504.0 if mask.dtype is F16 else HIDDEN):
        return None
    return g.add1(replace(op, causal=True), *inputs[:3])


def _content(value: Value, editor: GraphEditor, depth: int = MAX_DEPTH) -> Array | None:
    """What a value holds, if only constants decide it."""
    array = editor.array(value)
    if array is not None:
        return array
    node, count = editor.producer_of(value), product(value.shape)
    if node is None or depth == 0 or not isinstance(count, int) or count > MOST_ELEMENTS:
        return None
    found: list[Array] = []
    for v in node.inputs:
        part = None if v is None else _content(v, editor, depth - 1)
        if part is None:
            return None
        found.append(part)
    if not found or len(node.outputs) != 1:
        return None
    (made,) = node.op.reference(*found)
    return np.asarray(made)


def _hides_later_keys(mask: Array, low: float) -> bool:
    """Whether every plane is zero where key <= query, and at most `low` elsewhere."""
    planes = mask.reshape(-1, *mask.shape[-2:]).astype(np.float64)
    lower = np.tri(planes.shape[-1], dtype=bool)
    return bool((planes[:, lower] == 0).all() and (planes[:, ~lower] <= low).all())
