"""Optimised = unoptimised on random graphs.

Constants are small dyadic numbers, so folding them into weights is exact, and everything is
evaluated in float64: 1e-9 of the largest value (or of 1, for sums that cancel) is far above
rounding and below any mistake.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from braze.core.config import BuildConfig
from braze.core.dims import sym
from braze.core.dtypes import F32
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ops.evaluator import evaluate
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat, Split
from braze.ops.move.shape import Expand, Reshape, Tile, Transpose
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.norm.batch_norm import BatchNorm
from braze.ops.norm.channel_norm import InstanceNorm
from braze.ops.norm.normalization import LayerNorm
from braze.ops.pointwise.activation import Clip, HardSigmoid, PRelu, Relu, Sigmoid
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.pool.pool import AveragePool, MaxPool
from braze.ops.product.conv import Conv
from braze.ops.product.conv_transpose import ConvTranspose
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.reduce import Reduce
from braze.ops.reduce.softmax import Softmax
from braze.ops.sample.resize import Resize
from braze.passes.base import PassContext
from braze.passes.pipeline import run_pipeline

SEEDS = 120
MAX_ELEMENTS = 4000


class Chaos:
    """A graph that grows by random ops on random earlier values."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.symbolic = seed % 3 == 0
        self.batch = sym("n") if self.symbolic else self.r.choice([1, 2])
        self.g = GraphBuilder(bounds={"n": (1, 4)})
        shape = (self.batch, self.r.choice([1, 2, 4]), self.r.choice([1, 3, 4]), 4)
        self.values = [self.g.input("x", TensorType(F32, shape))]

    def build(self, steps: int) -> Graph:
        for _ in range(steps):
            x = self.r.choice(self.values[-4:])
            y = self.r.choice(STEPS)(self, x)
            if y is not None and self.count(y) <= MAX_ELEMENTS:
                self.values.append(y)
        picked = (self.values[-1], self.r.choice(self.values), self.r.choice(self.values))
        return self.g.finish([(f"y{i}", v) for i, v in enumerate(picked)])

    def count(self, v: Value) -> int:
        return int(np.prod([d if isinstance(d, int) else 2 for d in v.shape]))

    def dyadic(self, *shape: int) -> Value:
        pick = self.r.choices([-1, -0.5, 0.25, 0.5, 1, 2], k=math.prod(shape))
        return self.g.constant(np.float32(pick).reshape(shape))

    def broadcast_constant(self, x: Value) -> Value:
        tail = self.r.randint(0, x.type.rank)
        shape = [
            d if isinstance(d, int) and self.r.random() < 0.5 else 1
            for d in x.shape[x.type.rank - tail :]
        ]
        return self.dyadic(*shape)


def pointwise(c: Chaos, x: Value) -> Value:
    ops = [Relu(), Sigmoid(), Unary("neg"), Unary("abs"), Clip(0.0, 6.0), HardSigmoid(0.2, 0.5)]
    return c.g.add1(c.r.choice(ops), x)


def with_constant(c: Chaos, x: Value) -> Value:
    op = Binary(c.r.choice(["add", "sub", "mul", "div", "max"]))
    pair = (x, c.broadcast_constant(x))
    if op.op not in ("div",) and c.r.random() < 0.3:
        pair = pair[::-1]
    return c.g.add1(op, *pair)


def with_value(c: Chaos, x: Value) -> Value | None:
    others = [v for v in c.values if v.shape == x.shape]
    return c.g.add1(Binary(c.r.choice(["add", "mul", "sub"])), x, c.r.choice(others))


def gate(c: Chaos, x: Value) -> Value | None:
    if x.type.rank == 0:
        return None
    axes = tuple(sorted(c.r.sample(range(x.type.rank), c.r.randint(1, x.type.rank))))
    pooled = c.g.add1(Reduce(c.r.choice(["mean", "max", "sum"]), axes, True), x)
    return c.g.add1(Binary("mul"), x, c.g.add1(Sigmoid(), pooled))


