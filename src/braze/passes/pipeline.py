"""Which passes run, in order: literal tuples, with optimization and without."""

from __future__ import annotations

from typing import Final

from braze.core.config import BuildConfig
from braze.ir.graph import Graph, bodies_of
from braze.passes.base import Pass, PassContext, run_passes
from braze.passes.bodies import enter_constants, map_bodies
from braze.passes.decompose import decompose, expand_batchnorm
from braze.passes.fold.eliminate_common import eliminate_common
from braze.passes.fold.eliminate_dead import eliminate_dead
from braze.passes.fold.fold_constants import fold_constants
from braze.passes.hoist import hoist_invariant
from braze.passes.lower_precision import lower_precision
from braze.passes.rules.canonicalize import canonicalize
from braze.passes.rules.cut_patches import cut_patches
from braze.passes.rules.fold_batchnorm import fold_batchnorm
from braze.passes.rules.fuse_attention import absorb_heads, fuse_attention
from braze.passes.rules.fuse_pads import fuse_pads
from braze.passes.rules.group_queries import group_queries
from braze.passes.rules.keep_codes import keep_codes
from braze.passes.rules.known_masks import known_masks
from braze.passes.rules.merge_siblings import merge_siblings
from braze.passes.rules.multiply_bytes import multiply_bytes
from braze.passes.rules.multiply_coded import multiply_coded
from braze.passes.rules.multiply_float8 import multiply_float8
from braze.passes.rules.multiply_quantized import multiply_quantized
from braze.passes.rules.simplify_algebra import simplify_algebra
from braze.passes.rules.split_projections import split_projections
from braze.passes.separate_outputs import separate_outputs
from braze.passes.shapes.channels_last import channels_last
from braze.passes.shapes.enter_concats import enter_concats
from braze.passes.shapes.simplify_shapes import simplify_shapes
from braze.passes.shapes.sink_reshapes import sink_reshapes
from braze.passes.shapes.sink_transposes import sink_transposes, untangle_reshapes
from braze.passes.widen_halves import widen_halves

# Only what code generation cannot do without.
LEGALIZE: Final[tuple[Pass, ...]] = (eliminate_dead, decompose, eliminate_dead, separate_outputs)

# Some exporters wrap the Transpose of k in Reshapes, others transpose q, k and v as one tensor
# before they take it apart: Transposes are untangled before and sunk behind.
ATTENTION: Final[tuple[Pass, ...]] = (
    untangle_reshapes,
    simplify_shapes,
    fuse_attention,
    sink_transposes,
    absorb_heads,
)
AFFINE: Final[tuple[Pass, ...]] = (expand_batchnorm, fold_batchnorm)
LAYOUT: Final[tuple[Pass, ...]] = (channels_last, sink_transposes)

# What a network computes, as few ops that say what they are.
RECOGNIZE: Final[tuple[Pass, ...]] = (
    # a small graph in one spelling
    eliminate_dead,
    keep_codes,
    multiply_quantized,  # before weights are dequantized as constants
    multiply_float8,
    multiply_coded,
    fold_constants,
    eliminate_common,
    simplify_shapes,
    sink_reshapes,
    # big ops out of small ones, before anything takes their patterns apart
    canonicalize,
    simplify_algebra,
    *ATTENTION,
    *AFFINE,
    fuse_pads,
    widen_halves,
)

# What runs for it.
ARRANGE: Final[tuple[Pass, ...]] = (
    cut_patches,
    # layouts; norms over channels become norms over the last axis by that
    *LAYOUT,
    canonicalize,
    *ATTENTION,
    known_masks,
    group_queries,
    # what is left becomes what kernels are made of
    multiply_bytes,
    decompose,
    fold_constants,
    simplify_shapes,
    enter_concats,
    split_projections,
    sink_reshapes,
    simplify_shapes,
    merge_siblings,
    eliminate_common,
    eliminate_dead,
    separate_outputs,
)
OPTIMIZE: Final[tuple[Pass, ...]] = (*RECOGNIZE, *ARRANGE)


def passes_of(config: BuildConfig) -> tuple[Pass, ...]:
    """The passes of a build. Types change once big ops are found, and before layouts are chosen."""
    if not config.lowers:
        return OPTIMIZE if config.effort.fuse else LEGALIZE
    if not config.effort.fuse:
        return (lower_precision, *LEGALIZE)
    return (*RECOGNIZE, lower_precision, *ARRANGE)


def run_pipeline(graph: Graph, ctx: PassContext) -> Graph:
    """Optimize `graph` as far as the effort of the build goes; every node left can be lowered.

    What does not change in a loop leaves it first. Bodies come last, as by then it is known what of
    the values they are passed is constant.
    """
    fuse = ctx.config.effort.fuse
    if fuse and any(bodies_of(n) for n in graph.nodes):
        graph = hoist_invariant(graph, ctx)
    done = run_passes(graph, passes_of(ctx.config), ctx)
    return map_bodies(enter_constants(done), lambda body: run_pipeline(body, ctx))
