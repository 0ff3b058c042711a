"""LinearRegressor and LinearClassifier of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from braze.core.dtypes import F32
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.ml import scores as s
from braze.ops.move.shape import reshape
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.matmul import MatMul


def features_of(n: OnnxNode, g: GraphBuilder) -> tuple[Value, int]:
    """X as float32 [B, F], and F."""
    x = n.need(0)
    if len(x.shape) == 1:
        x = reshape(g, x, (1, *x.shape))
    if len(x.shape) != 2 or not isinstance(x.shape[1], int):
        raise n.unsupported(f"X has shape {list(x.shape)}; [batch, fixed features] is meant")
    return cast_to(g, x, F32), x.shape[1]


def _linear(n: OnnxNode, g: GraphBuilder, x: Value, size: int, count: int) -> Value:
    """X coefficients' + intercepts."""
    weights = np.array(n.attr("coefficients", ()), np.float32)
    if len(weights) != count * size:
        raise n.invalid(f"{len(weights)} coefficients for {count} results of {size} features")
    y = g.add1(MatMul(), x, g.constant(np.ascontiguousarray(weights.reshape(count, size).T)))
    offsets = np.array(n.attr("intercepts", ()), np.float32)
    if not len(offsets):
        return y
    if len(offsets) != count:
        raise n.invalid(f"{len(offsets)} intercepts for {count} results")
    return g.add1(Binary("add"), y, g.constant(offsets))


def import_linear_regressor(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """LinearRegressor."""
    x, size = features_of(n, g)
    y = _linear(n, g, x, size, int(n.attr("targets", 1)))
    return (s.transformed(n, g, y, n.attr("post_transform", "NONE")),)


def import_linear_classifier(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """LinearClassifier: labels and scores; of two classes the first may have no row of its own."""
    x, size = features_of(n, g)
    labels = s.labels_of(n, g, "classlabels_ints")
    count = len(n.attr("coefficients", ())) // max(size, 1)
    kind = n.attr("post_transform", "NONE")
    y = _linear(n, g, x, size, count)
    if count == 1 and labels.shape[0] == 2:
        label = s.label_above(g, y, 0.0, labels)
        score = s.transformed(n, g, y, kind) if kind == "LOGISTIC" else y
        if kind == "PROBIT":
            raise n.unsupported("post_transform PROBIT of one score for two classes; give both")
        return (label, s.both_classes(n, g, score, "NONE", True))[: n.num_outputs]
    if labels.shape[0] != count:
        raise n.invalid(f"{labels.shape[0]} labels for {count} rows of coefficients")
    return (s.best_label(g, y, labels), s.transformed(n, g, y, kind))[: n.num_outputs]
