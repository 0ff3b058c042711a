"""Decision trees as tables of nodes, and the op that walks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core.dtypes import BOOL, I32, I64
from braze.core.errors import ShapeError
from braze.expr.index import axes
from braze.expr.scalar import binary, cast, load, unary
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext, Op
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.slice_pad import single_store
from braze.ops.writing.arguments import Types, array_of, type_of
from braze.ops.writing.precision import require_float, same_dtype


@dataclass(frozen=True)
class TreeLeaves(Op):
    """The node that each row of x [B, F] ends at in each tree: [B, trees] int32.

    Inputs: x, roots [trees], features [N], limits [N] of the type of x, ways [N, 2], and missing
    [N] or None. A row goes from node n to ways[n, 1] where x[features[n]] <= limits[n], or where
    that is NaN and missing[n]; else to ways[n, 0]. Leaves lead to themselves; every leaf is at most
    `depth` steps from its root.
    """

    depth: int

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, roots, limits = type_of(inputs, 0), type_of(inputs, 1), type_of(inputs, 3)
        require_float(same_dtype([x, limits], "TreeLeaves"), "TreeLeaves")
        if x.rank != 2:
            raise ShapeError(f"TreeLeaves: x has rank {x.rank}; [batch, features] is meant")
        return (TensorType(I32, (x.shape[0], roots.shape[0])),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, roots, features, limits, ways = (array_of(inputs, i) for i in range(5))
        missing = inputs[5] if len(inputs) > 5 else None
        at = np.broadcast_to(roots, (x.shape[0], len(roots)))
        rows = np.arange(x.shape[0])[:, None]
        for _ in range(self.depth):
            value = x[rows, features[at]]
            with np.errstate(invalid="ignore"):
                passed = value <= limits[at]
            if missing is not None:
                passed = passed | (np.isnan(value) & (missing[at] != 0))
            at = ways[at, passed.astype(np.int64)]
        return (at.astype(np.int32),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x = type_of(inputs, 0)
        row, tree = axes(2)
        at = cast(load(1, (tree,), I32), I64)
        for _ in range(self.depth):
            feature = cast(load(2, (at,), I32), I64)
            value = load(0, (row, feature), x.dtype)
            passed = binary("le", value, load(3, (at,), x.dtype))
            if len(inputs) > 5 and inputs[5] is not None:
                absent = binary("and", unary("isnan", value), load(5, (at,), BOOL))
                passed = binary("or", passed, absent)
            at = cast(load(4, (at, cast(passed, I64)), I32), I64)
        return Nest(single_store(inputs, outputs[0], cast(at, I32)))


class Forest:
    """Tables of trees that grow: nodes compare by <= alone, all other modes are made of it."""

    def __init__(self, dtype: np.dtype[np.floating]) -> None:
        self.dtype = dtype
        self.roots: list[int] = []
        self.features: list[int] = []
        self.limits: list[float] = []
        self.ways: list[list[int]] = []
        self.missing: list[bool] = []

    def leaf(self) -> int:
        """A new leaf."""
        at = len(self.ways)
        return self._node(0, 0.0, at, at, False)

    def _node(self, feature: int, limit: float, yes: int, no: int, missing: bool) -> int:
        self.features.append(feature)
        self.limits.append(limit)
        self.ways.append([no, yes])
        self.missing.append(missing)
        return len(self.ways) - 1

    def _below(self, limit: float) -> float:
        """The largest number below `limit` that processors do not take for 0."""
        found = np.nextafter(self.dtype.type(limit), self.dtype.type(-np.inf))
        tiny = np.finfo(self.dtype).tiny
        if abs(found) < tiny:
            return 0.0 if found > 0 else float(-tiny)
        return float(found)

    def branch(
        self, mode: str, feature: int, limit: float, yes: int, no: int, missing: bool
    ) -> int:
        """A new node that leads to `yes` where x `mode` limit; missing: where x is NaN, too."""
        if mode in ("GTE", "GT", "NEQ"):
            opposite = {"GTE": "LT", "GT": "LEQ", "NEQ": "EQ"}[mode]
            # a comparison with NaN is false, and so is that of the opposite
            through = missing or mode == "NEQ"
            return self.branch(opposite, feature, limit, no, yes, not through)
        if mode == "LT":
            return self._node(feature, self._below(limit), yes, no, missing)
        if mode == "EQ":
            inner = self._node(feature, self._below(limit), no, yes, False)
            return self._node(feature, limit, inner, no, missing)
        return self._node(feature, limit, yes, no, missing)

    def depth(self) -> int:
        """Steps from a root to the farthest leaf."""
        level, steps = set(self.roots), 0
        while True:
            level = {w for at in level for w in self.ways[at] if w != at}
            if not level:
                return steps
            steps += 1
            if steps > len(self.ways):
                raise ShapeError("the nodes of a tree form a circle; correct the model")

    def always(self, given: Array) -> Array:
        """Of given [nodes, targets]: the targets that all leaves of some tree give."""
        found = np.zeros(given.shape[1], np.bool_)
        for root in self.roots:
            seen, stack = {root}, [root]
            while stack:
                new = set(self.ways[stack.pop()]) - seen
                seen |= new
                stack += new
            leaves = [at for at in seen if self.ways[at][0] == at]
            found |= given[leaves].all(axis=0)
        return found

    def tables(self) -> tuple[Array, Array, Array, Array, Array | None]:
        """What TreeLeaves reads behind x."""
        missing = np.array(self.missing, np.bool_)
        return (
            np.array(self.roots, np.int32), np.array(self.features, np.int32),
            np.array(self.limits, self.dtype), np.array(self.ways, np.int32).reshape(-1, 2),
            missing if missing.any() else None,
        )  # fmt: skip
