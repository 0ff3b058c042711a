"""Batch normalisation and constant affine blocks disappear into the weights before them."""

from __future__ import annotations

from braze.ir.graph import Graph
from braze.ops.norm.batch_norm import BatchNorm
from braze.passes.base import PassContext
from braze.passes.decompose import expand
from braze.passes.rewrite import apply_rules
from braze.passes.rules import affine


def fold_batchnorm(graph: Graph, ctx: PassContext) -> Graph:
    """BatchNorm becomes a factor and a shift; those go into convolutions and matrix products."""
    return apply_rules(expand(graph, ctx, (BatchNorm,)), affine.RULES, ctx)
