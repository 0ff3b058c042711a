"""Shapes of results that the run computes: what Reshape and Expand make of the sizes it gives."""

from __future__ import annotations

from braze.core import dims
from braze.core.dims import Dim
from braze.ir.builder import GraphBuilder
from braze.ops.base import OnnxNode
from braze.ops.writing.run_contents import is_negative, is_run_size, is_zero, settled


def shape_of_run(
    n: OnnxNode, g: GraphBuilder, source: tuple[Dim, ...], wanted: tuple[Dim, ...], allowzero: bool
) -> tuple[Dim, ...]:
    """The target shape where the run tells which sizes are 0 (copy) or -1 (the rest).

    Two sizes of -1, and a rest that does not come out even, break the guard on the count.
    """
    if allowzero:
        _refuse_rest_of_nothing(n, g, wanted)
    copied: list[Dim] = []
    for i, d in enumerate(wanted):
        have = source[i] if i < len(source) else 0
        copies = is_run_size(g, d) and g.range_of(d)[0] <= 0 and not allowzero
        if copies and i >= len(source):
            what = f"size {i} of the shape must not be 0, which copies an axis that"
            what += f" the data of rank {len(source)} does not have: zeros there must be none"
            g.guard(is_zero(d), 0, f"node {n.name!r} (Reshape): {what}")
        full = d + have * is_zero(d) if copies else have if d == 0 and not allowzero else d
        known = not is_run_size(g, full)
        copied.append(full if known else g.name_size(full, -1, None, f"{n.name}_given_{i}"))
    others: Dim = 1
    for d in copied:
        others = others * (d + is_negative(d) * (1 - d))
    others = g.name_size(others, 0, None, f"{n.name}_others")
    rest = dims.floordiv(dims.product(source), dims.dmax(others, 1))
    return tuple(
        settled(g, d + is_negative(d) * (rest - d), None, f"{n.name}_{i}")
        for i, d in enumerate(copied)
    )


def _refuse_rest_of_nothing(n: OnnxNode, g: GraphBuilder, wanted: tuple[Dim, ...]) -> None:
    """With allowzero, ONNX has no meaning for sizes of 0 beside one of -1."""
    rests: Dim = 0
    zeros: Dim = 0
    for d in wanted:
        rests = rests + is_negative(d)
        zeros = zeros + is_zero(d)
    both = dims.dmin(rests, zeros)
    what = "with allowzero=1 a shape must not hold both 0 and -1: pairs of them must be none"
    g.guard(both, 0, f"node {n.name!r} (Reshape): {what}")


def expanded_size(n: OnnxNode, g: GraphBuilder, have: Dim, want: Dim, where: str) -> Dim:
    """A size of the result of Expand."""
    at_most_one = not isinstance(want, int) and g.range_of(want)[1] <= 1  # x[:1], of a size
    if not (is_run_size(g, want) or at_most_one):
        return g.broadcast(have, want, where)
    if have == 1:
        return settled(g, want, None, f"{n.name}_size")
    stretched = want + is_zero(want - 1) * (have - want)  # 1 asks for the size that there is
    what = f"{where}: a size asked for that is not 1 and the one of the tensor must be equal"
    g.guard(stretched, have, what)
    return have
