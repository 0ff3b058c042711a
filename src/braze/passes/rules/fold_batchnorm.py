"""Batch normalisation and constant affine blocks disappear into the weights before them."""

from __future__ import annotations

from braze.ir.graph import Graph
from braze.passes.base import PassContext
from braze.passes.rewrite import apply_rules
from braze.passes.rules import affine


def fold_batchnorm(graph: Graph, ctx: PassContext) -> Graph:
    """Constant factors and shifts go into the convolutions and matrix products beside them."""
    return apply_rules(graph, affine.RULES, ctx)
