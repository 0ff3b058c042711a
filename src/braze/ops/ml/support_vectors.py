"""SVMRegressor and SVMClassifier of ai.onnx.ml."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from braze.core.dims import number
from braze.core.dtypes import F32
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Array, OnnxNode
from braze.ops.ml import scores as s
from braze.ops.ml.coupling import coupled
from braze.ops.ml.machines import features_of
from braze.ops.move.shape import reshape
from braze.ops.pointwise.activation import Sigmoid
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.reduce import Reduce

SHARE_LIMIT = 1e-7  # shares of a pair stay as far from 0 and 1


def _vectors(n: OnnxNode, count: int, size: int) -> Array:
    """The support vectors [count, size]."""
    vectors = np.array(n.attr("support_vectors", ()), np.float32)
    if vectors.size != count * size:
        raise n.invalid(f"{vectors.size} numbers of {count} support vectors of size {size}")
    return vectors.reshape(count, size)


def _kernel(n: OnnxNode, g: GraphBuilder, x: Value, vectors: Array) -> Value:
    """K(x, v) of each row and support vector: [B, vectors]."""
    kind = n.attr("kernel_type", "LINEAR")
    gamma, offset, degree = (float(p) for p in (*n.attr("kernel_params", ()), 0, 0, 0)[:3])
    if kind == "RBF":
        # of differences: squares of far features would leave no digits of a small distance
        ahead = reshape(g, x, (x.shape[0], 1, x.shape[1]))
        apart = g.add1(Binary("sub"), ahead, g.constant(vectors[None]))
        distance = g.add1(Reduce("sumsquare", (2,), False), apart)
        return g.add1(Unary("exp"), s.with_number(g, "mul", distance, -gamma))
    product = g.add1(MatMul(), x, g.constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    line = s.with_number(g, "add", s.with_number(g, "mul", product, gamma), offset)
    if kind == "POLY":
        return s.with_number(g, "pow", line, degree)
    if kind == "SIGMOID":
        return g.add1(Unary("tanh"), line)
    raise n.invalid(f"kernel_type {kind!r} is not LINEAR, POLY, RBF or SIGMOID")


def import_svm_regressor(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """SVMRegressor: support vectors, or a line where there are none; signs for one class."""
    x, size = features_of(n, g)
    count, rho = int(n.attr("n_supports", 0)), n.attr("rho", (0.0,))
    weights = np.array(n.attr("coefficients", ()), np.float32).reshape(-1, 1)
    if count:
        if len(weights) != count:
            raise n.invalid(f"{len(weights)} coefficients for {count} support vectors")
        x = _kernel(n, g, x, _vectors(n, count, size))
    elif len(weights) != size:
        raise n.invalid(f"{len(weights)} coefficients for {size} features")
    y = s.with_number(g, "add", g.add1(MatMul(), x, g.constant(weights)), float(rho[0]))
    if n.attr("one_class", 0):
        above = g.add1(Compare("lt"), constant_like(g, 0.0, F32), y)
        y = g.add1(Where(), above, constant_like(g, 1.0, F32), constant_like(g, -1.0, F32))
    return (s.transformed(n, g, y, n.attr("post_transform", "NONE")),)


def import_svm_classifier(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """SVMClassifier: a score for each pair of classes, which votes for one of both.

    The scores are those of the pairs, or shares of the classes where prob_a and prob_b are given;
    without support vectors they are those of a line for each class.
    """
    x, size = features_of(n, g)
    labels = s.labels_of(n, g, "classlabels_ints")
    classes = number(labels.shape[0])
    sizes = [int(c) for c in n.attr("vectors_per_class", ())]
    kind = n.attr("post_transform", "NONE")
    if not sum(sizes):
        y = _lines(n, g, x, size, classes)
        return (s.best_label(g, y, labels), s.transformed(n, g, y, kind))[: n.num_outputs]
    if len(sizes) != classes or classes < 2:
        raise n.invalid(f"{len(sizes)} numbers in vectors_per_class for {classes} classes")
    pairs = list(combinations(range(classes), 2))
    kernel = _kernel(n, g, x, _vectors(n, sum(sizes), size))
    y = g.add1(MatMul(), kernel, g.constant(_pair_weights(n, sizes, pairs)))
    y = g.add1(Binary("add"), y, g.constant(_of_pairs(n, "rho", pairs)))
    label = s.best_label(g, _votes(g, y, classes, pairs), labels)
    if n.attr("prob_a"):
        shares = coupled(g, _shares(n, g, y, pairs), classes)
        return (label, s.transformed(n, g, shares, kind))[: n.num_outputs]
    if classes == 2:
        if kind == "PROBIT":
            raise n.unsupported("post_transform PROBIT of one score for two classes; use NONE")
        y = s.both_classes(n, g, y, "NONE", False)
    return (label, s.transformed(n, g, y, kind))[: n.num_outputs]


def _lines(n: OnnxNode, g: GraphBuilder, x: Value, size: int, classes: int) -> Value:
    """Scores [B, classes] without support vectors: coefficients of each class, and one rho."""
    weights = np.array(n.attr("coefficients", ()), np.float32)
    if len(weights) != classes * size:
        raise n.invalid(f"{len(weights)} coefficients for {classes} classes of {size} features")
    if classes < 3:
        raise n.unsupported(
            "without support vectors the label of two classes has no common meaning; export a "
            "LinearClassifier"
        )
    y = g.add1(MatMul(), x, g.constant(np.ascontiguousarray(weights.reshape(classes, size).T)))
    return s.with_number(g, "add", y, float(n.attr("rho", (0.0,))[0]))


def _of_pairs(n: OnnxNode, key: str, pairs: list[tuple[int, int]]) -> Array:
    values = np.array(n.attr(key, ()), np.float32)
    if len(values) < len(pairs):
        raise n.invalid(f"{len(values)} numbers in {key} for {len(pairs)} pairs of classes")
    return values[: len(pairs)]


def _pair_weights(n: OnnxNode, sizes: list[int], pairs: list[tuple[int, int]]) -> Array:
    """[vectors, pairs]: of a pair i < j the coefficients of i against j, and of j against i.

    Row r of the attribute is for class r where the vector is of a later class, else for r + 1.
    """
    total, ends = sum(sizes), np.cumsum(sizes)
    given = np.array(n.attr("coefficients", ()), np.float32)
    if len(given) < (len(sizes) - 1) * total:
        raise n.invalid(f"{len(given)} coefficients for {len(sizes)} classes of {total} vectors")
    rows = given[: (len(sizes) - 1) * total].reshape(-1, total)
    weights = np.zeros((total, len(pairs)), np.float32)
    for p, (i, j) in enumerate(pairs):
        for k, row in ((i, j - 1), (j, i)):
            own = slice(ends[k] - sizes[k], ends[k])
            weights[own, p] = rows[row, own]
    return weights


def _votes(g: GraphBuilder, y: Value, classes: int, pairs: list[tuple[int, int]]) -> Value:
    """How many pairs vote for each class: the first of a pair whose score is above 0."""
    first, second = (np.eye(classes, dtype=np.float32)[[p[k] for p in pairs]] for k in (0, 1))
    above = cast_to(g, g.add1(Compare("lt"), constant_like(g, 0.0, F32), y), F32)
    moved = g.add1(MatMul(), above, g.constant(first - second))
    return g.add1(Binary("add"), moved, g.constant(second.sum(0)))


def _shares(n: OnnxNode, g: GraphBuilder, y: Value, pairs: list[tuple[int, int]]) -> Value:
    """The share of the first class of each pair, by the sigmoid that was fitted to its scores."""
    slope, offset = (g.constant(_of_pairs(n, key, pairs)) for key in ("prob_a", "prob_b"))
    line = g.add1(Binary("add"), g.add1(Binary("mul"), y, slope), offset)
    share = g.add1(Sigmoid(), g.add1(Unary("neg"), line))
    share = s.with_number(g, "max", share, SHARE_LIMIT)
    return s.with_number(g, "min", share, 1 - SHARE_LIMIT)
