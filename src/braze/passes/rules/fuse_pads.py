"""Pads go into the convolutions and pools behind them."""

from __future__ import annotations

from braze.ir.graph import Graph
from braze.passes.base import PassContext
from braze.passes.rewrite import apply_rules
from braze.passes.rules import pads


def fuse_pads(graph: Graph, ctx: PassContext) -> Graph:
    """Remove Pads that a window op can do itself."""
    return apply_rules(graph, pads.RULES, ctx)
