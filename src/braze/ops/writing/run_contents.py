"""Contents of integer tensors that decide sizes, where only the run knows them.

What is asked for is looked up through the nodes that compute it: the parts that the build knows
stay sizes of inputs, and each element that it does not know becomes a symbol that the run reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from braze.core.dims import Dim, dmax, dmin, is_static, static, symbols
from braze.core.dtypes import BOOL, I64
from braze.expr.scalar import binary, cast, const, hole
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Node, TensorType, Value
from braze.ops.base import Array, InferContext, Op
from braze.ops.lowering import Lowering, Pointwise

MAX_READ: Final = 64  # elements of a tensor that sizes are read from
LOWEST: Final = -(1 << 63) + 1  # the least int64 stands for no value
HIGHEST: Final = (1 << 63) - 1
MOVES: Final = frozenset({"Concat", "Gather", "Slice", "Reshape", "Transpose", "Expand"})


@dataclass(frozen=True)
class AsSizes(Op):
    """Integers as int64, which sizes are read from, none below LOWEST."""

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        assert inputs[0] is not None
        return (TensorType(I64, inputs[0].shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        assert inputs[0] is not None
        wide = inputs[0].astype(np.int64)
        return (np.asarray(np.maximum(wide, LOWEST)) if inputs[0].dtype == np.int64 else wide,)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        assert inputs[0] is not None
        wide = hole(0, inputs[0].dtype)
        if wide.dtype is I64:
            return Pointwise(binary("max", wide, const(LOWEST, I64)))
        return Pointwise(cast(wide, I64))


def run_contents(g: GraphBuilder, v: Value, far: bool = False) -> Array | None:
    """The elements of an integer tensor as sizes, or None for one that is too large or no integer.

    Symbols of the run may have either sign; see `settled`. far: the least int64 becomes LOWEST,
    unless something is computed of it first; else it is an error of the run.
    """
    known = g.promised.get(v, g.sizes(v))
    if known is not None:
        return known
    if not v.dtype.is_int or v.dtype is BOOL or not is_static(v.shape):
        return None
    count = math.prod(static(v.shape))
    if count > MAX_READ:
        return None
    node = g.producer.get(v)
    through = None if node is None else _through(g, node, v, far)
    if through is not None:
        return through
    wide = v if v.dtype is I64 and not far else g.add1(AsSizes(), v)
    low, high = (LOWEST, HIGHEST)
    if v.dtype is not I64 and v.dtype.bits < 64:
        info = np.iinfo(v.dtype.name)
        low, high = int(info.min), int(info.max)
    out = np.empty(count, dtype=object)
    for i in range(count):
        out[i] = g.read_size(wide, i, low, high, f"{v.name}_{i}")
    return out.reshape(static(v.shape))


def _through(g: GraphBuilder, node: Node, v: Value, far: bool) -> Array | None:
    """The content by what the node does to its inputs, where part of them is known."""
    inputs = [x for x in node.inputs if x is not None]
    if type(node.op).known is Op.known or not any(g.sizes(x) is not None for x in inputs):
        return None
    far = far and node.op.name in MOVES
    contents = [None if x is None else run_contents(g, x, far) for x in node.inputs]
    types = [None if x is None else x.type for x in node.inputs]
    found = node.op.known(contents, types, g)
    return None if found is None else np.asarray(found[node.outputs.index(v)], dtype=object)


def settled(g: GraphBuilder, d: Dim, high: Dim | None, hint: str) -> Dim:
    """A size that must not be negative, under a name of its own where the run computes it.

    Its bounds are checked in the run. high: what it can not be above, None where nothing is known.
    """
    if not is_run_size(g, d) or (str(d) in g.symbol_names and g.range_of(d)[0] >= 0):
        return d
    return g.name_size(d, 0, high, hint)


def is_run_size(g: GraphBuilder, d: Dim) -> bool:
    """Whether the run gives a symbol in `d`."""
    if isinstance(d, int) or not (g.run_sizes or g.promises):
        return False
    given = {s.symbol for s in g.run_sizes.values()} | g.promises
    return not symbols(d).isdisjoint(given)


def is_negative(d: Dim) -> Dim:
    """1 where `d` is negative, else 0; the least int64 must not occur."""
    return dmin(dmax(0 - d, 0), 1)


def is_zero(d: Dim) -> Dim:
    """1 where `d` is zero, else 0."""
    return 1 - dmin(dmax(d, 0 - d), 1)
