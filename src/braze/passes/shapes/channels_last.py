"""Run convolutions channels last: [N, *spatial, C] instead of [N, C, *spatial].

Templates for convolutions read channels-last data only. Each convolution gets a Transpose before
and one behind it; sinking them through everything that does not care about the order of axes
makes nearly all of them cancel.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from braze.ir.editor import GraphEditor
from braze.ir.graph import Graph, Value
from braze.ops.move.shape import Transpose
from braze.ops.product.conv import Conv
from braze.ops.product.conv_transpose import ConvTranspose
from braze.ops.quant.integer import IntegerConv
from braze.ops.writing.axes import channels_first, inverse
from braze.passes.base import PassContext
from braze.passes.rewrite import operand

# ops that are converted wherever they stand; others with a layout only follow their operand
CONVERTED: Final = (Conv, ConvTranspose, IntegerConv)


def channels_last(graph: Graph, ctx: PassContext) -> Graph:
    """Convert the convolutions whose templates read channels last."""
    editor = GraphEditor(graph)
    channels_last_of: dict[Value, Value] = {}
    for node in editor.walk():
        if not isinstance(node.op, CONVERTED) or node.op.layout != "NCHW":
            continue
        x = operand(node)
        if x.type.rank - 2 not in ctx.backend.preferences.channels_last:
            continue
        to_first = channels_first(x.type.rank)
        built = editor.rewriter([node])
        if x not in channels_last_of:
            channels_last_of[x] = built.add1(Transpose(inverse(to_first)), x)
        moved = channels_last_of[x]
        y = built.add1(replace(node.op, layout="NHWC"), moved, *node.inputs[1:])
        editor.commit(built, node, {node.output: built.add1(Transpose(to_first), y)})
    return editor.finish()
