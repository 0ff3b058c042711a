"""Rfft and Irfft (com.microsoft): transforms of the last axes between real and half spectra."""

from __future__ import annotations

from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.move.shape import reshape
from braze.ops.product.fourier import transformed


def _axes(n: OnnxNode, rank: int) -> int:
    """How many axes are transformed."""
    count = int(n.attr("signal_ndim", 1))
    if not 1 <= count <= rank:
        raise n.invalid(f"signal_ndim {count} of a tensor with {rank} axes")
    if n.attr("normalized", 0) or not n.attr("onesided", 1):
        raise n.unsupported("normalized or two-sided transforms; use normalized=0 and onesided=1")
    return count


def import_rfft(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Rfft: [.., n] to [.., n // 2 + 1, 2], after that the axes in front of it."""
    x = n.need(0)
    rank = len(x.shape)
    count = _axes(n, rank)
    y = reshape(g, x, (*x.shape, 1))
    y = transformed(n, g, y, rank - 1, x.shape[-1], False, True)
    for k in range(rank - 2, rank - 1 - count, -1):
        y = transformed(n, g, y, k, y.shape[k], False, False)
    return (y,)


def import_irfft(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Irfft: [.., n // 2 + 1, 2] to [.., n] of an even n; the axes in front come first."""
    y = n.need(0)
    rank = len(y.shape) - 1
    count = _axes(n, rank)
    if y.shape[-1] != 2:
        raise n.invalid(f"its spectrum has shape {list(y.shape)}; the last axis must be 2")
    for k in range(rank - count, rank - 1):
        y = transformed(n, g, y, k, y.shape[k], True, False)
    y = transformed(n, g, y, rank - 1, 2 * (y.shape[rank - 1] - 1), True, True)
    return (reshape(g, y, y.shape[:-1]),)
