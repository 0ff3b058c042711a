"""Operands with an axis of 0 or 1 elements, as x[-1:] has: they broadcast as 1 does."""

from __future__ import annotations

from dataclasses import replace

from braze.core import dims
from braze.core.dims import Dim
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Importer, OnnxNode
from braze.ops.move.slice_pad import Pad


def broadcasting(importer: Importer, beside: int = 0) -> Importer:
    """`importer` of an op that broadcasts all but the last `beside` axes of its operands."""

    def import_broadcasting(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        inputs = _stretched(n, g, beside)
        return importer(n if inputs == n.inputs else replace(n, inputs=inputs), g)

    return import_broadcasting


def _stretched(n: OnnxNode, g: GraphBuilder, beside: int) -> tuple[Value | None, ...]:
    """The operands, an element added where a size may be 0 or 1 and meets another size.

    The size of the result is then the other one: the run checks that it is 0 where the first is.
    """
    shapes = [() if v is None else v.shape for v in n.inputs]
    rank = max(map(len, shapes), default=0)
    wide = [(1,) * (rank - len(s)) + s for s in shapes]
    out = []
    for v, own in zip(n.inputs, wide, strict=True):
        if v is None or dims.is_static(v.shape):
            out.append(v)
            continue
        missing: list[Dim] = [0] * rank
        for k in range(rank - beside):
            others = [w[k] for w in wide if w[k] not in (1, own[k])]
            small = [_is_at_most_one(g, d) for d in (own[k], *others)]
            if others and small[0] and not any(small[1:]):
                missing[k] = 1 - own[k]
                for other in others:
                    _check(n, g, k, own[k], other)
        ends = tuple(missing[rank - len(v.shape) :])
        zeros = (0,) * len(ends)
        fill = False if v.dtype.kind == "b" else 0
        out.append(g.add1(Pad("constant", zeros, ends, fill), v) if any(ends) else v)
    return tuple(out)


def _is_at_most_one(g: GraphBuilder, d: Dim) -> bool:
    """True for a size that is 0 in some runs and 1 in others."""
    return not isinstance(d, int) and g.range_of(d) == (0, 1)


def _check(n: OnnxNode, g: GraphBuilder, k: int, own: Dim, other: Dim) -> None:
    if own == dims.dmin(other, 1):
        return
    empty = f"where the operand that broadcasts is empty, the size {other} that it meets and 0"
    g.guard((1 - own) * other, 0, f"{n.op_type} axis {k}: {empty} must be equal")
