"""Operands that are a vector of known length: the biases of convolutions and products."""

from __future__ import annotations

from braze.core.dims import Dim
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode


def check_vector(
    n: OnnxNode, g: GraphBuilder, v: Value, count: Dim, what: str, name: str = "bias"
) -> None:
    """Raise ShapeError, now or in the run, unless `v` is a vector of `count` elements.

    As an operand of Add it would broadcast, and what has more axes would give a result of another
    rank. what: of what there are so many ("filters"); name: what the op calls `v`.
    """
    where = f"node {n.name!r} ({n.op_type}): {name} {v.name!r}"
    size = v.shape[0] if len(v.shape) == 1 else None
    if size is None or (isinstance(size, int) and isinstance(count, int) and size != count):
        raise ShapeError(
            f"{where} has shape {list(v.shape)} but must be a vector of {count} elements, as many "
            f"as there are {what}; correct the {name}"
        )
    g.unify(size, count, f"{where} and the {what}")
