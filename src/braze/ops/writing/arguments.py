"""What importers and ops ask of their arguments: present inputs, axes, known contents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.errors import ShapeError
from braze.expr.loops import TensorSpec
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext, OnnxNode
from braze.ops.writing.run_contents import run_contents

Types = Sequence[TensorType | None]
Arrays = Sequence[Array | None]


def type_of(inputs: Types, index: int) -> TensorType:
    """The type of an input that must be present."""
    t = inputs[index]
    assert t is not None, f"input {index} is absent"
    return t


def array_of(inputs: Arrays, index: int) -> Array:
    """The array of an input that must be present."""
    x = inputs[index]
    assert x is not None, f"input {index} is absent"
    return x


def normalize_axis(axis_: int, rank: int, n: OnnxNode) -> int:
    """An axis of a tensor of `rank` as 0 .. rank-1; raises ShapeError when outside."""
    if not -rank <= axis_ < rank:
        raise ShapeError(
            f"node {n.name!r} ({n.op_type}): axis {axis_} is outside a tensor of rank {rank}; "
            f"correct the axis"
        )
    return axis_ % rank


def at_least(d: Dim, low: Dim, ctx: InferContext, what: str) -> Dim:
    """`d`, which must not be less than `low`: checked now where bounds tell, else at run time."""
    least, most = ctx.range_of(d - low)
    if most < 0:
        raise ShapeError(f"{what}: size {d} is less than {low}; use larger inputs")
    if least < 0:
        ctx.unify(dims.dmax(d, low), d, f"{what} at least {low}")
    return d


def known_sizes(n: OnnxNode, g: GraphBuilder, index: int, what: str) -> tuple[Dim, ...]:
    """The content of an integer input that must be known when the model is imported."""
    sizes = g.sizes(n.need(index))
    if sizes is None:
        raise n.needs_content(
            index,
            f"{what} (input {index}) is computed from tensor data; make it a constant or "
            f"compute it from shapes",
        )
    return tuple(sizes.reshape(-1))


def run_sizes(
    n: OnnxNode, g: GraphBuilder, index: int, what: str, far: bool = False
) -> tuple[Dim, ...]:
    """The content of an integer input; what only the run knows are symbols of any sign.

    far: the least number of all, too, is allowed (as one more).
    """
    sizes = run_contents(g, n.need(index), far)
    return known_sizes(n, g, index, what) if sizes is None else tuple(sizes.reshape(-1))


def known_ints(n: OnnxNode, g: GraphBuilder, index: int, what: str) -> tuple[int, ...]:
    """Like `known_sizes`, for content that may not depend on symbolic sizes (axes, steps)."""
    sizes = known_sizes(n, g, index, what)
    if not dims.is_static(sizes):
        raise n.needs_content(
            index, f"{what} (input {index}) depends on a dynamic size; make it a constant"
        )
    return dims.static(sizes)


def object_array(values: Sequence[Dim], shape: Sequence[int]) -> Array:
    """An object array of Dims."""
    out = np.empty(len(values), dtype=object)
    for i, v in enumerate(values):
        out[i] = v
    return out.reshape(tuple(shape))


def tensor_specs(types: Types) -> tuple[TensorSpec, ...]:
    """Loop-kernel slots of the present inputs."""
    return tuple(TensorSpec(t.dtype, t.shape) for t in types if t is not None)
