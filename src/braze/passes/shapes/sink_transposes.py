"""Move Transposes towards the outputs, so that they meet and cancel.

A Transpose of the operand becomes a Transpose of the result: `op(T(x))` -> `T(op'(x))`, where
`op'` is the op with its axes renamed. Only the place of elements changes, never a value: the
elements of a reduction are added in another order only where the op itself fixes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Union

import numpy as np

from braze.core.bounds import bounds
from braze.core.dims import Dim, Shape, exact_div, product
from braze.core.errors import BrazeError
from braze.expr.fold import leaves
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.lowering import Pointwise
from braze.ops.move.concat_split import Concat, Split
from braze.ops.move.shape import Expand, Reshape, Tile, Transpose
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.norm.local_norm import LpNormalize
from braze.ops.norm.normalization import LayerNorm, RmsNorm
from braze.ops.reduce.reduce import ArgReduce, Reduce
from braze.ops.reduce.scan import Cumulative
from braze.ops.reduce.softmax import Hardmax, Softmax
from braze.ops.sample.resize import Resize
from braze.passes.base import PassContext
from braze.passes.rewrite import describe
from braze.passes.shapes.simplify_shapes import (
    compose_transposes,
    moves_only_unit_axes,
    operand,
    producer,
)

Perm = tuple[int, ...]
# (node, perm of its first operand) -> (op on the untransposed operand, perm of the result)
Renamed = Union[tuple[Any, Perm], None]
UNBOUNDED_SIZE: Final = 64  # stands for a symbol without bounds when costs are compared


def sink_transposes(graph: Graph, ctx: PassContext) -> Graph:
    """Push every Transpose as far down as it goes, and cancel those that meet."""
    editor = GraphEditor(graph)
    for node in editor.walk():
        if type(node.op) is Transpose:
            sunk = _merge(node, editor)
        elif type(node.op) is Concat:
            sunk = _sink_concat(node, editor)
        elif type(node.op) in RENAMINGS or hasattr(node.op, "layout"):
            sunk = _sink_unary(node, editor)
        else:
            sunk = _sink_pointwise(node, editor)
        if sunk:
            ctx.trace.decide("rewrite", rule="sink_transposes", at=describe(node), nodes=1)
    return editor.finish()


def untangle_reshapes(graph: Graph, ctx: PassContext) -> Graph:
    """Turn Reshape, Transpose, Reshape into fewer ops where the Transpose tears no group apart."""
    editor = GraphEditor(graph)
    for node in editor.walk():
        if type(node.op) is Transpose:
            _merge(node, editor)
        elif type(node.op) is Reshape and _sink_unary(node, editor):
            ctx.trace.decide("rewrite", rule="untangle_reshapes", at=describe(node), nodes=2)
    return editor.finish()


def _merge(node: Node, editor: GraphEditor) -> bool:
    built = editor.rewriter([node])
    merged = compose_transposes(node, editor, built)
    return merged is not None and _commit(editor, built, node, {node.output: merged})


def inverse(perm: Sequence[int]) -> Perm:
    """The permutation that undoes `perm`."""
    return tuple(int(i) for i in np.argsort(np.asarray(perm, dtype=np.int64)))


def _permuted(items: Sequence[Any], perm: Perm) -> tuple[Any, ...]:
    """Per-axis data of T(x) as per-axis data of x: item i goes to axis perm[i]."""
    return tuple(items[i] for i in inverse(perm))


def _sink_unary(node: Node, editor: GraphEditor) -> bool:
    transposed = producer(editor, node.inputs[0], Transpose) if node.inputs else None
    if transposed is None:
        return False
    renamed = RENAMINGS.get(type(node.op), _to_channels_last)(node, transposed.op.perm)
    if renamed is None:
        return False
    op, perm = renamed
    built = editor.rewriter([node])
    results = built.add(op, operand(transposed), *node.inputs[1:])
    new = {
        old: built.add1(Transpose(perm), r) if perm != tuple(range(len(perm))) else r
        for old, r in zip(node.outputs, results, strict=True)
    }
    return _commit(editor, built, node, new)


def _commit(editor: GraphEditor, built: Rewriter, node: Node, new: dict[Value, Value]) -> bool:
    if any(old.type != v.type for old, v in new.items()):
        return False
    editor.commit(built, node, new)
    return True


# ------------------------------------------------------------------ ops with several operands


def is_elementwise(node: Node) -> bool:
    """Whether each output element depends on the operands' elements under broadcasting alone."""
    if len(node.outputs) != 1 or not node.inputs or isinstance(node.op, (Transpose, Reshape)):
        return False
    types = [None if v is None else v.type for v in node.inputs]
    try:
        lowering = node.op.lower(types, [node.output.type])
    except BrazeError:
        return False
    if not isinstance(lowering, Pointwise) or leaves(lowering.expr, "axis"):
        return False
    present = sum(v is not None for v in node.inputs)
    return len(leaves(lowering.expr, "hole")) == present


