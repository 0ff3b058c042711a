"""Compute what a model has in half types in float32, where nothing is computed in those.

A processor without arithmetic in float16 or bfloat16 reads each number of such a network by a
conversion and rounds each result. So convolutions, products and attention become float32, and what
follows them (sums, activations, norms, softmax, views, pools) stays so, as in the network's
float32 twin: numbers are rounded where ops read them that may not follow, at the network's outputs
and where the model casts to them. Networks without such products keep every rounding, and so does
what compares, counts or rounds numbers.

Products of few rows read their right operand (a constant, a cache) as the model holds it: half the
bytes from memory. Networks with recurrences are left as they are for that: a step has fewer rows
than a sequence, and a stream of steps has the bits of one long run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from braze.core.dims import product
from braze.core.dtypes import F32, DType
from braze.core.elements import numbers
from braze.core.errors import BrazeError
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Graph, Node, Value
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.product.attention import FusedAttention
from braze.ops.product.conv import Conv
from braze.ops.product.conv_transpose import ConvTranspose
from braze.ops.product.matmul import MatMul
from braze.ops.recurrent.recurrence import Recurrence
from braze.ops.reduce.reduce import Reduce
from braze.passes.base import PassContext
from braze.passes.lower_precision import FOLLOW, HALVES, VIEWS, kind_of
from braze.passes.rewrite import describe

_WHOLE: Final = (*VIEWS, MatMul, FusedAttention)  # follow where all that they read is float32
_STEPS: Final = frozenset({"floor", "ceil", "round", "sign", "mod", "fmod"})  # not continuous


def widen_halves(graph: Graph, ctx: PassContext) -> Graph:
    """The pass; builds that choose types themselves (`BuildConfig.lowers`) are left alone."""
    halves = {HALVES[name] for name in ctx.backend.preferences.widens}
    if not halves or ctx.config.lowers or any(isinstance(n.op, Recurrence) for n in graph.nodes):
        return graph
    work = _Widening(GraphEditor(graph), halves, ctx.backend.preferences.held_rows)
    for node in work.editor.walk():
        half = work.half_of(node)
        if isinstance(node.op, Cast) and half is None:
            work.skip(node)
        elif half is not None and work.may(node) and work.rewrite(node):
            why = f"no kernel computes in {half}"
            ctx.trace.decide("precision", at=describe(node), runs=F32.name, why=why)
    return work.editor.finish()


@dataclass(slots=True)
class _Widening:
    """A graph in work. wide: half value -> the same in float32, or what a rewrite rounded to it."""

    editor: GraphEditor
    halves: set[DType]
    held_rows: int
    wide: dict[Value, Value] = field(default_factory=dict)

    def half_of(self, node: Node) -> DType | None:
        """The half type of what a node computes; None where it has none of ours."""
        return next((v.dtype for v in node.outputs if v.dtype in self.halves), None)

    def may(self, node: Node) -> bool:
        """Whether a node starts float32 or follows what is so already."""
        read = [v for v in node.inputs if v is not None and v.dtype in self.halves]
        data = [v for v in read if self.editor.array(v) is None]
        if isinstance(node.op, (Conv, ConvTranspose)):
            return True
        if isinstance(node.op, (MatMul, FusedAttention)):
            constant = isinstance(node.op, MatMul) and len(read) > len(data)
            if not self._has_few_rows(node, constant):
                return True
            if constant:
                return False
        if not isinstance(node.op, (*FOLLOW, *_WHOLE, Binary, Unary, Reduce)):
            return False
        if kind_of(node.op) in _STEPS:
            return False
        among = [v in self.wide for v in data]
        return bool(among) and (all if isinstance(node.op, _WHOLE) else any)(among)

    def _has_few_rows(self, node: Node, constant: bool) -> bool:
        """Whether reading the right operand of a product takes longer than to multiply it."""
        x = node.inputs[0]
        if x is None or x.type.rank < 2:
            return True
        rows = product(x.shape[:-1]) if constant else x.shape[-2]
        if not isinstance(rows, int):
            return not constant  # constants are held in half types for a known number of rows
        return rows <= self.held_rows

    def skip(self, node: Node) -> None:
        """Leave out a Cast to float32 of what is float32 already."""
        source = self.wide.get(node.inputs[0]) if node.inputs[0] is not None else None
        if source is not None and node.output.dtype is F32:
            self.editor.commit(self.editor.rewriter([node]), node, {node.output: source})

    def rewrite(self, node: Node) -> bool:
        """Put the node in float32, between Casts; False where its op does not allow it."""
        g = self.editor.rewriter([node])
        inputs = [v if v is None or v.dtype not in self.halves else self._read(v, g)
                  for v in node.inputs]  # fmt: skip
        try:
            made = g.add(node.op, *inputs)
        except BrazeError:
            return False
        outputs, found = [], {}
        for new, old in zip(made, node.outputs, strict=True):
            value = new
            if old.dtype in self.halves and new.dtype is F32:
                value = g.add1(Cast(old.dtype), new)
                found[value] = new
            if value.type != old.type:
                return False
            outputs.append(value)
        self.editor.commit(g, node, dict(zip(node.outputs, outputs, strict=True)))
        self.wide.update(found)
        return True

    def _read(self, v: Value, g: Rewriter) -> Value:
        """A half value as float32: what it was before its rounding, where that was ours."""
        array = self.editor.array(v)
        if array is not None and v not in self.wide:
            self.wide[v] = g.constant(numbers(array, v.dtype).astype(np.float32), v.name)
        return self.wide[v] if v in self.wide else g.add1(Cast(F32), v)
