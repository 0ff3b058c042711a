"""A pool behind a convolution of bytes is taken of its sums, where results keep their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from braze.codegen.reference import run_kernel
from braze.core.dtypes import F32, I8, I32
from braze.core.trace import Trace
from braze.expr.scalar import Expr, binary, cast, const, hole, load, unary
from braze.fusion.kernel import AnchorKernel
from braze.fusion.lower import LoweredRegion, lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.fusion.pooling import pooled, rises
from braze.fusion.work import flops
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ops.abilities import UNLIMITED
from braze.ops.evaluator import evaluate
from braze.ops.lowering import PooledSpec
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.pool.pool import MaxPool, Pool
from braze.ops.quant.integer import IntegerConv
from braze.ops.quant.linear import Quantize, saturated
from tests.fusion.abilities import NO_TEMPLATES

RNG = np.random.default_rng(0)
X = RNG.integers(-128, 128, (2, 11, 14, 3)).astype(np.int8)
WEIGHT = RNG.integers(-128, 128, (8, 3, 3, 3)).astype(np.int8)
SCALE = RNG.uniform(1e-4, 1e-3, 8).astype(np.float32)
ONE = np.arange(8) == 3  # of the channels
BIAS = RNG.standard_normal(8).astype(np.float32)
LARGEST = MaxPool((3, 3), (2, 2), (1, 1), (1, 1, 1, 1), layout="NHWC")


def network(
    pool: Pool = LARGEST, scale: Any = SCALE, bias: Any = BIAS, also: bool = False,
    wave: bool = False,
) -> Graph:  # fmt: skip
    """A convolution whose results become codes, and a pool of these."""
    g = GraphBuilder()
    x = g.input("x", TensorType(I8, X.shape))
    conv = IntegerConv((1, 1), (1, 1), (1, 1, 1, 1), layout="NHWC")
    y = g.add1(Cast(F32), g.add1(conv, x, g.constant(WEIGHT), None, None))
    y = g.add1(Binary("mul"), y, g.constant(scale))
    y = g.add1(Binary("add"), y, g.constant(bias) if isinstance(bias, np.ndarray) else bias(g))
    y = g.add1(Unary("sin"), y) if wave else y
    y = g.add1(Quantize(I8, 8, F32), y, g.constant(np.float32(0.05)), None)
    done = g.add1(pool, y)
    return g.finish([("done", done), *([("y", y)] if also else [])])


def kernels(graph: Graph, abilities: Any = UNLIMITED) -> tuple[int, tuple[LoweredRegion, ...]]:
    """How many there are without, and those with it, which give what the graph does."""
    low = lower_nodes(graph)
    parts = partition(graph, low, Trace())
    before = lower_all(graph, low, parts)
    done = pooled(before, graph, parts, graph.kept_values, abilities)
    feeds = {v.name: X if v.dtype is I8 else RNG.standard_normal(v.shape).astype("f4")
             for v in graph.inputs}  # fmt: skip
    memory: dict[Value, Any] = {v: feeds[v.name] for v in graph.inputs}
    memory |= {v: graph.constant(v) for v in graph.constants}
    for k in done:
        outs = run_kernel(k.kernel, [memory[parts.base(v)] for v in k.inputs], {})
        memory.update(zip(k.region.outputs, outs, strict=True))
    for name, want in evaluate(graph, feeds).items():
        np.testing.assert_array_equal(memory[dict(graph.outputs)[name]], want)
    nodes = [n for k in before for n in k.region.nodes]
    assert sorted(map(id, nodes)) == sorted(id(n) for k in done for n in k.region.nodes)
    return len(before), done


@pytest.mark.parametrize(
    "pool",
    [
        LARGEST,
        MaxPool((2, 3), (1, 2), (1, 1), (0, 1, 1, 0), layout="NHWC"),
        MaxPool((3, 2), (3, 2), (1, 1), (1, 0, 0, 0), ceil_mode=True, layout="NHWC"),
        MaxPool((12, 3), (2, 2), (1, 1), (0, 1, 0, 1), layout="NHWC"),  # gives no rows
    ],
)
def test_it_joins(pool: Pool) -> None:
    count, done = kernels(network(pool))
    assert (count, len(done)) == (2, 1)
    (kernel,) = (k.kernel for k in done)
    assert isinstance(kernel, AnchorKernel) and isinstance(kernel.spec, PooledSpec)
    # the sums are all made
    assert flops(kernel, {}) == 2 * X[..., 0].size * WEIGHT.size


def another_tensor(g: GraphBuilder) -> Value:
    return g.input("r", TensorType(F32, (2, 11, 14, 8)))


NEAR: dict[str, Callable[[], Graph]] = {
    "with holes": lambda: network(MaxPool((3, 3), (2, 2), (2, 2), (1,) * 4, layout="NHWC")),
    "channels first": lambda: network(MaxPool((3, 3), (2, 2), (1, 1), (1,) * 4)),
    "of falling results": lambda: network(scale=-SCALE),
    "of some that fall": lambda: network(scale=np.where(ONE, -SCALE, SCALE)),
    "of no number": lambda: network(bias=np.where(ONE, np.float32("nan"), BIAS)),
    "that is not alone": lambda: network(also=True),
    "of a wave": lambda: network(wave=True),
    "of a second tensor": lambda: network(bias=another_tensor),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR)
def test_near_misses(name: str) -> None:
    count, done = kernels(NEAR[name]())
    assert count == len(done)


def test_the_backend_is_asked() -> None:
    count, done = kernels(network(), NO_TEMPLATES)
    assert count == len(done) == 2


def test_what_rises() -> None:
    x, y = cast(hole(0, I32), F32), load(1, (), F32)
    known = {y: np.float32(2.0)}

    def content(e: Expr) -> Any:
        return np.asarray(e.value) if e.op == "const" else known.get(e)

    one, zero = const(1.0, F32), const(0.0, F32)
    rising = [
        x, binary("mul", y, x), binary("mul", x, zero), binary("div", x, y), binary("max", x, one),
        binary("add", x, binary("mul", x, y)), unary("round", x),
        saturated(unary("round", x), I8, 8),
    ]  # fmt: skip
    assert all(rises(e, content) for e in rising)
    falling = [
        binary("sub", one, x), binary("mul", x, const(-1.0, F32)), binary("div", x, zero),
        binary("div", one, x), binary("mul", x, x), binary("add", x, const(float("inf"), F32)),
        binary("add", x, load(2, (), F32)), unary("sin", x), cast(x, I8),
    ]  # fmt: skip
    assert not any(rises(e, content) for e in falling)
