"""Compute float32 nodes in a half type where that was asked for, and record what each runs in.

Products, convolutions, attention and look-ups in constant tables become half; what follows them
(sums, activations, norms, softmax, views, pools) stays in the half type while all that it reads is
in it. Ops compute half types in float32 inside: statistics of norms and softmax, and sums, are
float32. What is not safe in half types (powers, exponentials, roots, quotients, sums over axes,
states that are carried) stays float32, and float32 it is from there to the next product.

Types that a model has by itself are not touched: only float32 is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.core.config import names_layer
from braze.core.dtypes import BF16, F16, F32, I8, DType
from braze.core.errors import BrazeError
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value, bodies_of
from braze.ops.base import Op
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat, Split
from braze.ops.move.shape import Expand, Reshape, Tile, Transpose
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.norm.batch_norm import BatchNorm
from braze.ops.norm.channel_norm import GroupNorm, InstanceNorm
from braze.ops.norm.normalization import LayerNorm, RmsNorm
from braze.ops.pointwise.activation import Activation, PRelu
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.compare import Where
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.pool.pool import AveragePool, MaxPool
from braze.ops.product.attention import FusedAttention
from braze.ops.product.conv import Conv
from braze.ops.product.conv_transpose import ConvTranspose
from braze.ops.product.matmul import MatMul
from braze.ops.quant.coded import CodedMatMul
from braze.ops.quant.integer import IntegerConv, IntegerMatMul
from braze.ops.quant.linear import Dequantize
from braze.ops.reduce.reduce import Reduce
from braze.ops.reduce.softmax import Softmax
from braze.ops.sample.resize import Resize
from braze.passes.base import PassContext
from braze.passes.rewrite import describe

Array = np.ndarray[Any, Any]
HALVES: Final = {"fp16": F16, "bf16": BF16}
_PRODUCTS: Final = (MatMul, Conv, ConvTranspose, FusedAttention)
VIEWS: Final = (Concat, Split, Reshape, Transpose, Expand, Tile, Slice, Pad)
FOLLOW: Final = (
    *VIEWS, Activation, PRelu, Where, MaxPool, AveragePool, Softmax, LayerNorm, RmsNorm,
    BatchNorm, GroupNorm, InstanceNorm, Resize,
)  # fmt: skip
_SAFE: Final[dict[type[Any], frozenset[str]]] = {
    Binary: frozenset({"add", "sub", "mul", "max", "min"}),
    Unary: frozenset({"neg", "abs"}),
    Reduce: frozenset({"max", "min", "mean"}),
}
_INTEGERS: Final = (IntegerConv, IntegerMatMul)
_MASK: Final = 3  # the slot of attention whose numbers only hide
_FEW: Final = 16  # elements of a constant that stands for a number, not for a weight


@dataclass(frozen=True, slots=True)
class _Choice:
    """The half type of a node, or None; why: for the record."""

    half: DType | None
    why: str


def lower_precision(graph: Graph, ctx: PassContext) -> Graph:
    """The pass; it does something only where `BuildConfig.lowers`."""
    default = default_half(ctx)
    editor = GraphEditor(graph)
    for node in editor.walk():
        choice = _chosen(node, default, ctx)
        choice = _possible(node, choice, editor)
        if choice.half is not None and not _rewrite(node, choice.half, editor):
            choice = _Choice(None, "kept for accuracy: its types cannot be changed")
        if choice.why and not isinstance(node.op, (*VIEWS, Cast)):
            runs = choice.half or (I8 if isinstance(node.op, _INTEGERS) else F32)
            ctx.trace.decide("precision", at=describe(node), runs=runs.name, why=choice.why)
    return editor.finish()


def storage_types(graph: Graph) -> frozenset[DType]:
    """The half types that only this pass puts into a network as it was imported: numbers between
    the nodes of one kernel need not be rounded to them."""
    values = (*graph.inputs, *graph.constants, *(v for n in graph.nodes for v in n.outputs))
    wide = frozenset(HALVES.values()) - {v.dtype for v in values}
    for body in (b for node in graph.nodes for b in bodies_of(node)):
        wide &= storage_types(body)
    return wide


def default_half(ctx: PassContext) -> str | None:
    """The half type that the whole network is asked for: the one the target computes in, of two.

    "best" takes one only where the target computes in it.
    """
    asked, native = ctx.config.asked, ctx.backend.preferences.halves
    wanted = [name for name in HALVES if name in asked]
    if "best" in asked and not wanted:
        return next((name for name in HALVES if name in native), None)
    return next((name for name in wanted if name in native), wanted[0] if wanted else None)


def _chosen(node: Node, default: str | None, ctx: PassContext) -> _Choice:
    """What is asked of a node; the last override that matches one of its names counts."""
    name, why = default, "asked" if default else ""
    for pattern, given in ctx.config.layer_precisions:
        if any(names_layer(pattern, origin) for origin in node.origins):
            name, why = given, f"asked for {pattern}"
    half = HALVES.get(name or "")
    if half is not None and name not in ctx.backend.preferences.halves:
        why += f"; no kernel: stored as {half}, computed in float32"
    return _Choice(half, why)


def _possible(node: Node, choice: _Choice, editor: GraphEditor) -> _Choice:
    """The choice, or why it is float32 all the same; no reason for what is no float32 node."""
    if isinstance(node.op, _INTEGERS):
        return _Choice(None, "quantized in the model")
    if isinstance(node.op, CodedMatMul):
        return _Choice(None, "its weight has few bits in the model: multiplied in float32")
    read = [v for v in node.inputs if v is not None and v.dtype is F32]
    if isinstance(node.op, Dequantize) or not any(v.dtype is F32 for v in node.outputs):
        return _Choice(None, "")
    dequantized = any(_is_dequantized(v, editor) for v in read)
    if dequantized and isinstance(node.op, _PRODUCTS):
        return _Choice(None, "quantized in the model; no kernel: computed in float32")
    if choice.half is None or not read:
        return _Choice(None, choice.why if read else "")
    half = choice.half
    if dequantized:
        return _Choice(None, "kept: what it reads is quantized in the model")
    starts = isinstance(node.op, _PRODUCTS) or (
        isinstance(node.op, Gather) and editor.array(read[0]) is not None
    )
    if not starts:
        safe = _SAFE.get(type(node.op))
        if not isinstance(node.op, (*FOLLOW, Gather)) and (
            safe is None or kind_of(node.op) not in safe
        ):
            return _Choice(None, f"kept for accuracy: {node.op.name} is not safe in {half}")
        if isinstance(node.op, Binary) and node.op.op == "mul" and len(set(node.inputs)) == 1:
            return _Choice(None, f"kept for accuracy: a square may leave the range of {half}")
        data = [v for v in read if editor.array(v) is None]
        if not data or not all(_narrow_source(v, half, editor) is not None for v in data):
            return _Choice(None, "kept for accuracy: what it reads is float32")
    for slot, v in enumerate(node.inputs):
        array = editor.array(v) if v is not None and v.dtype is F32 else None
        if array is not None and not (isinstance(node.op, FusedAttention) and slot == _MASK):
            reason = _unfit(array, half)
            if reason:
                return _Choice(None, f"kept for accuracy: {reason}")
    return choice


def _is_dequantized(v: Value, editor: GraphEditor) -> bool:
    """Whether Q/DQ nodes say what numbers a value has: those are not rounded again."""
    node = editor.producer_of(v)
    while node is not None and isinstance(node.op, (Reshape, Transpose)):
        node = editor.producer_of(node.inputs[0])
    return node is not None and isinstance(node.op, Dequantize)


def kind_of(op: Any) -> str:
    """Which of its kinds an op of several is; "" for all others."""
    return str(getattr(op, "op", getattr(op, "kind", "")))


def _unfit(array: Array, half: DType) -> str:
    """Why a constant cannot be in a half type; empty where it can."""
    finite = array[np.isfinite(array)]
    size = np.abs(finite)
    if half is F16 and size.size and size.max() > np.finfo(np.float16).max:
        return "a constant is beyond the range of float16"
    least = np.finfo(np.float16).tiny if half is F16 else np.finfo(np.float32).tiny
    if array.size <= _FEW and ((size > 0) & (size < least)).any():
        return f"a constant is too small for {half}"
    return ""


def _narrow_source(v: Value, half: DType, editor: GraphEditor) -> Value | None:
    """What a float32 value is widened from, if that has the half type."""
    node = editor.producer_of(v)
    if node is None or not isinstance(node.op, Cast) or v.dtype is not F32:
        return None
    source = node.inputs[0]
    return source if source is not None and source.dtype is half else None


def _rewrite(node: Node, half: DType, editor: GraphEditor) -> bool:
    """Put the node in the half type, between Casts; False where its op does not allow it."""
    g = editor.rewriter([node])
    inputs = [
        v if v is None or v.dtype is not F32 else _narrowed(v, half, slot, node.op, editor, g)
        for slot, v in enumerate(node.inputs)
    ]
    try:
        made = g.add(node.op, *inputs)
    except BrazeError:
        return False
    outputs = [g.add1(Cast(F32), v) if v.dtype is half else v for v in made]
    if any(new.type != old.type for new, old in zip(outputs, node.outputs, strict=True)):
        return False
    editor.commit(g, node, dict(zip(node.outputs, outputs, strict=True)))
    return True


def _narrowed(v: Value, half: DType, slot: int, op: Op, editor: GraphEditor, g: Rewriter) -> Value:
    """A float32 operand in the half type."""
    hides = isinstance(op, FusedAttention) and slot == _MASK and half is F16
    array = editor.array(v)
    if array is not None:
        if hides:
            array = np.maximum(array, np.float32(np.finfo(np.float16).min))
        with np.errstate(all="ignore"):
            return g.constant(np.asarray(array).astype(half.numpy), v.name)
    source = _narrow_source(v, half, editor)
    if source is not None:
        return source
    if hides:  # a number that hides stays one, as rows that are hidden whole would be NaN
        least = g.constant(np.asarray(np.finfo(np.float16).min, np.float32), "lowest")
        v = g.add1(Binary("max"), v, least)
    return g.add1(Cast(half), v)