def _sink_pointwise(node: Node, editor: GraphEditor) -> bool:
    if not any(producer(editor, v, Transpose) for v in node.inputs) or not is_elementwise(node):
        return False
    rank = node.output.type.rank
    perm = _common_perm(node, editor, rank)
    if perm is None:
        return False
    built = editor.rewriter([node])
    inputs = [None if v is None else _in_layout(v, perm, rank, editor, built) for v in node.inputs]
    try:
        (result,) = built.add(node.op, *inputs)
    except BrazeError:
        return False  # an op that broadcasts one way only
    return _commit(editor, built, node, {node.output: built.add1(Transpose(perm), result)})


def _sink_concat(node: Node, editor: GraphEditor) -> bool:
    rank = node.output.type.rank
    perm = _common_perm(node, editor, rank)
    if perm is None:
        return False
    built = editor.rewriter([node])
    inputs = [_in_layout(v, perm, rank, editor, built) for v in node.inputs if v is not None]
    result = built.add1(Concat(perm[node.op.axis]), *inputs)
    return _commit(editor, built, node, {node.output: built.add1(Transpose(perm), result)})


def _common_perm(node: Node, editor: GraphEditor, rank: int) -> Perm | None:
    """The perm worth sinking: operands that have it outweigh those that would get a Transpose."""
    gain: dict[Perm, int] = {}
    for v in node.inputs:
        inner = producer(editor, v, Transpose)
        if inner is not None and len(inner.op.perm) == rank:
            gain[inner.op.perm] = gain.get(inner.op.perm, 0) + _cost(inner.output, editor)
    if not gain:
        return None
    perm = max(gain, key=lambda p: gain[p])
    loss = 0
    for v in node.inputs:
        if v is None or v in editor.constants:
            continue
        inner = producer(editor, v, Transpose)
        if inner is None or inner.op.perm != perm:
            full = (1,) * (rank - v.type.rank) + v.shape
            loss += 0 if moves_only_unit_axes(full, inverse(perm)) else _cost(v, editor)
    return perm if loss == 0 or loss < gain[perm] else None


def _cost(value: Value, editor: GraphEditor) -> int:
    """Elements of `value`, symbols at their upper bounds."""
    env = {s: (hi, hi) for s, (_, hi) in editor.graph.bounds.items()}
    total = 1
    for d in value.shape:
        try:
            total *= max(bounds(d, env)[1], 1)
        except BrazeError:
            total *= UNBOUNDED_SIZE
    return total


def _in_layout(v: Value, perm: Perm, rank: int, editor: GraphEditor, g: Rewriter) -> Value:
    """A value x with T(x) = v, for T of `perm`; v of lower rank broadcasts."""
    inner = producer(editor, v, Transpose)
    if inner is not None and inner.op.perm == perm:
        return operand(inner)
    if v.type.rank == 0 or all(d == 1 for d in v.shape):
        return v
    full: Shape = (1,) * (rank - v.type.rank) + v.shape
    back = inverse(perm)
    array = editor.array(v)
    if array is not None:
        moved = array.reshape(full).transpose(back)
        while moved.ndim > 1 and moved.shape[0] == 1 and v.type.rank < rank:
            moved = moved[0]
        return g.constant(np.ascontiguousarray(moved), v.name)
    wide = v if v.type.rank == rank else g.add1(Reshape(full), v)
    return g.add1(Transpose(back), wide)


# ------------------------------------------------------------------ ops with one operand


def _reduce(node: Node, perm: Perm) -> Renamed:
    op = node.op
    axes = tuple(sorted(perm[a] for a in op.axes))
    if op.keepdims:
        return replace(op, axes=axes), perm
    kept = [perm[i] for i in range(len(perm)) if i not in op.axes]
    order = sorted(kept)
    return replace(op, axes=axes), tuple(order.index(k) for k in kept)


def _arg_reduce(node: Node, perm: Perm) -> Renamed:
    op = node.op
    rest = [p for i, p in enumerate(perm) if i != op.axis]
    order = sorted(rest)
    out = perm if op.keepdims else tuple(order.index(p) for p in rest)
    return replace(op, axis=perm[op.axis]), out


def _axis(node: Node, perm: Perm) -> Renamed:
    return replace(node.op, axis=perm[node.op.axis]), perm


def channels_first_perm(rank: int) -> Perm:
    """The Transpose of [N, *spatial, C] to [N, C, *spatial]."""
    return (0, rank - 1, *range(1, rank - 1))


