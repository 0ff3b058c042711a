"""ONNX reductions, arg reductions to IR classes."""

from __future__ import annotations

from typing import Final

from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Importer, OnnxNode
from braze.ops.reduce.reduce import ArgReduce, Reduce
from braze.ops.writing.arguments import known_ints
from braze.ops.writing.broadcast import normalize_axes, normalize_axis

# opset in which `axes` became an input
AXES_INPUT_OPSET: Final = {"ReduceSum": 13}
DEFAULT_AXES_INPUT_OPSET: Final = 18


def reduce_importer(kind: str) -> Importer:
    """Importer of a Reduce op: axes are an attribute first, an input from opset 13 (ReduceSum)
    or 18 (all others) on, where noop_with_empty_axes says what no axes mean."""

    def import_reduce(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        x = n.need(0)
        axes = _axes(n, g, x.type.rank)
        return (g.add1(Reduce(kind, axes, bool(n.attr("keepdims", 1))), x),)

    return import_reduce


def _axes(n: OnnxNode, g: GraphBuilder, rank: int) -> tuple[int, ...]:
    where = f"node {n.name!r} ({n.op_type})"
    given: tuple[int, ...] = ()
    if n.opset < AXES_INPUT_OPSET.get(n.op_type, DEFAULT_AXES_INPUT_OPSET):
        given = tuple(n.attr("axes", ()))
    elif n.input(1) is not None:
        given = known_ints(n, g, 1, "axes")
    if given:
        return normalize_axes(given, rank, where)
    return () if n.attr("noop_with_empty_axes", 0) else tuple(range(rank))


def arg_importer(kind: str) -> Importer:
    """Importer of ArgMax and ArgMin (select_last_index from opset 12 on)."""

    def import_arg(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        x = n.need(0)
        axis = normalize_axis(n.attr("axis", 0), x.type.rank, f"node {n.name!r} ({n.op_type})")
        last = bool(n.attr("select_last_index", 0))
        return (g.add1(ArgReduce(kind, axis, bool(n.attr("keepdims", 1)), last), x),)

    return import_arg