def conv(c: Chaos, x: Value) -> Value | None:
    if x.type.rank not in (3, 4) or not all(isinstance(d, int) for d in x.shape[1:]):
        return None
    spatial = x.type.rank - 2
    channels = int(x.shape[1])
    groups = c.r.choice([1, channels])
    kernel = [min(int(d), c.r.choice([1, 3])) for d in x.shape[2:]]
    w = c.dyadic(groups * c.r.choice([1, 2]), channels // groups, *kernel)
    pad = c.r.choice([0, 1])
    y = c.g.add1(
        Conv((c.r.choice([1, 2]),) * spatial, (1,) * spatial, (pad,) * 2 * spatial, groups), x, w
    )
    return c.g.add1(Binary("add"), y, c.dyadic(int(w.shape[0]), *(1,) * spatial))


def conv_transpose(c: Chaos, x: Value) -> Value | None:
    if x.type.rank != 4 or not isinstance(x.shape[1], int):
        return None
    w = c.dyadic(x.shape[1], 2, 2, 2)
    op = ConvTranspose((c.r.choice([1, 2]),) * 2, (1, 1), (0, 0, 0, 0), (0, 0))
    return c.g.add1(op, x, w)


def pool(c: Chaos, x: Value) -> Value | None:
    if x.type.rank != 4 or any(isinstance(d, int) and d < 2 for d in x.shape[2:]):
        return None
    size, pads = (2, 2), (c.r.choice([0, 1]), 0, 1, 0)
    if c.r.random() < 0.5:
        return c.g.add1(MaxPool(size, (2, 1), (1, 1), pads), x)
    return c.g.add1(AveragePool(size, (1, 2), (1, 1), pads, False, "NCHW", c.r.random() < 0.5), x)


def norm(c: Chaos, x: Value) -> Value | None:
    channels = x.shape[1] if x.type.rank > 2 else None
    if not isinstance(channels, int) or c.count(x) == 0:
        return None
    vectors = [c.dyadic(channels) for _ in range(3)]
    if c.r.random() < 0.5:
        var = c.g.constant(np.full(channels, 4.0, np.float32))
        return c.g.add1(BatchNorm(0.0), x, *vectors, var)
    return c.g.add1(InstanceNorm(1.0), x, *vectors[:2])


def layer_norm(c: Chaos, x: Value) -> Value | None:
    last = x.shape[-1] if x.shape else None
    if not isinstance(last, int):
        return None
    return c.g.add1(LayerNorm(x.type.rank - 1, 1.0), x, c.dyadic(last), c.dyadic(last))


def spelled_norm(c: Chaos, x: Value) -> Value | None:
    if x.type.rank == 0:
        return None
    axes = (x.type.rank - 1,)
    d = c.g.add1(Binary("sub"), x, c.g.add1(Reduce("mean", axes, True), x))
    square = c.g.add1(Binary("mul"), d, d)
    variance = c.g.add1(Reduce("mean", axes, True), square)
    shifted = c.g.add1(Binary("add"), variance, c.g.constant(np.float32(1.0)))
    return c.g.add1(Binary("div"), d, c.g.add1(Unary("sqrt"), shifted))


def transpose(c: Chaos, x: Value) -> Value:
    return c.g.add1(Transpose(tuple(c.r.sample(range(x.type.rank), x.type.rank))), x)


def merge_axes(c: Chaos, x: Value) -> Value | None:
    if x.type.rank < 2:
        return None
    i = c.r.randrange(x.type.rank - 1)
    shape = (*x.shape[:i], x.shape[i] * x.shape[i + 1], *x.shape[i + 2 :])
    return c.g.add1(Reshape(shape), x)


def split_axis(c: Chaos, x: Value) -> Value | None:
    even = [i for i, d in enumerate(x.shape) if isinstance(d, int) and d % 2 == 0 and d]
    if not even or x.type.rank > 4:
        return None
    i = c.r.choice(even)
    pair = c.r.choice([(2, x.shape[i] // 2), (x.shape[i] // 2, 2)])
    return c.g.add1(Reshape((*x.shape[:i], *pair, *x.shape[i + 1 :])), x)


def unit_axis(c: Chaos, x: Value) -> Value | None:
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    if ones and c.r.random() < 0.6:
        i = c.r.choice(ones)
        return c.g.add1(Reshape(x.shape[:i] + x.shape[i + 1 :]), x)
    if x.type.rank > 4:
        return None
    i = c.r.randint(0, x.type.rank)
    return c.g.add1(Reshape((*x.shape[:i], 1, *x.shape[i:])), x)


def move(c: Chaos, x: Value) -> Value | None:
    static = [i for i, d in enumerate(x.shape) if isinstance(d, int) and d > 0]
    if not static:
        return None
    i = c.r.choice(static)
    size, rank = int(x.shape[i]), x.type.rank
    kind = c.r.choice(["slice", "reverse", "pad", "tile", "gather", "split", "concat"])
    if kind in ("slice", "reverse"):
        starts, sizes, steps = [0] * rank, list(x.shape), [1] * rank
        start = c.r.randrange(size)
        starts[i], sizes[i] = start, size - start
        if kind == "reverse":
            starts[i], sizes[i], steps[i] = start, start + 1, -1
        return c.g.add1(Slice(tuple(starts), tuple(sizes), tuple(steps)), x)
    if kind == "pad":
        begins, ends = [0] * rank, [0] * rank
        begins[i], ends[i] = c.r.choice([0, 1]), c.r.choice([0, 1])
        return c.g.add1(Pad("constant", tuple(begins), tuple(ends), c.r.choice([0.0, 1.0])), x)
    if kind == "tile":
        repeats = [1] * rank
        repeats[i] = 2
        return c.g.add1(Tile(tuple(repeats)), x)
    if kind == "gather":
        indices = np.array(c.r.choice([0, [0], [size - 1, 0]]), np.int64)
        return c.g.add1(Gather(i), x, c.g.constant(indices))
    if kind == "split" and size > 1:
        parts = c.g.add(Split(i, (1, size - 1)), x)
        c.values.append(parts[0])
        return parts[1]
    return c.g.add1(Concat(i), x, c.g.add1(Unary("neg"), x))


def reduce(c: Chaos, x: Value) -> Value | None:
    if x.type.rank < 2:
        return None
    axes = tuple(sorted(c.r.sample(range(x.type.rank), c.r.randint(1, 2))))
    return c.g.add1(Reduce(c.r.choice(["mean", "max", "sum"]), axes, c.r.random() < 0.5), x)


def softmax(c: Chaos, x: Value) -> Value | None:
    return c.g.add1(Softmax(c.r.randrange(x.type.rank)), x) if x.type.rank else None


def matmul(c: Chaos, x: Value) -> Value | None:
    if x.type.rank < 2 or not isinstance(x.shape[-1], int):
        return None
    return c.g.add1(MatMul(), x, c.dyadic(x.shape[-1], c.r.choice([2, 3, 4])))


def attention(c: Chaos, x: Value) -> Value | None:
    rank = x.type.rank
    if rank < 3 or not isinstance(x.shape[-1], int):
        return None
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    k = c.g.add1(Binary("mul"), x, c.g.constant(np.float32(0.5)))
    scores = c.g.add1(MatMul(), x, c.g.add1(Transpose(swapped), k))
    p = c.g.add1(Softmax(rank - 1), scores)
    return c.g.add1(MatMul(), p, x)


def expand(c: Chaos, x: Value) -> Value | None:
    pooled = c.g.add1(Reduce("mean", (x.type.rank - 1,), True), x) if x.type.rank else None
    return None if pooled is None else c.g.add1(Expand(x.shape), pooled)


def resize(c: Chaos, x: Value) -> Value | None:
    if x.type.rank != 4 or not all(isinstance(d, int) and d for d in x.shape[2:]):
        return None
    sizes = (*x.shape[:2], int(x.shape[2]) * 2, int(x.shape[3]) * 2)
    mode = c.r.choice(["nearest", "linear"])
    return c.g.add1(Resize(mode, sizes, (None, None, 2.0, 2.0)), x)


def prelu(c: Chaos, x: Value) -> Value | None:
    if x.type.rank != 4 or not isinstance(x.shape[1], int):
        return None
    return c.g.add1(PRelu(), x, c.dyadic(x.shape[1], 1, 1))


STEPS: list[Callable[[Chaos, Value], Value | None]] = [
    pointwise, with_constant, with_constant, with_value, gate, conv, conv, conv, conv_transpose,
    pool, norm, layer_norm, spelled_norm, transpose, transpose, merge_axes, split_axis, unit_axis,
    unit_axis, move, move, reduce, softmax, matmul, attention, expand, resize, prelu,
]  # fmt: skip


def check(seed: int) -> None:
    chaos = Chaos(seed)
    graph = chaos.build(chaos.r.randint(4, 16))
    level = 0 if seed % 8 == 7 else 3
    after = run_pipeline(graph, PassContext(BuildConfig(optimization_level=level)))
    (x,) = graph.inputs
    shape = [d if isinstance(d, int) else 3 for d in x.shape]
    feed = {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}
    with np.errstate(all="ignore"):
        want, got = (evaluate(g, feed, float64=True) for g in (graph, after))
    for name, w in want.items():
        assert got[name].shape == w.shape
        finite = np.isfinite(w)
        np.testing.assert_array_equal(np.isfinite(got[name]), finite)
        top = float(np.abs(w[finite]).max(initial=0.0))
        np.testing.assert_allclose(got[name][finite], w[finite], rtol=0, atol=1e-9 * max(top, 1.0))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_graph(seed: int) -> None:
    check(seed)
