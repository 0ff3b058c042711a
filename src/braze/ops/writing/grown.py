"""Axes that get elements made of those they have."""

from __future__ import annotations

from braze.core.dims import Dim, dmin
from braze.core.errors import ShapeError
from braze.ops.base import InferContext


def check_grown(d: Dim, size: Dim, ctx: InferContext, what: str) -> None:
    """An axis of `d` elements may become one of `size`: there is nothing to make any of, where it
    has none.

    Raises ShapeError, or lets the run refuse. what: the op, as in "Pad".
    """
    if d == size:
        return
    if d == 0 and isinstance(size, int):
        raise ShapeError(f"{what}: an axis without elements cannot become one of {size}")
    if ctx.range_of(d)[0] == 0:
        grown = (1 - dmin(d, 1)) * dmin(size, 1)
        ctx.unify(grown, 0, f"{what}: elements made of none, with 0")
