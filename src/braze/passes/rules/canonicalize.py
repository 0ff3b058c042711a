"""Recognise ops that models spell out in smaller ones: norms and activations."""

from __future__ import annotations

from braze.ir.graph import Graph
from braze.passes.base import PassContext
from braze.passes.rewrite import apply_rules
from braze.passes.rules import activations, norms


def canonicalize(graph: Graph, ctx: PassContext) -> Graph:
    """One op for one idea, however it was spelled."""
    return apply_rules(graph, (*norms.RULES, *activations.RULES), ctx)
