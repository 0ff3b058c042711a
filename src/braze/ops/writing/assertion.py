"""A tensor passed on under a condition, which is what assertions of layers become."""

from __future__ import annotations

from typing import Final

from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.writing.arguments import run_sizes

DOMAIN: Final = "braze"  # of ops that no other program writes
ASSERT: Final = "Assert"


def assertion(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Input 0 as it is; the run checks that the one number in input 1 is 1, else says `message`."""
    (held,) = run_sizes(n, g, 1, "the condition")
    told = n.attr("message", "") or "the condition does not hold; give inputs for which it does"
    what = f"node {n.name!r} (Assert): {told}"
    if isinstance(held, int):
        if held != 1:
            raise ShapeError(what)
    else:
        g.guard(held, 1, f"{what} (its condition and 1 must be equal)")
    return (n.need(0),)
