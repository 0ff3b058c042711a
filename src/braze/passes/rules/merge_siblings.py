"""Make products of one tensor with several constant weights one wide product.

    act(x @ w0 + b0), act(x @ w1 + b1), ..
        ->  y = act(x @ [w0 w1 ..] + [b0 b1 ..]);  y[.., columns of 0], y[.., columns of 1], ..

Likewise convolutions with one window. Each element is the same sum as before. One product of many
columns fills a device that narrow ones leave idle, and x is read once. It pays only where no part
costs a copy or a kernel more than before: parts stay apart that are outputs of the graph, that
have a residual or another tensor in their epilogue, or that are read by something that cannot read
a slice in place. Of few rows a product costs what its weights do: there the two sides of a gate,
act(x @ w0) * (x @ w1), are one product and a small kernel instead of two products.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from braze.core.dims import product
from braze.expr.fold import leaves
from braze.expr.loops import TensorSpec
from braze.ir.editor import GraphEditor
from braze.ir.graph import Graph, Node, TensorType, Value
from braze.ops.base import Array
from braze.ops.lowering import Anchor, Lowering, Nest, Pointwise, View
from braze.ops.move.slice_pad import slice_axis
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.conv import Conv
from braze.ops.product.matmul import MatMul
from braze.ops.writing.strides import Place, placed, row_major, through
from braze.passes.base import PassContext
from braze.passes.rewrite import describe

ALIGNED: Final = 16  # bytes at which operands of products should begin: one wide load
# All parts live as long as the one that is read last. A decoder projects what its encoder gives to
# keys and values once for each layer: joined they would all be in memory at once.
MOST_PARTS: Final = 4
FEW_ROWS: Final = 16


def merge_siblings(graph: Graph, ctx: PassContext) -> Graph:
    """Join products and convolutions of the same tensor where the backend likes wide ones."""
    if not ctx.backend.preferences.joint_products:
        return graph
    editor = GraphEditor(graph)
    position = {n.outputs[0]: i for i, n in enumerate(graph.nodes)}
    for node in editor.walk():
        x = node.inputs[0] if node.inputs else None
        parts = [p for p in _siblings(node, editor) if p.product.output in position]
        parts = [p for p in parts if len(parts) > 1 and _reads_are_free(p, editor, ctx)]
        parts = sorted(parts, key=lambda p: position[p.product.output])[:MOST_PARTS]
        if x is not None and len(parts) > 1 and parts[0].product is node:
            _merge(x, parts, editor)
            ctx.trace.decide("rewrite", rule="merge_siblings", at=describe(node), nodes=len(parts))
    return editor.finish()


@dataclass(frozen=True)
class Part:
    """One product with what follows it, up to `result`.

    sum: the node that adds `bias`, one number a column, where there is one; steps: pointwise ops of
    one tensor; kind: what parts of one product have in common.
    """

    product: Node
    weight: Array
    bias: Array | None
    sum: tuple[Node, ...]
    steps: tuple[Node, ...]
    kind: Hashable
    bare: bool = False

    @property
    def values(self) -> list[Value]:
        """The product or sum and what each step makes of it, `result` last."""
        return [n.output for n in (self.product, *self.sum)][-1:] + [n.output for n in self.steps]

    @property
    def result(self) -> Value:
        return self.values[-1]

    @property
    def column_axis(self) -> int:
        """The axis of the weight that columns of the result stand on."""
        return self.weight.ndim - 1 if isinstance(self.product.op, MatMul) else 0

    @property
    def columns(self) -> int:
        return int(self.weight.shape[self.column_axis])

    @property
    def is_aligned(self) -> bool:
        """Whether a part behind it begins where operands should."""
        return self.columns * int(self.weight.dtype.itemsize) % ALIGNED == 0


def _siblings(node: Node, editor: GraphEditor) -> list[Part]:
    """The products that could be one with `node`, itself among them."""
    found: list[Part] = []
    for bare in (False, True):
        own = _part(node, editor, bare)
        if own is None or len(found) > 1:
            break
        parts = (_part(n, editor, bare) for v in node.inputs[:1] if v for n in editor.users_of(v))
        found = [p for p in parts if p is not None and p.kind == own.kind]
        if bare:
            meeting = _meeting(own.result, editor)
            found = [p for p in found if meeting and _meeting(p.result, editor) is meeting]
    return found


def _meeting(v: Value, editor: GraphEditor) -> Node | None:
    """The pointwise op that combines `v`, after activations, with another tensor."""
    while (user := _only_user(v, editor)) is not None and isinstance(lowering(user), Pointwise):
        if not all(x is v or _is_scalar(x, editor) for x in user.inputs):
            return user
        v = user.output
    return None


def _part(node: Node, editor: GraphEditor, bare: bool) -> Part | None:
    """The part of a joint product that `node` could be; bare: of few rows, and without steps."""
    op = node.op
    if isinstance(op, Conv):
        if op.groups != 1 or op.layout != "NHWC":
            return None
    elif not isinstance(op, MatMul):
        return None
    x, w = node.inputs
    weight = editor.array(w)
    if x is None or w is None or weight is None or x in editor.constants:
        return None
    if isinstance(op, MatMul) and weight.ndim != 2:
        return None
    if len(editor.users_of(w)) > 1 or editor.is_output(w):  # it would be stored twice
        return None
    rows = product(node.output.shape[:-1])
    if bare and not (isinstance(op, MatMul) and isinstance(rows, int) and rows <= FEW_ROWS):
        return None
    bias, added = _bias_of(node.output, editor)
    steps = () if bare else _steps_of(added[0].output if added else node.output, editor)
    kept = weight.shape[:-1] if isinstance(op, MatMul) else weight.shape[1:]
    part = Part(node, weight, bias, added, steps, (), bare)
    doing = tuple(_doing(n, editor) for n in steps)
    kind = (op, kept, weight.dtype, doing, part.is_aligned)
    return None if editor.is_output(part.result) else replace(part, kind=kind)


def _only_user(v: Value, editor: GraphEditor) -> Node | None:
    users = editor.users_of(v)
    return users[0] if len(users) == 1 and not editor.is_output(v) else None


def _bias_of(result: Value, editor: GraphEditor) -> tuple[Array | None, tuple[Node, ...]]:
    """The constant of one number a column that is added to a product, and where."""
    user = _only_user(result, editor)
    if user is not None and isinstance(user.op, Binary) and user.op.op == "add":
        constants = [a for v in user.inputs if (a := editor.array(v)) is not None]
        columns = result.shape[-1]
        if len(constants) == 1 and user.output.type == result.type:
            (bias,) = constants
            if bias.size == columns and bias.shape[-1:] == (columns,):
                return bias.reshape(-1), (user,)
    return None, ()


def _steps_of(result: Value, editor: GraphEditor) -> tuple[Node, ...]:
    """The pointwise ops of one tensor and of scalars that finish `result`."""
    steps: list[Node] = []
    while (user := _only_user(result, editor)) is not None:
        others = [v for v in user.inputs if v is not result]
        if not isinstance(lowering(user), Pointwise) or user.output.type != result.type:
            break
        if len(others) + 1 != len(user.inputs) or not all(_is_scalar(v, editor) for v in others):
            break
        steps.append(user)
        result = user.output
    return tuple(steps)


def _is_scalar(v: Value | None, editor: GraphEditor) -> bool:
    array = editor.array(v)
    return v is None or (array is not None and array.size == 1)


def _doing(node: Node, editor: GraphEditor) -> Hashable:
    """What a step does: its op and the contents of its scalars, in their places."""
    arrays = [editor.array(v) for v in node.inputs]
    return node.op, tuple(None if a is None else (a.shape, a.tobytes()) for a in arrays)


def lowering(node: Node) -> Lowering:
    """How the node is computed."""
    types = [None if v is None else v.type for v in node.inputs]
    found: Lowering = node.op.lower(types, [v.type for v in node.outputs])
    return found


def _reads_are_free(part: Part, editor: GraphEditor, ctx: PassContext) -> bool:
    """Whether everything that reads a part reads it as well out of a wider tensor."""
    v = part.result
    if _is_epilogue(v, editor) and not part.bare:
        return False
    wide = (*v.shape[:-1], 2 * part.columns)
    at = Place(row_major(wide).steps, part.columns)
    return _Reader(editor, ctx, replace(v.type, shape=wide), part.is_aligned).is_free(v, at)


def _is_epilogue(v: Value, editor: GraphEditor) -> bool:
    """Whether a product that makes `v` would finish it in the one kernel that reads it."""
    while (user := _only_user(v, editor)) is not None:
        low = lowering(user)
        if isinstance(low, Pointwise):
            return user.output.shape == v.shape
        if not isinstance(low, View) or not low.reshape:
            return False
        v = user.output
    return False


@dataclass(frozen=True)
class _Reader:
    """How a part is read. joint: the type of the tensor that it is in; is_aligned: whether its
    rows begin where operands of products should."""

    editor: GraphEditor
    ctx: PassContext
    joint: TensorType
    is_aligned: bool

    def is_free(self, v: Value, at: Place) -> bool:
        """Whether all users read `v`, which lies at `at`, without a copy they did not need."""
        users = self.editor.users_of(v)
        return bool(users) and all(self._reads(user, v, at) for user in users)

    def _reads(self, user: Node, v: Value, at: Place) -> bool:
        low = lowering(user)
        if isinstance(low, Pointwise):
            return True
        if isinstance(low, Nest):
            return not _picks(low, [x for x in user.inputs if x is not None].index(v))
        if isinstance(low, Anchor):
            return self._is_operand(user, low, v, at)
        if not isinstance(low, View):
            return False
        inner = through(low, at, v.shape, user.output.shape)
        if inner is None:  # elements are moved in any case, but by a reshape
            return not low.reshape
        if self.editor.is_output(user.output):
            return not low.reshape
        return self.is_free(user.output, inner)

    def _is_operand(self, user: Node, anchor: Anchor, v: Value, at: Place) -> bool:
        present = [x for x in user.inputs if x is not None]
        slots = {i for i, x in enumerate(present) if x is v}
        changed: dict[str, Any] = {}
        read: set[int] = set()
        for field, (operand, sizes) in anchor.spec.operands.items():
            if operand.slot in slots:
                changed[field] = placed(operand, sizes, v.shape, at)
                read.add(operand.slot)
        if not self.is_aligned or read != slots or None in changed.values():
            return False
        types = [self.joint if x is v else x.type for x in present]
        known = frozenset(i for i, x in enumerate(present) if x in self.editor.constants)
        spec = replace(anchor.spec, **changed)
        specs = [TensorSpec(t.dtype, t.shape) for t in types]
        return self.ctx.backend.supports(spec, specs, known) is None


def _picks(nest: Nest, slot: int) -> bool:
    """Whether the elements that a loop nest reads of a slot depend on data."""
    roots = [r.expr for n in nest.kernel.nests for r in n.reduces]
    roots += [e for n in nest.kernel.nests for s in n.stores for e in (s.expr, *s.index)]
    loads = [e for root in roots for e in leaves(root, "load") if e.slot == slot]
    return any(leaves(index, "load") for e in loads for index in e.args)


def _merge(x: Value, parts: Sequence[Part], editor: GraphEditor) -> None:
    first = parts[0]
    g = editor.rewriter([n for p in parts for n in (p.product, *p.sum, *p.steps)])
    weight = np.concatenate([p.weight for p in parts], axis=first.column_axis)
    y = g.add1(first.product.op, x, g.constant(weight, "weights"))
    if any(p.bias is not None for p in parts):
        y = g.add1(Binary("add"), y, g.constant(np.concatenate([*map(_bias, parts)]), "biases"))
    for step, before in zip(first.steps, first.values, strict=False):
        y = g.add1(step.op, *(y if v is before else v for v in step.inputs))
    starts = np.cumsum([0, *(p.columns for p in parts)])
    last = y.type.rank - 1
    made = {
        p.result: slice_axis(g, y, last, int(start), p.columns)
        for p, start in zip(parts, starts, strict=False)
    }
    editor.commit(g, first.product, made)


def _bias(part: Part) -> Array:
    """One number a column; -0.0 for none, which changes no element, not even the sign of a zero."""
    if part.bias is not None:
        return part.bias
    return np.full(part.columns, -0.0).astype(part.weight.dtype)
