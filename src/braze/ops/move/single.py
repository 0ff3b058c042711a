"""Operands that are one number by the text of their op: k of TopK, the axis of CumSum, ..."""

from __future__ import annotations

from dataclasses import replace

from braze.core.dims import product
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Importer, OnnxNode
from braze.ops.move.shape import reshape


def single(importer: Importer, **operands: int) -> Importer:
    """`importer` of an op whose inputs at the positions `operands` are one number each.

    It may rely on that: who reads the first element, or broadcasts, would take more for less.
    """

    def import_op(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        inputs = list(n.inputs)
        for name, index in operands.items():
            given = n.input(index)
            if given is not None:
                inputs[index] = one_number(g, given, f"node {n.name!r} ({n.op_type}): {name}")
        same = tuple(inputs) == n.inputs
        return importer(n if same else replace(n, inputs=tuple(inputs)), g)

    return import_op


def one_number(g: GraphBuilder, v: Value, what: str) -> Value:
    """`v`, which must have one element, of any rank; as a scalar where only the run can tell."""
    count = product(v.shape)
    if count == 1:
        return v
    if isinstance(count, int):
        raise ShapeError(
            f"{what} {v.name!r} has shape {list(v.shape)} but must be one number; give it one "
            f"element"
        )
    g.unify(count, 1, f"{what} {v.name!r} must be one number")
    return reshape(g, v, ())
