"""What ai.onnx.ml does with scores: post_transform, labels, and the second of two classes."""

from __future__ import annotations

import math

import numpy as np

from braze.core.dtypes import I64
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import reshape
from braze.ops.pointwise.activation import Sigmoid
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.reduce.reduce import ArgReduce, Reduce
from braze.ops.reduce.softmax import Softmax

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def with_number(g: GraphBuilder, op: str, x: Value, y: float) -> Value:
    """x op y of a plain number."""
    return g.add1(Binary(op), x, constant_like(g, y, x.dtype))


def transformed(n: OnnxNode, g: GraphBuilder, x: Value, kind: str) -> Value:
    """Scores [B, C] behind post_transform."""
    if kind == "NONE":
        return x
    if kind == "SOFTMAX":
        return g.add1(Softmax(1), x)
    if kind == "LOGISTIC":
        return g.add1(Sigmoid(), x)
    if kind == "SOFTMAX_ZERO":
        return _softmax_zero(g, x)
    if kind == "PROBIT":
        return _probit(g, x)
    raise n.invalid(f"post_transform {kind!r} is not one of {', '.join(TRANSFORMS)}")


def _softmax_zero(g: GraphBuilder, x: Value) -> Value:
    """Softmax of the scores that are not 0; those that are take no part."""
    top = g.add1(Reduce("max", (1,), True), x)
    weights = g.add1(Unary("exp"), g.add1(Binary("sub"), x, top))
    zero = constant_like(g, 0.0, x.dtype)
    counts = g.add1(Compare("lt"), constant_like(g, 1e-7, x.dtype), g.add1(Unary("abs"), x))
    weights = g.add1(Where(), counts, weights, zero)
    return g.add1(Binary("div"), weights, g.add1(Reduce("sum", (1,), True), weights))


def _probit(g: GraphBuilder, x: Value) -> Value:
    """sqrt(2) * erfinv(2 x - 1), erfinv by Winitzki's formula with a = 0.147."""
    x = with_number(g, "sub", with_number(g, "mul", x, 2.0), 1.0)
    one = constant_like(g, 1.0, x.dtype)
    rest = g.add1(Binary("mul"), g.add1(Binary("sub"), one, x), g.add1(Binary("add"), one, x))
    log = g.add1(Unary("log"), rest)
    v = with_number(g, "add", with_number(g, "mul", log, 0.5), 2 / (math.pi * 0.147))
    square = g.add1(Binary("mul"), v, v)
    inner = g.add1(Binary("sub"), square, with_number(g, "mul", log, 1 / 0.147))
    root = g.add1(Unary("sqrt"), inner)
    size = g.add1(Unary("sqrt"), g.add1(Binary("sub"), root, v))
    signed = g.add1(Binary("mul"), size, g.add1(Unary("sign"), x))
    return with_number(g, "mul", signed, math.sqrt(2))


def labels_of(n: OnnxNode, g: GraphBuilder, key: str) -> Value:
    """The class labels as an int64 constant."""
    if n.attr("classlabels_strings"):
        raise n.unsupported(f"class labels are strings; give numbers in {key}")
    labels = n.attr(key, ())
    if not labels:
        raise n.invalid(f"{key} is empty; the op needs it")
    return g.constant(np.array(labels, np.int64), "labels")


def best_label(g: GraphBuilder, scores: Value, labels: Value) -> Value:
    """The label of the largest score of each row, the first of equal ones."""
    return g.add1(Gather(0), labels, g.add1(ArgReduce("max", 1, False), scores))


def label_above(g: GraphBuilder, score: Value, limit: float, labels: Value) -> Value:
    """labels[1] where score [B, 1] > limit, else labels[0]: [B]."""
    above = g.add1(Compare("lt"), constant_like(g, limit, score.dtype), score)
    return g.add1(Gather(0), labels, reshape(g, cast_to(g, above, I64), (score.shape[0],)))


def both_classes(n: OnnxNode, g: GraphBuilder, score: Value, kind: str, share: bool) -> Value:
    """Scores of two classes from the one of the second, [B, 1].

    share: it is the second's share of 1, and the first has the rest; else they are opposites.
    LOGISTIC makes shares of opposites; of the other transforms ONNX Runtime applies none.
    """
    if kind == "PROBIT":
        raise n.unsupported("post_transform PROBIT of one score for two classes; give both")
    if share and kind != "LOGISTIC":
        first = g.add1(Binary("sub"), constant_like(g, 1.0, score.dtype), score)
        return g.add1(Concat(1), first, score)
    pair = g.add1(Concat(1), g.add1(Unary("neg"), score), score)
    return transformed(n, g, pair, kind) if kind == "LOGISTIC" else pair
