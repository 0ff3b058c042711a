"""DepthToSpace and SpaceToDepth: reshapes and a transpose."""

from __future__ import annotations

from braze.core import dims
from braze.core.dims import Dim
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.move.shape import reshape, transpose


def _parts(n: OnnxNode) -> tuple[Value, int, tuple[Dim, Dim, Dim, Dim]]:
    x, block = n.need(0), int(n.attr("blocksize", 0))
    if len(x.shape) != 4 or block < 1:
        raise ShapeError(
            f"node {n.name!r} ({n.op_type}): needs rank 4 and a positive blocksize, got rank "
            f"{len(x.shape)} and {block}"
        )
    a, b, c, d = x.shape
    return x, block, (a, b, c, d)


def _divided(n: OnnxNode, g: GraphBuilder, size: Dim, by: int) -> Dim:
    """size / by; a symbolic size is checked at run time."""
    exact = dims.exact_div(size, by)
    if exact is None:
        exact = dims.floordiv(size, by)
        g.unify(exact * by, size, f"node {n.name!r} ({n.op_type}) size divided by {by}")
    return exact


def import_depth_to_space(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """DepthToSpace; mode (opset 11 on) DCR takes the block from the front of the channels, CRD from
    the back."""
    x, s, (batch, channels, height, width) = _parts(n)
    depth = _divided(n, g, channels, s * s)
    mode = n.attr("mode", "DCR")
    if mode == "DCR":
        x = transpose(g, reshape(g, x, (batch, s, s, depth, height, width)), (0, 3, 4, 1, 5, 2))
    elif mode == "CRD":
        x = transpose(g, reshape(g, x, (batch, depth, s, s, height, width)), (0, 1, 4, 2, 5, 3))
    else:
        raise n.unsupported(f"mode {mode!r} is unknown; use DCR or CRD")
    return (reshape(g, x, (batch, depth, height * s, width * s)),)


def import_space_to_depth(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """SpaceToDepth: each block becomes channels; block position outermost (mode DCR, the only one
    before opset 27) or innermost (CRD)."""
    x, s, (batch, channels, height, width) = _parts(n)
    rows, columns = _divided(n, g, height, s), _divided(n, g, width, s)
    mode = n.attr("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise n.unsupported(f"mode {mode!r} is unknown; use DCR or CRD")
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    x = transpose(g, reshape(g, x, (batch, channels, rows, s, columns, s)), perm)
    return (reshape(g, x, (batch, channels * s * s, rows, columns)),)
