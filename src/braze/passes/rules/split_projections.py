"""Take a joint projection of queries, keys and values apart where its parts are only sliced out.

    Slice_i(MatMul(x, w) + b)  ->  MatMul(x, w[:, part i]) + b[part i]

Each element is the same sum as before. The slices would be copies in front of the attention,
which reads whole tensors; the smaller products write each part where it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from braze.core.dims import is_static, number, product
from braze.ir.editor import GraphEditor
from braze.ir.graph import Graph, Node, Value
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.move.slice_pad import Slice
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.attention import FusedAttention
from braze.ops.product.matmul import MatMul
from braze.ops.writing.axes import reshape_groups
from braze.passes.base import PassContext
from braze.passes.rewrite import describe, operand, producer


@dataclass(frozen=True)
class Projection:
    """x @ weight + bias; `bias` may be absent."""

    matmul: Node
    bias: Value | None


def split_projections(graph: Graph, ctx: PassContext) -> Graph:
    """Split matrix products all of whose users slice columns out for an attention."""
    editor = GraphEditor(graph)
    for node in editor.walk():
        if isinstance(node.op, MatMul):
            _split(node, editor, ctx)
    return editor.finish()


def _split(matmul: Node, editor: GraphEditor, ctx: PassContext) -> bool:
    weight = matmul.inputs[1]
    if weight is None or editor.array(weight) is None or weight.type.rank != 2:
        return False
    result, bias = _biased(matmul, editor)
    slices = _slices(result, editor)
    if not slices:
        return False
    parts = [_columns(s, result, editor) for s in slices]
    least = ctx.backend.preferences.narrow_columns
    if any(p is None or p[1] < least or not _feeds_attention(s.output, editor)
           for s, p in zip(slices, parts, strict=True)):  # fmt: skip
        return False
    for node, part in zip(slices, parts, strict=True):
        assert part is not None
        _replace(node, Projection(matmul, bias), part, editor)
    ctx.trace.decide("rewrite", rule="split_projections", at=describe(matmul), nodes=len(slices))
    return True


def _only_user(v: Value, editor: GraphEditor) -> Node | None:
    users = editor.users_of(v)
    return users[0] if len(users) == 1 and not editor.is_output(v) else None


def _biased(matmul: Node, editor: GraphEditor) -> tuple[Value, Value | None]:
    """The product with its constant bias, if it has one along the columns."""
    user = _only_user(matmul.output, editor)
    if user is not None and isinstance(user.op, Binary) and user.op.op == "add":
        for v in user.inputs:
            if v is not None and v in editor.constants and user.output.type == matmul.output.type:
                columns = matmul.output.shape[-1]
                if v.shape[-1:] == (columns,) and product(v.shape) == columns:
                    return user.output, v
    return matmul.output, None


def _slices(result: Value, editor: GraphEditor) -> list[Node]:
    """The Slices that read `result`, directly or behind one Reshape; none if anything else does."""
    out: list[Node] = []
    if editor.is_output(result):
        return []
    for user in editor.users_of(result):
        if isinstance(user.op, Reshape):
            if editor.is_output(user.output):
                return []
            inner = editor.users_of(user.output)
        else:
            inner = (user,)
        if not all(isinstance(n.op, Slice) for n in inner):
            return []
        out += inner
    return out


def _columns(node: Node, result: Value, editor: GraphEditor) -> tuple[int, int] | None:
    """(first column, number of columns) that a Slice takes, None when it is no column range."""
    x, op = operand(node), node.op
    reshaped = producer(editor, x, Reshape)
    groups = reshape_groups(result.shape, x.shape) if reshaped is not None else None
    if reshaped is None:
        trailing = [x.type.rank - 1]
    elif groups is None or [g[0] for g in groups if g[0]][-1] != [result.type.rank - 1]:
        return None
    else:
        trailing = next(g[1] for g in reversed(groups) if g[0])
    taken = [i for i in range(x.type.rank) if op.sizes[i] != x.shape[i]]
    if any(s != 1 for s in op.steps) or len(taken) != 1 or taken[0] not in trailing:
        return None
    first = taken[0]
    if not is_static(x.shape[first:]) or any(
        x.shape[i] != 1 for i in trailing[: trailing.index(first)]
    ):
        return None
    start, size = op.starts[first], op.sizes[first]
    inner = product(x.shape[i] for i in trailing if i > first)
    if not is_static((start, size, inner)):
        return None
    return number(start) * number(inner), number(size) * number(inner)


def _feeds_attention(value: Value, editor: GraphEditor) -> bool:
    while True:
        user = _only_user(value, editor)
        if user is None:
            return False
        if isinstance(user.op, FusedAttention):
            return True
        if not isinstance(user.op, (Reshape, Transpose)):
            return False
        value = user.output


def _replace(
    node: Node, projection: Projection, part: tuple[int, int], editor: GraphEditor
) -> None:
    start, size = part
    matmul = projection.matmul
    x, weight = operand(matmul), matmul.inputs[1]
    assert weight is not None
    built = editor.rewriter([node, matmul])

    def columns(v: Value) -> Value:
        array = editor.array(v)
        assert array is not None
        chosen = np.ascontiguousarray(array[..., start : start + size])
        return built.constant(chosen, v.name)

    y = built.add1(MatMul(), x, columns(weight))
    if projection.bias is not None:
        y = built.add1(Binary("add"), y, columns(projection.bias))
    if y.shape != node.output.shape:
        y = built.add1(Reshape(node.output.shape), y)
    editor.commit(built, node, {node.output: y})
