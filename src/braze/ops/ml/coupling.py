"""Shares of classes from the shares of their pairs, as libsvm finds them.

The shares p minimise the sum of (r_ji p_i - r_ij p_j) squared over all pairs, where r_ij is the
share of i against j (Wu, Lin and Weng, Journal of Machine Learning Research 5, 2004): p' Q p with
Q_ii the sum of r_ji squared and Q_ij = -r_ij r_ji. One p after the other is set to its best value
and all are scaled to the sum 1 again, round after round, until Q p is equal for all classes up to
a limit. The limit is coarse, so that rounds must stop where others stop.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np

from braze.core.dims import number
from braze.core.dtypes import F32, I64
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.flow.building import BodyBuilder
from braze.ops.flow.loop import COUNTER, Loop
from braze.ops.index.gather import Gather
from braze.ops.ml.scores import with_number
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import Expand, reshape
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.reduce import Reduce

ROUNDS: Final = 100  # at least as many as classes
ERROR: Final = 0.005  # over the number of classes


def coupled(g: GraphBuilder, shares: Value, classes: int) -> Value:
    """The shares of classes [B, classes] from those of the first of each pair [B, pairs].

    A trip of the loop sets one class of every row; rows that are done stay as they are.
    """
    batch = shares.shape[0]
    matrix = _matrix(g, shares, classes)
    body = BodyBuilder(g, "coupling")
    inner = body.builder
    at = inner.input("trip", COUNTER)
    wide, thin = (batch, classes), (batch, 1)
    first = [
        g.add1(Expand(shape), constant_like(g, value, F32))
        for shape, value in ((wide, 1 / classes), (wide, 0.0), (thin, 0.0))
    ]
    first.append(g.add1(Expand(thin), g.constant(np.array(True))))
    names = ("p", "slope", "mean", "live")
    state = tuple(inner.input(k, v.type) for k, v in zip(names, first, strict=True))
    made = _trip(inner, body.capture(matrix), at, state, classes)
    graph = inner.finish(list(zip(("more", *names), made, strict=True)))
    loop = Loop((graph,), True, True, len(first))
    trips = g.constant(np.array(max(ROUNDS, classes) * classes, np.int64))
    going = g.constant(np.array(True))
    return g.add(loop, trips, going, *first, *body.captured)[0]


def _matrix(g: GraphBuilder, shares: Value, classes: int) -> Value:
    """Q of each row: [B, classes, classes]."""
    pairs = list(combinations(range(classes), 2))
    rest = g.add1(Binary("sub"), constant_like(g, 1.0, F32), shares)
    beside = g.add1(Unary("neg"), g.add1(Binary("mul"), shares, rest))
    both = g.add1(Concat(1), shares, rest)
    # r_ji is the rest for the first of a pair, and the share for the second
    whose = np.eye(classes, dtype=np.float32)[[j for _, j in pairs] + [i for i, _ in pairs]]
    own = g.add1(MatMul(), g.add1(Binary("mul"), both, both), g.constant(whose))
    place = np.zeros((classes, classes), np.int64)
    for k, (i, j) in enumerate(pairs):
        place[i, j] = place[j, i] = k
    np.fill_diagonal(place, len(pairs) + np.arange(classes))
    flat = g.add1(Gather(1), g.add1(Concat(1), beside, own), g.constant(place.reshape(-1)))
    return reshape(g, flat, (shares.shape[0], classes, classes))


def _trip(
    g: GraphBuilder, matrix: Value, at: Value, state: tuple[Value, ...], classes: int
) -> list[Value]:
    """Whether any row goes on, and the state behind the trip: at its first class a round begins."""
    p, slope, mean, live = state
    batch = p.shape[0]
    k = reshape(g, g.add1(Binary("mod"), at, constant_like(g, classes, I64)), (1,))
    begins = g.add1(Compare("eq"), k, constant_like(g, 0, I64))
    flat = g.add1(Binary("mul"), matrix, reshape(g, p, (batch, 1, classes)))
    slope = g.add1(Where(), begins, g.add1(Reduce("sum", (2,), False), flat), slope)
    value = g.add1(Reduce("sum", (1,), True), g.add1(Binary("mul"), p, slope))
    mean = g.add1(Where(), begins, value, mean)
    error = g.add1(Unary("abs"), g.add1(Binary("sub"), slope, mean))
    limit = constant_like(g, ERROR / classes, F32)
    far = g.add1(Compare("le"), limit, g.add1(Reduce("max", (1,), True), error))
    inside = g.add1(Compare("lt"), constant_like(g, 0, I64), k)
    live = g.add1(Binary("and"), live, g.add1(Binary("or"), far, inside))
    moved = _set_class(g, matrix, k, (p, slope, mean))
    p, slope, mean = (
        g.add1(Where(), live, new, old) for new, old in zip(moved, (p, slope, mean), strict=True)
    )
    count = g.add1(Reduce("sum", (0, 1), False), cast_to(g, live, F32))
    return [g.add1(Compare("lt"), constant_like(g, 0.0, F32), count), p, slope, mean, live]


def _set_class(
    g: GraphBuilder, matrix: Value, k: Value, state: tuple[Value, ...]
) -> tuple[Value, ...]:
    """p, Q p and p' Q p behind the step of class k."""
    p, slope, mean = state
    classes = number(p.shape[1])
    row = reshape(g, g.add1(Gather(1), matrix, k), p.shape)
    own, here = (g.add1(Gather(1), v, k) for v in (row, slope))
    step = g.add1(Binary("div"), g.add1(Binary("sub"), mean, here), own)
    scale = with_number(g, "add", step, 1.0)
    chosen = g.add1(Compare("eq"), g.constant(np.arange(classes)), k)
    p = g.add1(Where(), chosen, g.add1(Binary("add"), p, step), p)
    twice = with_number(g, "mul", here, 2.0)
    rise = g.add1(Binary("add"), g.add1(Binary("mul"), step, own), twice)
    mean = g.add1(Binary("add"), mean, g.add1(Binary("mul"), step, rise))
    mean = g.add1(Binary("div"), g.add1(Binary("div"), mean, scale), scale)
    slope = g.add1(Binary("add"), slope, g.add1(Binary("mul"), step, row))
    return g.add1(Binary("div"), p, scale), g.add1(Binary("div"), slope, scale), mean
