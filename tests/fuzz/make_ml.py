"""Makers of ops of the domain ai.onnx.ml: features, lines, support vectors and trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.fuzz.case import Tensor
from tests.fuzz.make_views import size
from tests.fuzz.sketch import Ref, Sketch, static

Maker = Callable[[Sketch, Ref], Ref]
ML = "ai.onnx.ml."
KINDS = ("float32", "float64", "int64", "int32")
SCORES = ("NONE", "NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def _numbers(s: Sketch, count: int, low: int = -16, high: int = 16) -> list[float]:
    """Eighths, which every type of float holds."""
    return [s.r.randint(low, high) / 8 for _ in range(count)]


def _row(s: Sketch, x: Ref) -> int:
    """The width of [batch, features] of a type that the domain knows."""
    s.need(x.rank == 2 and x.dtype.name in KINDS and static(x.shape[1]) and x.sample.size > 0)
    return size(x, 1)


def _one_or_all(s: Sketch, x: Ref) -> int:
    """How many numbers there may be for the features of x: one, or one for each."""
    s.need(x.rank >= 1 and x.dtype.name in KINDS)
    return size(x, x.rank - 1) if static(x.shape[-1]) and x.shape[-1] and s.r.random() < 0.7 else 1


# ------------------------------------------------------------------ features


def scaler(s: Sketch, x: Ref) -> Ref:
    n = _one_or_all(s, x)
    return s.add1(ML + "Scaler", x, offset=_numbers(s, n), scale=_numbers(s, n, 1))


def normalizer(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank >= 1 and x.dtype.name in KINDS and all(d != 0 for d in x.shape))
    return s.add1(ML + "Normalizer", x, norm=s.r.choice(["MAX", "L1", "L2"]))


def binarizer(s: Sketch, x: Ref) -> Ref:
    s.need(x.dtype.name in KINDS)
    return s.add1(ML + "Binarizer", x, threshold=s.r.choice([0.0, 0.5, -1.0]))


def imputer(s: Sketch, x: Ref) -> Ref:
    """Zeros, or another whole number, are what is missing."""
    n = _one_or_all(s, x)
    if x.dtype.is_float:
        key, kind, values = "value_float", "floats", _numbers(s, n)
        x = s.add1("Round", x) if s.r.random() < 0.7 else x
        missing: Any = float(s.r.choice([0, 0, 1]))
    else:
        key, kind, values = "value_int64", "int64s", [s.r.randint(-9, 9) for _ in range(n)]
        missing = s.r.choice([0, 3])
    given = {f"imputed_value_{kind}": values, f"replaced_{key}": missing}
    return s.add1(ML + "Imputer", x, **given)


def one_hot(s: Sketch, x: Ref) -> Ref:
    s.need(x.dtype.name in KINDS and x.rank <= 4)
    categories = s.r.sample(range(-3, 6), s.r.randint(1, 5))
    return s.add1(ML + "OneHotEncoder", x, cats_int64s=categories, zeros=1)


def label_encoder(s: Sketch, x: Ref) -> Ref:
    """Whole numbers to whole numbers or to floats."""
    s.need(x.dtype.name in ("int64", "float32") and x.rank <= 4)
    keys = s.r.sample(range(-4, 9), s.r.randint(1, 6))
    if x.dtype.is_float:
        x = s.add1("Round", x)
        given: dict[str, Any] = {"keys_floats": [float(k) for k in keys]}
    else:
        given = {"keys_int64s": keys}
    if s.r.random() < 0.5:
        given |= {"values_floats": _numbers(s, len(keys)), "default_float": 0.5}
    else:
        given |= {"values_int64s": [s.r.randint(-9, 9) for _ in keys], "default_int64": -1}
    return s.add1(ML + "LabelEncoder", x, **given)


def extractor(s: Sketch, x: Ref) -> Ref:
    """Some features, in any order, also twice."""
    s.need(x.rank >= 1 and x.dtype.name in KINDS and static(x.shape[-1]) and x.shape[-1] != 0)
    n = size(x, x.rank - 1)
    places = [s.r.randrange(n) for _ in range(s.r.randint(1, 5))]
    return s.add1(ML + "ArrayFeatureExtractor", x, s.ints(*places))


def vectorizer(s: Sketch, x: Ref) -> Ref:
    """The features beside themselves negated."""
    n = _row(s, x)
    both = [x, s.add1("Neg", x)] if s.r.random() < 0.8 else [x]
    return s.add1(ML + "FeatureVectorizer", *both, inputdimensions=[n] * len(both))


# ------------------------------------------------------------------ machines


def _one_of(s: Sketch, labels_and_scores: list[Ref]) -> Ref:
    """Labels or, more often, scores: the other stays available."""
    return labels_and_scores[s.r.random() < 0.7]


def linear_regressor(s: Sketch, x: Ref) -> Ref:
    n, count = _row(s, x), s.r.choice([1, 1, 2, 5])
    offsets = {"intercepts": _numbers(s, count)} if s.r.random() < 0.7 else {}
    return s.add1(ML + "LinearRegressor", x, coefficients=_numbers(s, n * count), targets=count,
                  post_transform=s.r.choice(SCORES), **offsets)  # fmt: skip


def linear_classifier(s: Sketch, x: Ref) -> Ref:
    """Of two classes with one row of coefficients, or of several with one each."""
    n, classes = _row(s, x), s.r.choice([2, 2, 3, 5])
    count = 1 if classes == 2 else classes
    return _one_of(s, s.add(
        ML + "LinearClassifier", x, outputs=2, coefficients=_numbers(s, n * count),
        intercepts=_numbers(s, count), classlabels_ints=s.r.sample(range(-9, 9), classes),
        multi_class=0, post_transform=s.r.choice(SCORES),
    ))  # fmt: skip


def _kernel(s: Sketch) -> dict[str, Any]:
    return {"kernel_type": s.r.choice(["LINEAR", "POLY", "RBF", "SIGMOID"]),
            "kernel_params": [0.25, 0.125, 2.0]}  # fmt: skip


def svm_regressor(s: Sketch, x: Ref) -> Ref:
    """With support vectors, or a line."""
    n, vectors = _row(s, x), s.r.choice([0, 1, 3, 6])
    return s.add1(
        ML + "SVMRegressor", x, coefficients=_numbers(s, vectors or n, -8, 8),
        support_vectors=_numbers(s, vectors * n), n_supports=vectors, rho=_numbers(s, 1),
        one_class=s.r.choice([0, 0, 1]), **_kernel(s),
    )  # fmt: skip


def svm_classifier(s: Sketch, x: Ref) -> Ref:
    """By pairs of classes, without shares."""
    n, classes = _row(s, x), s.r.choice([2, 3, 4])
    sizes = [s.r.randint(1, 3) for _ in range(classes)]
    return _one_of(s, s.add(
        ML + "SVMClassifier", x, outputs=2, classlabels_ints=s.r.sample(range(-9, 9), classes),
        coefficients=_numbers(s, (classes - 1) * sum(sizes), -8, 8),
        support_vectors=_numbers(s, sum(sizes) * n), vectors_per_class=sizes,
        rho=_numbers(s, classes * (classes - 1) // 2), **_kernel(s),
    ))  # fmt: skip


# ------------------------------------------------------------------ trees

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
Node = tuple[str, int, float, int, int]  # mode, feature, limit, and where yes and no lead


def _tree(s: Sketch, features: int) -> list[Node]:
    """Nodes from the root on; those of one tree all compare alike, or in any way."""
    modes = MODES if s.r.random() < 0.3 else (s.r.choice(MODES[:4]),)
    depth = s.r.randint(1, 4)
    nodes: list[Node] = []

    def grow(level: int) -> int:
        at = len(nodes)
        nodes.append(("LEAF", 0, 0.0, 0, 0))
        if level == depth or (level and s.r.random() < 0.8):
            yes, no = grow(level - 1), grow(level - 1)
            (limit,) = _numbers(s, 1)
            nodes[at] = (s.r.choice(modes), s.r.randrange(features), limit, yes, no)
        return at

    grow(depth)
    return nodes


def _trees(s: Sketch, x: Ref) -> list[list[Node]]:
    n = _row(s, x)
    return [_tree(s, n) for _ in range(s.r.randint(1, 5))]


def _ensemble(s: Sketch, x: Ref, kind: str, targets: int) -> dict[str, Any]:
    """Attributes of the older ops, with one or two weights a leaf."""
    rows = [(t, i, *node) for t, tree in enumerate(_trees(s, x)) for i, node in enumerate(tree)]
    low = s.r.choice([-8, 0])  # weights that are nowhere negative are shares
    leaves = [
        (t, i, target, *_numbers(s, 1, low, 8)) for t, i, mode, *_ in rows if mode == "LEAF"
        for target in s.r.sample(range(targets), min(targets, s.r.choice([1, 1, 2])))
    ]  # fmt: skip
    names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
    columns = zip(names, zip(*rows, strict=True), strict=True)
    given = {f"nodes_{name}": list(column) for name, column in columns}
    given["nodes_modes"] = [m if m == "LEAF" else f"BRANCH_{m}" for m in given["nodes_modes"]]
    columns = zip(("treeids", "nodeids", "ids", "weights"), zip(*leaves, strict=True), strict=True)
    return given | {f"{kind}_{name}": list(column) for name, column in columns}


def tree_regressor(s: Sketch, x: Ref) -> Ref:
    targets = s.r.choice([1, 1, 3])
    return s.add1(
        ML + "TreeEnsembleRegressor", x, n_targets=targets, post_transform=s.r.choice(SCORES),
        aggregate_function=s.r.choice(["SUM", "SUM", "AVERAGE", "MIN", "MAX"]),
        **_ensemble(s, x, "target", targets),
    )  # fmt: skip


def tree_classifier(s: Sketch, x: Ref) -> Ref:
    classes = s.r.choice([2, 3, 4])
    return _one_of(s, s.add(
        ML + "TreeEnsembleClassifier", x, outputs=2, post_transform=s.r.choice(SCORES),
        classlabels_int64s=s.r.sample(range(-9, 9), classes), **_ensemble(s, x, "class", classes),
    ))  # fmt: skip


def tree_ensemble(s: Sketch, x: Ref) -> Ref:
    """The newest form, whose leaves stand apart; no model has it beside the older ones."""
    older = ("TreeEnsembleRegressor", "TreeEnsembleClassifier")
    s.need(x.dtype.is_float and not any(step.op.endswith(older) for step in s.steps))
    trees, targets = _trees(s, x), s.r.choice([1, 2])
    inner = [(t, i) for t, tree in enumerate(trees) for i, n in enumerate(tree) if n[0] != "LEAF"]
    leaves = [(t, i) for t, tree in enumerate(trees) for i, n in enumerate(tree) if n[0] == "LEAF"]
    nodes = [trees[t][i] for t, i in inner]
    ways = {
        name: [(t, node[k]) for (t, _), node in zip(inner, nodes, strict=True)]
        for name, k in (("true", 3), ("false", 4))
    }
    given: dict[str, Any] = {}
    for name, ends in ways.items():
        given[f"nodes_{name}leafs"] = [int(end in leaves) for end in ends]
        given[f"nodes_{name}nodeids"] = [
            leaves.index(end) if end in leaves else inner.index(end) for end in ends
        ]
    kind, count = x.dtype.name, len(inner)
    modes = tuple(MODES.index(n[0]) for n in nodes)
    weights = tuple(_numbers(s, len(leaves), -8, 8))
    return s.add1(
        ML + "TreeEnsemble", x, n_targets=targets, tree_roots=[inner.index((t, 0)) for t in
        range(len(trees))], nodes_featureids=[n[1] for n in nodes],
        nodes_modes=Tensor("uint8", (count,), values=modes),
        nodes_splits=Tensor(kind, (count,), values=tuple(n[2] for n in nodes)),
        leaf_weights=Tensor(kind, (len(leaves),), values=weights),
        leaf_targetids=[s.r.randrange(targets) for _ in leaves],
        aggregate_function=s.r.choice([1, 1, 0, 2, 3]), **given,
    )  # fmt: skip
