"""Arithmetic identities.

All are exact for every input including NaN, infinities and signed zeros, except pow(x, 3), which
becomes two multiplications (two roundings instead of one). `x + 0.0` stays: it turns -0.0 into
0.0. `pow(x, 0.5)` becomes a square root only where x cannot be negative: pow(-inf, 0.5) is inf.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from braze.core.dtypes import BF16
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.pointwise.activation import Sigmoid
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.reduce.reduce import Reduce
from braze.passes.base import PassContext
from braze.passes.rewrite import NodeRewrite, operand, producer, rewrite_nodes

MAX_DEPTH: Final = 4


def simplify_algebra(graph: Graph, ctx: PassContext) -> Graph:
    """Apply the identities of this module until nothing changes."""
    return rewrite_nodes(graph, {Binary: _binary, Unary: _unary}, ctx, "simplify_algebra")


def _unary(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    if node.op.op != "neg":
        return None
    inner = producer(editor, operand(node), Unary)
    return operand(inner) if inner is not None and inner.op.op == "neg" else None


def _binary(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    rewrite = BINARIES.get(node.op.op)
    return None if rewrite is None else rewrite(node, editor, g)


def _number(editor: GraphEditor, value: Value | None) -> float | None:
    """The one number a constant holds everywhere, or None."""
    array = editor.array(value)
    if value is None or array is None or array.size == 0 or value.dtype is BF16:
        return None
    first = array.reshape(-1)[0]
    same = array.tobytes() == np.full_like(array, first).tobytes()  # tells -0.0 from 0.0
    return float(first) if same and array.dtype.kind in "fiu" else None


def _is_zero(value: float, negative: bool) -> bool:
    return value == 0 and (math.copysign(1, value) < 0) == negative


def _operands(node: Node) -> tuple[Value, Value]:
    x, y = node.inputs
    assert x is not None and y is not None
    return x, y


def _add(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    for x, y in (_operands(node), _operands(node)[::-1]):
        c = _number(editor, y)
        if c is not None and _is_zero(c, negative=x.dtype.is_float):
            return x
    return None


def _sub(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    """x - c is x + (-c), which later rules look for."""
    x, y = _operands(node)
    c = _number(editor, y)
    if c is not None and _is_zero(c, negative=False):
        return x
    array = editor.array(y)
    if array is None or array.dtype.kind != "f" or editor.array(x) is not None:
        return None
    return g.add1(Binary("add"), x, g.constant(-array, y.name))


def _mul(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    for x, y in (_operands(node), _operands(node)[::-1]):
        if _number(editor, y) == 1:
            return x
    return None


def _div(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    x, y = _operands(node)
    if _number(editor, y) == 1:
        return x
    array = editor.array(y)
    if array is None or y.dtype is BF16 or array.dtype.kind != "f" or not array.size:
        return None
    with np.errstate(all="ignore"):
        mantissa, _ = np.frexp(array)
        inverse = (1 / array).astype(array.dtype)
    tiny = np.finfo(array.dtype).tiny
    exact = np.abs(mantissa) == 0.5
    normal = (np.abs(array) >= tiny) & (np.abs(inverse) >= tiny) & np.isfinite(inverse)
    if not (exact & normal).all():
        return None
    return g.add1(Binary("mul"), x, g.constant(inverse, y.name))


def _pow(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    x, y = _operands(node)
    exponent = _number(editor, y)
    if exponent is None or x.type != node.output.type or not x.dtype.is_float:
        return None
    if exponent == 1:
        return x
    if exponent == 2:
        return g.add1(Binary("mul"), x, x)
    if exponent == 3:
        return g.add1(Binary("mul"), g.add1(Binary("mul"), x, x), x)
    if exponent == -1:
        return g.add1(Unary("reciprocal"), x)
    if exponent == 0.5 and is_nonnegative(x, editor):
        return g.add1(Unary("sqrt"), x)
    return None


def is_nonnegative(value: Value, editor: GraphEditor, depth: int = MAX_DEPTH) -> bool:
    """Whether every element is NaN or at least +0.0, as far as the next few producers tell."""
    array = editor.array(value)
    if array is not None:
        return array.dtype.kind == "f" and not np.signbit(array).any()
    node = editor.producer_of(value)
    if node is None or depth == 0:
        return False
    op = node.op
    if isinstance(op, Unary) and op.op in ("abs", "exp"):
        return True
    if isinstance(op, Binary) and op.op == "mul" and node.inputs[0] is node.inputs[1]:
        return True
    if isinstance(op, Sigmoid):
        return True
    passes_on = isinstance(op, Binary) and op.op in ("add", "mul", "max")
    passes_on |= isinstance(op, Unary) and op.op == "sqrt"
    passes_on |= isinstance(op, Reduce) and op.kind in ("sum", "mean", "max", "min")
    return passes_on and all(
        v is not None and is_nonnegative(v, editor, depth - 1) for v in node.inputs
    )


BINARIES: Final[Mapping[str, NodeRewrite]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
}
