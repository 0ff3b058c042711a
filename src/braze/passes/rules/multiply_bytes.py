"""Take zero points out of products of 8-bit integers, so that templates multiply bytes as they are.

With a = a' - p and b = b' - q for bytes a', b' of the signs that the backend multiplies:

    sum a b  =  sum a' b'  -  p sum b'  -  q sum a'  +  k p q

The second term is a constant for each column, the third only there for a weight whose zero point is
not the middle of its range, the fourth a constant. All of it is int32 arithmetic, which wraps, so
nothing is rounded. Bytes of the other sign are moved by 128, and their zero point with them. Where
paddings can hold no p but zeros, as on GPUs, sums of b' and k are those of the taps inside the
data, a constant for each place and column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from braze.core.dims import Dim, is_static, number, static
from braze.core.dtypes import I8, I32, U8, DType
from braze.expr.loops import TensorSpec
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, TensorType, Value
from braze.ops.base import Op
from braze.ops.lowering import Anchor
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.elementwise import Binary
from braze.ops.quant.integer import IntegerConv, IntegerMatMul
from braze.ops.reduce.reduce import Reduce
from braze.passes.base import PassContext
from braze.passes.rewrite import describe

Array = np.ndarray[Any, Any]
_HALF = 128  # between the middle of unsigned bytes and that of signed ones


@dataclass(frozen=True)
class _Factors:
    """Bytes as they are multiplied; data_zero: p (None: zero; a number or a value of the run);
    weight_zero: q as int32, or None where it is zero everywhere."""

    data: Value
    weight: Array
    data_zero: int | Value | None
    weight_zero: Array | None


def multiply_bytes(graph: Graph, ctx: PassContext) -> Graph:
    """Rewrite what the backend has a template for; the rest is left to its own decomposition."""
    editor = GraphEditor(graph)
    for node in editor.walk():
        if isinstance(node.op, IntegerMatMul):
            rewrite = _matmul
        elif isinstance(node.op, IntegerConv) and node.op.layout == "NHWC" and not node.op.fill:
            rewrite = _conv
        else:
            continue
        fits = has_template(node.op, node.inputs, node.output, editor, ctx)
        if fits and not _done(node, ctx) and rewrite(node, editor, ctx):
            ctx.trace.decide("rewrite", rule="multiply_bytes", at=describe(node), nodes=1)
    return editor.finish()


def _zeros(node: Node) -> tuple[Value | None, Value | None]:
    first, second = (*node.inputs[2:], None, None)[:2]
    return first, second


def _done(node: Node, ctx: PassContext) -> bool:
    """Whether the node is one already that a template takes."""
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    return _zeros(node) == (None, None) and (x.dtype, w.dtype) == (_wanted(ctx), I8)


def _wanted(ctx: PassContext) -> DType:
    return U8 if ctx.backend.preferences.unsigned_bytes else I8


class _Constants(Protocol):
    """What knows the content of constants: an editor, or a builder."""

    def array(self, value: Value | None) -> Array | None: ...


def has_template(
    op: Op, inputs: Sequence[Value | None], output: Value, known: _Constants, ctx: PassContext
) -> bool:
    """Whether the backend multiplies such data by such a constant weight, once this rule has run.

    op: an IntegerMatMul or an IntegerConv; a convolution is asked for with its channels last.
    """
    x, w, zero, weight_zero = (*inputs, None, None)[:4]
    assert x is not None and w is not None
    if known.array(w) is None or (weight_zero is not None and known.array(weight_zero) is None):
        return False
    data, result = x.shape, output.shape
    if isinstance(op, IntegerConv):
        if op.layout == "NCHW":
            op = replace(op, layout="NHWC")
            data, result = ((s[0], *s[2:], s[1]) for s in (data, result))
        if any(op.pads):
            padding = _data_zero(x, zero, known, ctx)
            if isinstance(padding, Value):
                return False  # what is padded must be known
            if ctx.backend.preferences.fills:
                op = replace(op, fill=padding or 0)
            elif padding and not is_static((*data[1:-1], *result[1:-1])):
                return False  # places by their number
    types = [TensorType(_wanted(ctx), data), TensorType(I8, w.shape)]
    low = op.lower(types, [TensorType(I32, result)])
    if not isinstance(low, Anchor):
        return False
    specs = [TensorSpec(t.dtype, t.shape) for t in types]
    return ctx.backend.supports(low.spec, specs, frozenset({1})) is None


def _data_zero(
    x: Value, zero: Value | None, known: _Constants, ctx: PassContext
) -> int | Value | None:
    """The zero point of data in the sign that is multiplied: a number where it is known."""
    moved = (_HALF if _wanted(ctx) is U8 else -_HALF) if x.dtype is not _wanted(ctx) else 0
    if zero is None:
        return moved or None
    array = known.array(zero)
    if array is None or array.size != 1:
        return zero
    return int(array.reshape(())) + moved


def _factors(node: Node, editor: GraphEditor, g: Rewriter, ctx: PassContext) -> _Factors:
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    first, second = _zeros(node)
    weight, zero = editor.array(w), editor.array(second)
    assert weight is not None
    q = np.zeros((), np.int32) if zero is None else zero.astype(np.int32)
    if weight.dtype == np.uint8:
        weight, q = (weight.astype(np.int16) - _HALF).astype(np.int8), q - _HALF
    found, wanted = _data_zero(x, first, editor, ctx), _wanted(ctx)
    if x.dtype is not wanted:
        step = _HALF if wanted is U8 else -_HALF
        x = g.add1(Cast(wanted), _moved(g, g.add1(Cast(I32), x), step))
        if isinstance(found, Value):
            found = _moved(g, g.add1(Cast(I32), found), step)
    elif isinstance(found, Value):
        found = g.add1(Cast(I32), found)
    return _Factors(x, weight, found, q if q.any() else None)


def _moved(g: Rewriter, x: Value, by: int) -> Value:
    return g.add1(Binary("add"), x, g.constant(np.asarray(by, np.int32), "half"))


def _corrected(
    g: Rewriter, total: Value, f: _Factors, sums: Array, terms: Array, rows: Callable[[], Value]
) -> Value:
    """`total` less what zero points add. sums: of the weight by column, as they broadcast to it,
    and terms: how many numbers they have; rows: the sums of the data under each output, one
    column."""
    p, q = f.data_zero, f.weight_zero
    sums = sums if q is None else sums - terms * q  # sum of b' - q
    if isinstance(p, Value):
        total = g.add1(Binary("sub"), total, g.add1(Binary("mul"), p, g.constant(sums, "sums")))
    elif p is not None and (sums != 0).any():
        total = g.add1(Binary("sub"), total, g.constant(np.int32(p) * sums, "level"))
    if q is not None:
        share = g.add1(Binary("mul"), rows(), g.constant(q, "weight_zero"))
        total = g.add1(Binary("sub"), total, share)
    return total


def _matmul(node: Node, editor: GraphEditor, ctx: PassContext) -> bool:
    g = editor.rewriter([node])
    f = _factors(node, editor, g, ctx)
    if f.weight.ndim < 2 or f.data.type.rank < 2:
        return False
    total = g.add1(IntegerMatMul(), f.data, g.constant(f.weight, "weight"))
    sums = f.weight.sum(-2, dtype=np.int32, keepdims=f.weight.ndim > 2)

    def rows() -> Value:
        last = f.data.type.rank - 1
        return g.add1(Reduce("sum", (last,), True), g.add1(Cast(I32), f.data))

    done = _corrected(g, total, f, sums, np.int32(f.weight.shape[-2]), rows)
    editor.commit(g, node, {node.output: done})
    return True


def _conv(node: Node, editor: GraphEditor, ctx: PassContext) -> bool:
    assert isinstance(node.op, IntegerConv)
    g = editor.rewriter([node])
    f = _factors(node, editor, g, ctx)
    if f.weight_zero is not None and node.op.groups > 1:
        return False
    level = f.data_zero if isinstance(f.data_zero, int) and any(node.op.pads) else 0
    fills = ctx.backend.preferences.fills
    op = replace(node.op, fill=level if fills else 0)
    total = g.add1(op, f.data, g.constant(f.weight, "weight"))
    taps = f.weight.shape[1:]

    def rows() -> Value:
        ones = g.constant(np.ones((1, *taps), np.int8), "ones")
        return g.add1(op, f.data, ones)

    if f.weight_zero is not None and f.weight_zero.ndim:
        f = replace(f, weight_zero=f.weight_zero.reshape(-1))
    if level and not fills:
        sums, terms = _inside(op, f.data.shape[1:-1], total.shape[1:-1], f.weight)
    else:
        sums = f.weight.reshape(len(f.weight), -1).sum(1, dtype=np.int32)
        terms = np.int32(np.prod([number(n) for n in taps]))
    done = _corrected(g, total, f, sums, terms, rows)
    editor.commit(g, node, {node.output: done})
    return True


def _inside(
    op: IntegerConv, data: Sequence[Dim], result: Sequence[Dim], weight: Array
) -> tuple[Array, Array]:
    """For each place of the output, the sums of the weight over the taps that lie inside the data,
    by column, and how many numbers those are."""
    sizes, places = static(data), static(result)
    taps = weight.sum(1, dtype=np.int32).reshape(len(weight), -1)  # by column
    sums = np.zeros((*places, len(weight)), np.int32)
    terms = np.zeros((*places, 1), np.int32)
    for k, tap in enumerate(np.ndindex(*weight.shape[2:])):
        inside = np.ones(places, bool)
        for i, t in enumerate(tap):
            begin = number(op.pads[i])
            at = np.arange(places[i]) * op.strides[i] + t * op.dilations[i] - begin
            seen = (at >= 0) & (at < sizes[i])
            inside &= seen.reshape([-1 if j == i else 1 for j in range(len(places))])
        sums += inside[..., None] * taps[:, k]
        terms += inside[..., None] * np.int32(weight.shape[1])
    return sums, terms
