"""TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from braze.core.dtypes import F32, F64
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Array, OnnxNode
from braze.ops.index.gather import Gather
from braze.ops.ml import scores as s
from braze.ops.ml.trees import Forest, TreeLeaves
from braze.ops.move.concat_split import Concat
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.constant import ConstantOfShape
from braze.ops.pointwise.elementwise import Binary, constant_like
from braze.ops.reduce.reduce import Reduce

MODES: Final = {f"BRANCH_{m}": m for m in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")}
AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
MOST_WEIGHTS: Final = 1 << 28


def _numbers(n: OnnxNode, key: str, wide: bool) -> Array:
    """An attribute of floats, or its form as a tensor."""
    tensor = n.attr(f"{key}_as_tensor")
    values = n.attr(key, ()) if tensor is None else np.asarray(tensor).reshape(-1)
    return np.asarray(values, np.float64 if wide else np.float32)


def _input(n: OnnxNode, g: GraphBuilder) -> Value:
    """X as float32, or float64 where it is that: what its numbers are compared in."""
    x = n.need(0)
    if len(x.shape) != 2:
        raise n.unsupported(f"X has rank {len(x.shape)}; [batch, features] is meant")
    return x if x.dtype is F64 else cast_to(g, x, F32)


class _Nodes:
    """The nodes of an old-style ensemble by (tree, node)."""

    def __init__(self, n: OnnxNode, x: Value) -> None:
        self.n = n
        wide = x.dtype is F64
        names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids", "modes")
        tree, node, self.feature, self.yes, self.no, modes = (
            n.attr(f"nodes_{name}", ()) for name in names
        )
        self.limit = _numbers(n, "nodes_values", wide)
        self.mode: Sequence[str] = modes
        self.track = n.attr("nodes_missing_value_tracks_true", ()) or (0,) * len(tree)
        lengths = {len(v) for v in (tree, node, self.feature, self.yes, self.no, modes)}
        if len(lengths) != 1 or len(self.limit) != len(tree) or len(self.track) != len(tree):
            raise n.invalid("the attributes of nodes differ in length")
        self.place = {key: i for i, key in enumerate(zip(tree, node, strict=True))}
        self.tree: Sequence[int] = tree
        features = x.shape[1]
        if isinstance(features, int) and any(f >= features or f < 0 for f in self._used()):
            raise n.invalid(f"a node compares a feature beyond the {features} of X")
        self.forest = Forest(np.dtype(np.float64 if wide else np.float32))
        self.leaf_of: dict[int, int] = {}  # our leaf -> position of its node

    def _used(self) -> list[int]:
        return [f for f, m in zip(self.feature, self.mode, strict=True) if m != "LEAF"]

    def grow(self) -> Forest:
        """The forest; the first node of each tree is its root."""
        made: dict[int, int] = {}
        for tree in dict.fromkeys(self.tree):
            root = self.tree.index(tree)
            self.forest.roots.append(self._grown(root, made))
        return self.forest

    def _grown(self, root: int, made: dict[int, int]) -> int:
        """The node at position `root` with all below it, children first (trees may be deep)."""
        stack, open_ = [root], set[int]()
        while stack:
            i = stack[-1]
            if i in made:
                stack.pop()
                continue
            leaf = self.mode[i] == "LEAF"
            children = [] if leaf else [self._child(i, w) for w in (self.yes, self.no)]
            missing = [c for c in children if c not in made]
            if missing:
                if i in open_:
                    raise self.n.invalid("the nodes of a tree form a circle")
                open_.add(i)
                stack += missing
                continue
            made[i] = self._node(i, [made[c] for c in children])
            stack.pop()
        return made[root]

    def _child(self, i: int, ways: Sequence[int]) -> int:
        key = (self.tree[i], ways[i])
        if key not in self.place:
            raise self.n.invalid(f"node {ways[i]} of tree {self.tree[i]} is missing")
        return self.place[key]

    def _node(self, i: int, children: list[int]) -> int:
        if not children:
            leaf = self.forest.leaf()
            self.leaf_of[leaf] = i
            return leaf
        if self.mode[i] not in MODES:
            raise self.n.invalid(f"mode {self.mode[i]!r} is unknown")
        mode, track = MODES[self.mode[i]], bool(self.track[i])
        yes, no = children
        return self.forest.branch(mode, self.feature[i], float(self.limit[i]), yes, no, track)


def _weights(n: OnnxNode, nodes: _Nodes, kind: str, count: int, wide: bool) -> tuple[Array, Array]:
    """[our node, target] weights, and whether the model gives one."""
    values = _numbers(n, f"{kind}_weights", wide)
    keys = list(zip(n.attr(f"{kind}_treeids", ()), n.attr(f"{kind}_nodeids", ()), strict=True))
    ids = n.attr(f"{kind}_ids", ())
    if not len(keys) == len(ids) == len(values):
        raise n.invalid(f"the attributes of {kind} weights differ in length")
    rows = len(nodes.forest.ways)
    if rows * count > MOST_WEIGHTS or any(not 0 <= i < count for i in ids):
        raise n.unsupported(f"weights of {rows} nodes and {count} targets do not fit")
    table, given = np.zeros((rows, count), values.dtype), np.zeros((rows, count), np.bool_)
    ours = {place: leaf for leaf, place in nodes.leaf_of.items()}
    for key, target, value in zip(keys, ids, values, strict=True):
        leaf = ours.get(nodes.place.get(key, -1))
        if leaf is not None:
            table[leaf, target] += value
            given[leaf, target] = True
    return table, given


def _sums(
    g: GraphBuilder, x: Value, forest: Forest, table: Array, given: Array, aggregate: str
) -> Value:
    """[B, targets]: the weights of the leaves of all trees, put together."""
    roots, features, limits, ways, missing = forest.tables()
    constants = [g.constant(a, "trees") for a in (roots, features, limits, ways)]
    absent = None if missing is None else g.constant(missing, "trees")
    leaves = g.add1(TreeLeaves(forest.depth()), x, *constants, absent)
    kind = {"MIN": "min", "MAX": "max"}.get(aggregate, "sum")
    if kind != "sum":
        table = np.where(given, table, np.inf if kind == "min" else -np.inf).astype(table.dtype)
    found = g.add1(Gather(0), g.constant(table, "weights"), leaves)
    y = g.add1(Reduce(kind, (1,), False), found)
    if aggregate == "AVERAGE":
        y = g.add1(Binary("div"), y, constant_like(g, max(1, len(roots)), y.dtype))
    return y


def _plus(g: GraphBuilder, y: Value, base: Array) -> Value:
    if not base.size:
        return y
    return g.add1(Binary("add"), y, g.constant(base.astype(y.dtype.numpy), "base"))


def import_regressor(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """TreeEnsembleRegressor: sums, averages, least or largest weights of leaves a target."""
    x, count = _input(n, g), int(n.attr("n_targets", 1))
    aggregate = n.attr("aggregate_function", "SUM")
    if aggregate not in AGGREGATES:
        raise n.invalid(f"aggregate_function {aggregate!r} is not one of {', '.join(AGGREGATES)}")
    nodes, wide = _Nodes(n, x), x.dtype is F64
    forest = nodes.grow()
    table, given = _weights(n, nodes, "target", count, wide)
    y = _sums(g, x, forest, table, given, aggregate)
    y = cast_to(g, _plus(g, y, _numbers(n, "base_values", wide)), F32)
    return (s.transformed(n, g, y, n.attr("post_transform", "NONE")),)


def import_classifier(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """TreeEnsembleClassifier: labels, and scores of classes behind post_transform."""
    x, labels = _input(n, g), s.labels_of(n, g, "classlabels_int64s")
    count = int(labels.shape[0]) if isinstance(labels.shape[0], int) else 0
    nodes, wide = _Nodes(n, x), x.dtype is F64
    forest = nodes.grow()
    table, given = _weights(n, nodes, "class", count, wide)
    base, kind = _numbers(n, "base_values", wide), n.attr("post_transform", "NONE")
    used = given.any(axis=0)
    if count == 2 and used.sum() == 1 and len(base) < 2:
        at = int(np.argmax(used))
        y = _sums(g, x, forest, table[:, at : at + 1], given[:, at : at + 1], "SUM")
        if at == 1 and base.size:
            raise n.unsupported("one base value beside weights of the second class; give two")
        return _two_classes(n, g, cast_to(g, _plus(g, y, base), F32), table, at, labels)
    y = cast_to(g, _plus(g, _sums(g, x, forest, table, given, "SUM"), base), F32)
    rated = y if base.size else _rated(g, x, forest, given, y)
    label = s.best_label(g, rated, labels)
    return (label, s.transformed(n, g, y, kind))[: n.num_outputs]


def _rated(g: GraphBuilder, x: Value, forest: Forest, given: Array, y: Value) -> Value:
    """y, with minus infinity for classes that no leaf of a row gives a weight."""
    if forest.always(given).all():
        return y
    count = _sums(g, x, forest, given.astype(np.float32), given, "SUM")
    none = g.add1(Compare("eq"), count, constant_like(g, 0.0, F32))
    return g.add1(Where(), none, constant_like(g, -np.inf, F32), y)


def _two_classes(
    n: OnnxNode, g: GraphBuilder, score: Value, table: Array, at: int, labels: Value
) -> tuple[Value, ...]:
    """All weights are of one class, and their sum is the score of the second of two.

    Weights that are nowhere negative are taken for shares of 1. Those of class 1 leave class 0 a
    score of 0; those of class 0 give it what is left.
    """
    share, kind = bool((table >= 0).all()), n.attr("post_transform", "NONE")
    label = s.label_above(g, score, 0.5 if share else 0.0, labels)
    if at == 0:
        return (label, s.both_classes(n, g, score, kind, share))[: n.num_outputs]
    zero = g.add1(ConstantOfShape(score.shape, 0.0, score.dtype))
    both = g.add1(Concat(1), zero, score)
    return (label, s.transformed(n, g, both, kind))[: n.num_outputs]


_NEEDED: Final = (
    "leaf_targetids", "leaf_weights", "nodes_falseleafs", "nodes_falsenodeids", "nodes_featureids",
    "nodes_modes", "nodes_splits", "nodes_trueleafs", "nodes_truenodeids", "tree_roots",
)  # fmt: skip


def import_ensemble(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """TreeEnsemble (opset 5): leaves apart from nodes, and membership in sets of numbers."""
    x = _input(n, g)
    wide = x.dtype is F64
    forest = Forest(np.dtype(np.float64 if wide else np.float32))
    for name in _NEEDED:
        if n.attr(name) is None:
            raise n.invalid(f"attribute {name} is missing; a forest cannot do without it")
    weights = np.asarray(n.attr("leaf_weights")).reshape(-1)
    targets, count = n.attr("leaf_targetids"), int(n.attr("n_targets", 1))
    leaves = [forest.leaf() for _ in range(len(weights))]
    _grow_ensemble(n, forest, leaves)
    rows = len(forest.ways)
    if rows * count > MOST_WEIGHTS or any(not 0 <= t < count for t in targets):
        raise n.unsupported(f"weights of {rows} nodes and {count} targets do not fit")
    table, given = np.zeros((rows, count), forest.dtype), np.zeros((rows, count), np.bool_)
    table[leaves, list(targets)] = weights
    given[leaves, list(targets)] = True
    aggregate = AGGREGATES[int(n.attr("aggregate_function", 1))]
    y = _sums(g, x, forest, table, given, aggregate)
    kind = s.TRANSFORMS[int(n.attr("post_transform", 0))]
    y = s.transformed(n, g, cast_to(g, y, F32), kind)
    return (cast_to(g, y, x.dtype),)


_ENSEMBLE_MODES: Final = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")


def _grow_ensemble(n: OnnxNode, forest: Forest, leaves: list[int]) -> None:
    modes = np.asarray(n.attr("nodes_modes")).reshape(-1)
    limits = np.asarray(n.attr("nodes_splits")).reshape(-1)
    features = n.attr("nodes_featureids")
    ways = [(n.attr(f"nodes_{w}nodeids"), n.attr(f"nodes_{w}leafs")) for w in ("true", "false")]
    track = n.attr("nodes_missing_value_tracks_true", ()) or (0,) * len(modes)
    sets = iter(_sets(n))
    members = {i: next(sets, ()) for i, m in enumerate(modes) if m == 6}
    made: dict[int, int] = {}

    def node(i: int) -> int:
        yes, no = (leaves[ids[i]] if is_leaf[i] else made[ids[i]] for ids, is_leaf in ways)
        mode, missing = _ENSEMBLE_MODES[int(modes[i])], bool(track[i])
        if mode != "MEMBER":
            return forest.branch(mode, features[i], float(limits[i]), yes, no, missing)
        at = no
        for k, value in enumerate(members[i]):
            at = forest.branch("EQ", features[i], float(value), yes, at, missing and k == 0)
        return at

    for root in n.attr("tree_roots"):
        for i in _children_first(n, root, ways, len(modes)):
            if i not in made:
                made[i] = node(i)
        forest.roots.append(made[root])


def _children_first(n: OnnxNode, root: int, ways: Any, count: int) -> list[int]:
    """The nodes from `root` on, each behind its children."""
    order: list[int] = []
    stack = [root]
    while stack:
        i = stack.pop()
        if not 0 <= i < count or len(order) > count:
            raise n.invalid("a node is outside the table, or nodes form a circle")
        order.append(i)
        stack += [ids[i] for ids, is_leaf in ways if not is_leaf[i]]
    return order[::-1]


def _sets(n: OnnxNode) -> list[list[float]]:
    """membership_values: sets, each ended by a NaN."""
    tensor = n.attr("membership_values")
    sets: list[list[float]] = [[]]
    for value in () if tensor is None else np.asarray(tensor).reshape(-1):
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(float(value))
    return sets
