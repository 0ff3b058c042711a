"""What ops that ONNX defines by function bodies ask of shapes, which their bodies do not check.

A body would broadcast, or gather beyond the end, and name a node of its own.
"""

from __future__ import annotations

from braze.core.dims import Dim, floordiv
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode


def check_loss_weight(n: OnnxNode, g: GraphBuilder) -> None:
    """NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss: weights are a vector of the classes."""
    x, weight = n.need(0), n.input(2)
    if weight is None or len(x.shape) < 2:
        return
    where = f"node {n.name!r} ({n.op_type})"
    if len(weight.shape) != 1:
        raise ShapeError(
            f"{where}: weight {weight.name!r} has shape {list(weight.shape)} but must be a vector "
            f"of {x.shape[1]} elements, one a class; correct the weight"
        )
    what = f"{where}: elements of weight {weight.name!r}, one a class"
    _check_size(g, weight, 0, x.shape[1], what)


def check_rotary_tables(n: OnnxNode, g: GraphBuilder) -> None:
    """RotaryEmbedding: tables have a column for each pair of elements that are turned.

    An op of com.microsoft has the positions in front of them.
    """
    x, heads = n.need(0), int(n.attr("num_heads", 0))
    turned: Dim = int(n.attr("rotary_embedding_dim", 0))
    if not turned and len(x.shape) == 4:
        turned = x.shape[3]
    elif not turned and len(x.shape) == 3 and heads > 0:
        turned = floordiv(x.shape[2], heads)
    if turned == 0:
        return  # the body says what is missing
    first = 2 if n.domain else 1
    for index, name in enumerate(("cos_cache", "sin_cache"), first):
        table = n.need(index)
        if table.shape:
            what = f"node {n.name!r} ({n.op_type}): columns of {name} {table.name!r}, one a pair"
            _check_size(g, table, len(table.shape) - 1, floordiv(turned, 2), what)


def _check_size(g: GraphBuilder, v: Value, axis: int, size: Dim, what: str) -> None:
    have = v.shape[axis]
    if isinstance(have, int) and isinstance(size, int) and have != size:
        raise ShapeError(f"{what}, must be {size}, not {have}; correct its shape {list(v.shape)}")
    g.unify(have, size, what)
