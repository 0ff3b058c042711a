"""softmax(scale * q k' + mask) v becomes FusedAttention.

Scales on q, k or the scores are collected into one factor; Transposes of heads become layouts.
Refused where the fused op would answer differently: it gives 0 for a query that sees no key,
where a plain softmax of -inf gives NaN. So without a NaN guard in the model, the mask must be
constant and leave a key to every row, or be made of finite numbers. (A guard also hides NaN that
comes from NaN in q or k; the fused op shows it.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from braze.core.dtypes import BF16, F16, F32
from braze.expr.loops import TensorSpec
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Node, Value
from braze.ir.pattern import Const, Match, Pattern, Var, call, one_of
from braze.ops.abilities import UNLIMITED, Abilities
from braze.ops.base import Array
from braze.ops.lowering import Anchor
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import Expand, Reshape, Transpose, reshape, transpose
from braze.ops.move.slice_pad import Slice
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.compare import IsNaN, Where
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.product.attention import LAYOUTS, FusedAttention
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.softmax import Softmax
from braze.passes.rewrite import Refusal, Rule
from braze.passes.rules.contents import is_scalar, keeps_type
from braze.passes.rules.patterns import add, binary, mul

# a finite mask this low hides a key from float32 softmax whatever its score
HIDDEN: Final = -1e30
MAX_DEPTH: Final = 8


def _is_plain(op: Softmax) -> bool:
    return not op.log


def _is_number(array: Array) -> bool:
    """Whether a constant is a scale; one that makes NaN or infinities of terms is none."""
    is_float = is_scalar(array) or bool(array.size == 1 and array.dtype == BF16.numpy)
    return is_float and 0 < abs(float(array.reshape(-1)[0])) < math.inf


def _is_zero(array: Array) -> bool:
    return bool(array.size == 1 and array.reshape(-1)[0] == 0)


def _is_hidden(array: Array) -> bool:
    return bool(
        array.size == 1 and array.dtype.kind == "f" and float(array.reshape(-1)[0]) <= HIDDEN
    )


def _scores() -> Pattern:
    product = call(MatMul, Var("q"), Var("k"), name="scores")
    scale = Const("scale", _is_number)
    scaled = one_of(
        mul(product, scale), binary("div", product, Const("divisor", _is_number)), product
    )
    return one_of(
        add(add(scaled, Var("bias")), Var("mask")),
        add(scaled, Var("mask")),
        call(Where, Var("visible"), scaled, Const("low", _is_hidden)),
        scaled,
    )


_SOFTMAX: Final = call(Softmax, _scores(), where=_is_plain, name="softmax")
_GUARDED: Final = call(Where, call(IsNaN, _SOFTMAX), Const("guard", _is_zero), _SOFTMAX)


def unscaled(value: Value, g: Rewriter) -> tuple[Value, float]:
    """`value` as (x, factor) with x * factor = value, factors found behind Transposes too."""
    source, factor, perm = value, 1.0, tuple(range(value.type.rank))
    found = (source, factor, perm)
    while (node := g.editor.producer_of(source)) is not None:
        first = node.inputs[0] if node.inputs else None
        if isinstance(node.op, Transpose) and first is not None:
            source, perm = first, tuple(node.op.perm[p] for p in perm)
            continue
        step = _scalar_factor(node, g) if isinstance(node.op, Binary) else None
        if step is None or step[0].type != source.type:
            break
        source, factor = step[0], factor * step[1]
        found = (source, factor, perm)
    return (transpose(g, found[0], found[2]), found[1]) if found[1] != 1 else (value, 1.0)


def _scalar_factor(node: Node, g: Rewriter) -> tuple[Value, float] | None:
    """(other operand, factor) of a product with a scalar constant."""
    x, y = node.inputs
    op = node.op.op
    if x is None or y is None or op not in ("mul", "div"):
        return None
    for value, scale in ((x, y), (y, x)) if op == "mul" else ((x, y),):
        array = g.array(scale)
        if array is not None and _is_number(array):
            number = float(array.reshape(-1)[0])
            return value, number if op == "mul" else 1 / number
    return None


def is_finite(value: Value, graph: GraphEditor, depth: int = MAX_DEPTH) -> bool:
    """Whether a mask is made of finite numbers by ops that keep them finite.

    Products and sums count as finite: what leads out of the float range there is no mask.
    """
    array = graph.array(value)
    if array is not None:
        return not value.dtype.is_float or bool(np.isfinite(array.astype(np.float64)).all())
    if not value.dtype.is_float:
        return True
    node = graph.producer_of(value)
    if node is None or depth == 0:
        return False
    op, inputs = node.op, node.inputs
    if isinstance(op, Where):
        inputs = inputs[1:]
    elif isinstance(op, (Slice, Reshape, Transpose, Expand, Cast)):
        inputs = inputs[:1]
    elif not (
        isinstance(op, Concat)
        or (isinstance(op, Unary) and op.op in ("neg", "abs"))
        or (isinstance(op, Binary) and op.op in ("add", "sub", "mul", "min", "max"))
    ):
        return False
    return all(v is not None and is_finite(v, graph, depth - 1) for v in inputs)


def leaves_a_key(mask: Value, graph: GraphEditor) -> bool:
    """Whether no row of the mask can be -inf throughout."""
    array = graph.array(mask)
    if array is not None:
        return not bool(np.isneginf(array).all(axis=-1).any()) if array.ndim else True
    return is_finite(mask, graph)


def is_causal(mask: Array | None, rows: object, columns: object) -> bool:
    """Whether a constant mask hides exactly the keys behind the query, for every head."""
    if mask is None or mask.ndim < 2 or mask.shape[-2:] != (rows, columns) or rows != columns:
        return False
    if any(d != 1 for d in mask.shape[:-2]):
        return False
    plane = mask.reshape(mask.shape[-2:]).astype(np.float64)
    lower = np.tri(plane.shape[0], dtype=bool)
    return bool((plane[lower] == 0).all() and (plane[~lower] <= HIDDEN).all())


@dataclass(frozen=True)
class FuseAttention:
    """The chain MatMul, scale, mask, Softmax, MatMul.

    Of half types only where `backend` has a template: that keeps scores and weights in float32,
    between steps that would round them; its fallback rounds more often than the chain.
    """

    backend: Abilities = UNLIMITED
    name: str = "FuseAttention"
    pattern = call(MatMul, one_of(_GUARDED, _SOFTMAX), Var("v"))

    def check(self, m: Match, graph: GraphEditor) -> Refusal | None:
        scores, out = m.calls["scores"].output, m.root.output
        q, k, v = m["q"], m["k"], m["v"]
        softmax = m.calls["softmax"]
        if scores.dtype not in (F32, F16, BF16):
            return Refusal(f"scores of type {scores.dtype} are rounded between the steps")
        rank = scores.type.rank
        if {x.type.rank for x in (q, k, v)} != {rank} or rank not in (3, 4):
            return Refusal("q, k and v are not all of rank 3 or 4")
        if softmax.op.axis != rank - 1:
            return Refusal("the softmax is not over the keys")
        if softmax.output.type != scores.type:
            return Refusal("the mask broadcasts the scores to a larger shape")
        if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2] == out.shape[:-2]:
            return Refusal("batch and heads of q, k and v broadcast")
        if not all(isinstance(d, int) and d > 0 for d in (q.shape[-1], v.shape[-1])):
            return Refusal("the head size is dynamic")
        for part in ("mask", "bias", "visible"):
            if m.has(part) and not _fits(m[part], scores):
                return Refusal(f"the {part} has another type or rank")
        why = None if scores.dtype is F32 else self._no_template(m)
        if why is not None:
            return Refusal(f"scores of type {scores.dtype} are rounded between the steps: {why}")
        if m.has("guard"):
            return None
        if m.has("low") and not is_finite(m["low"], graph):
            return Refusal("a row without keys gives NaN, which the fused op does not")
        masks = [m[part] for part in ("mask", "bias") if m.has(part)]
        if not all(leaves_a_key(x, graph) for x in masks) or (
            len(masks) == 2 and not all(is_finite(x, graph) for x in masks)
        ):
            return Refusal("a row of the mask may be -inf throughout: softmax gives NaN there")
        return None

    def _no_template(self, m: Match) -> str | None:
        """Why the backend does not run the fused op on these operands, None where it does."""
        q, k, v, out = (
            replace(x.type, shape=(*(1,) * (4 - x.type.rank), *x.shape))
            for x in (m["q"], m["k"], m["v"], m.root.output)
        )
        anchor = FusedAttention(1.0, k_layout="BHDS").lower((q, k, v), (out,))
        assert isinstance(anchor, Anchor)
        specs = [TensorSpec(t.dtype, t.shape) for t in (q, k, v)]
        return self.backend.supports(anchor.spec, specs, frozenset())

    def rewrite(self, m: Match, g: Rewriter) -> Value:
        (q, q_factor), (k, k_factor) = unscaled(m["q"], g), unscaled(m["k"], g)
        scale = q_factor * k_factor
        if m.has("scale"):
            scale *= _number(g, m["scale"])
        if m.has("divisor"):
            scale /= _number(g, m["divisor"])
        mask = _mask(m, g)
        rows, columns = m.calls["scores"].output.shape[-2:]
        causal = is_causal(g.array(mask), rows, columns)
        op = FusedAttention(scale, causal, k_layout="BHDS")
        masks = () if causal or mask is None else (mask,)
        y = g.add1(op, *(_rank4(x, g) for x in (q, k, m["v"])), *masks)
        return reshape(g, y, m.root.output.shape)


def absorbed_operands(node: Node, editor: GraphEditor, g: Rewriter) -> Value | None:
    """A FusedAttention that reads through the Transposes of q, k and v."""
    op = node.op
    inputs = list(node.inputs)
    for i, (field, names) in enumerate(OPERAND_LAYOUTS.items()):
        inner = editor.producer_of(inputs[i])
        if inner is None or not isinstance(inner.op, Transpose):
            continue
        place = tuple(inner.op.perm[p] for p in LAYOUTS[getattr(op, field)])
        layout = next((name for name in names if LAYOUTS[name] == place), None)
        if layout is not None:
            inputs[i] = inner.inputs[0]
            op = replace(op, **{field: layout})
    return None if op is node.op else g.add1(op, *inputs)


OPERAND_LAYOUTS: Final = {
    "q_layout": ("BHSD", "BSHD"),
    "k_layout": ("BHSD", "BSHD", "BHDS"),
    "v_layout": ("BHSD", "BSHD"),
}


def _fits(part: Value, scores: Value) -> bool:
    wide = replace(part.type, dtype=scores.dtype)
    return keeps_type(Value(part.name, wide), scores.type)


def _number(g: Rewriter, value: Value) -> float:
    array = g.array(value)
    assert array is not None
    return float(array.reshape(-1)[0])


def _rank4(x: Value, g: Rewriter) -> Value:
    return reshape(g, x, (1,) * (4 - x.type.rank) + x.shape)


def _mask(m: Match, g: Rewriter) -> Value | None:
    """The additive mask, from whatever the model has."""
    if m.has("visible"):
        zero = g.constant(np.zeros((), m["low"].dtype.numpy), "visible")
        return g.add1(Where(), m["visible"], zero, m["low"])
    if m.has("bias"):
        return g.add1(Binary("add"), m["bias"], m["mask"])
    return m["mask"] if m.has("mask") else None


_ATTENTION: Final = one_of(
    call(FusedAttention, Var("q"), Var("k"), Var("v"), Var("mask"), name="attention"),
    call(FusedAttention, Var("q"), Var("k"), Var("v"), name="attention"),
)


@dataclass(frozen=True)
class AbsorbHeads:
    """The Transpose of heads behind an attention becomes its output layout."""

    name: str = "AbsorbHeads"
    pattern = one_of(
        call(Transpose, _ATTENTION), call(Transpose, call(Reshape, _ATTENTION, name="flat"))
    )

    def check(self, m: Match, graph: GraphEditor) -> Refusal | None:
        attention = m.calls["attention"].output
        if "flat" in m.calls and (1, *m.calls["flat"].output.shape) != attention.shape:
            return Refusal("the Reshape does more than drop the batch axis")
        if m.root.op.perm != ((1, 0, 2) if "flat" in m.calls else (0, 2, 1, 3)):
            return Refusal(f"axes {m.root.op.perm} are no layout of the fused op")
        return None

    def rewrite(self, m: Match, g: Rewriter) -> Value:
        node = m.calls["attention"]
        swapped = "BSHD" if node.op.out_layout == "BHSD" else "BHSD"
        y = g.add1(replace(node.op, out_layout=swapped), *node.inputs)
        return reshape(g, y, m.root.output.shape)


def rules(backend: Abilities) -> tuple[Rule, ...]:
    """The rules of this file for a backend."""
    return FuseAttention(backend), AbsorbHeads()