def _to_channels_last(node: Node, perm: Perm) -> Renamed:
    """Ops with a layout read channels-last data as it is (their other operands have none)."""
    if node.op.layout != "NCHW" or perm != channels_first_perm(len(perm)) or len(node.outputs) > 1:
        return None
    return replace(node.op, layout="NHWC"), perm


def _slice(node: Node, perm: Perm) -> Renamed:
    op = node.op
    moved = (_permuted(field, perm) for field in (op.starts, op.sizes, op.steps))
    return Slice(*moved), perm


def _pad(node: Node, perm: Perm) -> Renamed:
    op = node.op
    begins, ends = _permuted(op.begins, perm), _permuted(op.ends, perm)
    return replace(op, begins=begins, ends=ends), perm


def _resize(node: Node, perm: Perm) -> Renamed:
    op = node.op
    rank = len(perm)
    roi = op.roi and _permuted(op.roi[:rank], perm) + _permuted(op.roi[rank:], perm)
    sizes, scales = _permuted(op.sizes, perm), _permuted(op.scales, perm)
    return replace(op, sizes=sizes, scales=scales, roi=roi), perm


def _tile(node: Node, perm: Perm) -> Renamed:
    return Tile(_permuted(node.op.repeats, perm)), perm


def _expand(node: Node, perm: Perm) -> Renamed:
    extra = len(node.op.shape) - len(perm)
    wide = (*range(extra), *(p + extra for p in perm))
    return Expand(_permuted(node.op.shape, wide)), wide


def _trailing_norm(node: Node, perm: Perm) -> Renamed:
    """Norms over trailing axes: those must stay where they are."""
    axis = node.op.axis % len(perm)
    fixed = all(perm[i] == i for i in range(axis, len(perm)))
    return (node.op, perm) if fixed and len(node.outputs) == 1 else None


def reshape_groups(a: Shape, b: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Split a Reshape from `a` to `b` into independent groups of neighbouring axes.

    Each group (axes of a, axes of b) has equal products; a unit axis is a group of its own with
    the other side empty. None when the sizes do not tell (symbols, or an empty tensor).
    """
    if any(d == 0 for d in (*a, *b)):
        return None
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        if i < len(a) and a[i] == 1:
            groups.append(([i], []))
            i += 1
            continue
        if j < len(b) and b[j] == 1:
            groups.append(([], [j]))
            j += 1
            continue
        if i == len(a) or j == len(b):
            return None
        left, right = [i], [j]
        i, j = i + 1, j + 1
        while (pa := product(a[k] for k in left)) != (pb := product(b[k] for k in right)):
            if i < len(a) and _is_part(pa, pb):
                left.append(i)
                i += 1
            elif j < len(b) and _is_part(pb, pa):
                right.append(j)
                j += 1
            else:
                return None
        groups.append((left, right))
    return groups


def _is_part(a: Dim, b: Dim) -> bool:
    """Whether a product of sizes that has reached `a` must grow to become `b`."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return exact_div(b, a) is not None


def _reshape(node: Node, perm: Perm) -> Renamed:
    """Sink through a Reshape whose groups of axes are not torn apart by the Transpose."""
    groups = reshape_groups(operand(node).shape, node.op.shape)
    if groups is None:
        return None
    order: list[int] = []
    pending = {perm[left[0]]: (left, right) for left, right in groups if left}
    new_units = [right for left, right in groups if not left]
    source = 0
    while source < len(perm):
        if source not in pending:
            return None
        left, right = pending[source]
        if [perm[k] for k in left] != list(range(source, source + len(left))):
            return None
        order += right
        source += len(left)
    order = _with_units(order, new_units)
    shape: list[Dim] = [node.op.shape[k] for k in order]
    return Reshape(tuple(shape)), inverse(order)


def _with_units(order: list[int], units: list[list[int]]) -> list[int]:
    """Put new unit axes behind the axis they follow in the result (or first)."""
    out = list(order)
    for (unit,) in units:
        out.insert(out.index(unit - 1) + 1 if unit - 1 in out else 0, unit)
    return out


RENAMINGS: Final[Mapping[type[Any], Callable[[Node, Perm], Renamed]]] = {
    Reduce: _reduce,
    ArgReduce: _arg_reduce,
    Softmax: _axis,
    Hardmax: _axis,
    LpNormalize: _axis,
    Cumulative: _axis,
    Slice: _slice,
    Pad: _pad,
    Tile: _tile,
    Expand: _expand,
    Reshape: _reshape,
    LayerNorm: _trailing_norm,
    RmsNorm: _trailing_norm,
    Split: _axis,
    Resize: _resize,
}
