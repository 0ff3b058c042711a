"""ONNX reductions, arg reductions to IR classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braze.core.dims import Dim, is_static, static
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Importer, OnnxNode
from braze.ops.move.shape import reshape
from braze.ops.reduce.reduce import ArgReduce, Reduce
from braze.ops.writing.arguments import run_sizes
from braze.ops.writing.broadcast import normalize_axes, normalize_axis
from braze.ops.writing.run_axes import picked, split_shape, without
from braze.ops.writing.run_contents import is_zero

# opset in which `axes` became an input
AXES_INPUT_OPSET: Final = {"ReduceSum": 13}
DEFAULT_AXES_INPUT_OPSET: Final = 18


def reduce_importer(kind: str) -> Importer:
    """Importer of a Reduce op: axes are an attribute first, an input from opset 13 (ReduceSum)
    or 18 (all others) on, where noop_with_empty_axes says what no axes mean."""

    def import_reduce(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        x = n.need(0)
        if _has_axes_input(n):
            given = run_sizes(n, g, 1, "axes")
            if not is_static(given):
                return (_over_run_axes(n, g, kind, x, given),)
        axes = _axes(n, g, x.type.rank)
        return (g.add1(Reduce(kind, axes, bool(n.attr("keepdims", 1))), x),)

    return import_reduce


def _has_axes_input(n: OnnxNode) -> bool:
    since = AXES_INPUT_OPSET.get(n.op_type, DEFAULT_AXES_INPUT_OPSET)
    return n.opset >= since and n.input(1) is not None


def _over_run_axes(n: OnnxNode, g: GraphBuilder, kind: str, x: Value, axes: Sequence[Dim]) -> Value:
    """A reduction over axes that the run knows."""
    mask = picked(g, axes, x.type.rank, n.name)
    split = split_shape(g, x.shape, mask, n.name)
    over = tuple(range(1, 2 * x.type.rank, 2))
    y = g.add1(Reduce(kind, over, False), reshape(g, x, split))
    if n.attr("keepdims", 1):
        return y
    return reshape(g, y, without(g, x.shape, mask, x.type.rank - len(axes), n.name))


def _axes(n: OnnxNode, g: GraphBuilder, rank: int) -> tuple[int, ...]:
    where = f"node {n.name!r} ({n.op_type})"
    given: tuple[int, ...] = ()
    if _has_axes_input(n):
        given = static(run_sizes(n, g, 1, "axes"))
    elif n.opset < AXES_INPUT_OPSET.get(n.op_type, DEFAULT_AXES_INPUT_OPSET):
        given = tuple(n.attr("axes", ()))
    if given:
        return normalize_axes(given, rank, where)
    return () if n.attr("noop_with_empty_axes", 0) else tuple(range(rank))


def arg_importer(kind: str) -> Importer:
    """Importer of ArgMax and ArgMin (select_last_index from opset 12 on)."""

    def import_arg(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        x, where = n.need(0), f"node {n.name!r} ({n.op_type})"
        axis = normalize_axis(n.attr("axis", 0), x.type.rank, where)
        size = x.shape[axis]
        if size == 0:
            raise ShapeError(f"{where}: axis {axis} is empty and has no extreme; feed a larger one")
        if g.range_of(size)[0] == 0:
            g.guard(is_zero(size), 0, f"{where}: the number of empty axes and 0 must be equal")
        last = bool(n.attr("select_last_index", 0))
        return (g.add1(ArgReduce(kind, axis, bool(n.attr("keepdims", 1)), last), x),)

    return import_arg
