"""What is made of one tensor is done by the kernel that makes it, and all values stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from braze.codegen.reference import run_kernel
from braze.core.dims import sym
from braze.core.dtypes import F8E4M3FN, F32, I64
from braze.core.trace import Trace
from braze.fusion.finishing import MOST_OUTPUTS, finished
from braze.fusion.lower import LoweredRegion, lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.fusion.region import Partition
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ops.evaluator import evaluate
from braze.ops.move.shape import Transpose, reshape
from braze.ops.norm.normalization import LayerNorm
from braze.ops.pointwise.cast import CastToFloat8
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.product.attention import FusedAttention
from braze.ops.product.matmul import MatMul

N = sym("n")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 16)).astype(np.float32)
WEIGHT = RNG.standard_normal((16, 16)).astype(np.float32)


def kernels(graph: Graph) -> tuple[tuple[LoweredRegion, ...], Partition]:
    low = lower_nodes(graph)
    parts = partition(graph, low, Trace())
    return lower_all(graph, low, parts), parts


def check(graph: Graph, feeds: dict[str, Any], env: dict[str, int]) -> list[list[str]]:
    """The kernels in numpy against op by op; the types that each of them writes."""
    before, parts = kernels(graph)
    done = finished(before, parts, graph.kept_values)
    memory: dict[Value, Any] = {v: feeds[v.name] for v in graph.inputs}
    memory |= {v: graph.constant(v) for v in graph.constants}
    for low in done:
        arrays = [
            memory[parts.base(v)].reshape([env.get(str(d), d) for d in s.shape])
            for v, s in zip(low.inputs, low.kernel.inputs, strict=True)
        ]
        outs = run_kernel(low.kernel, arrays, env)
        memory.update(zip(low.region.outputs, outs, strict=True))
    for name, want in evaluate(graph, feeds).items():
        got = memory[parts.base(dict(graph.outputs)[name])].reshape(want.shape)
        np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), 1e-5, 1e-5)
    nodes = [n for low in before for n in low.region.nodes]
    assert sorted(map(id, nodes)) == sorted(id(n) for low in done for n in low.region.nodes)
    return [[v.dtype.name for v in low.region.outputs] for low in done]


def codes(g: GraphBuilder, x: Value, scale: float = 0.01) -> Value:
    """The codes of `x` by a scale, a kernel of its own where `x` has other uses."""
    return g.add1(CastToFloat8(F8E4M3FN), g.add1(Binary("div"), x, constant_like(g, scale, F32)))


def normed(more: Callable[[GraphBuilder, Value], list[tuple[str, Value]]], rows: Any = 2) -> Graph:
    """A norm, what is made of it, and a product that reads it too."""
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (rows, 3, 16)))
    y = g.add1(LayerNorm(2, 1e-5), x, None, None)
    last = g.add1(MatMul(), y, g.constant(WEIGHT))
    return g.finish([*more(g, y), ("product", last)])


@pytest.mark.parametrize("rows", [2, N])
def test_a_norm_stores_codes_beside_its_result(rows: Any) -> None:
    graph = normed(lambda g, y: [("q", codes(g, y))], rows)
    written = check(graph, {"x": X}, {"n": 2})
    assert written == [["float32", "float8_e4m3fn"], ["float32"]]


def test_codes_of_another_shape() -> None:
    graph = normed(lambda g, y: [("q", codes(g, reshape(g, y, (6, 16))))])
    assert check(graph, {"x": X}, {})[0] == ["float32", "float8_e4m3fn"]


def test_a_pointwise_kernel_does_too_and_outputs_end() -> None:
    def more(g: GraphBuilder, y: Value) -> list[tuple[str, Value]]:
        total = g.add1(Binary("add"), y, g.constant(X[:1]))
        names = [(f"q{i}", codes(g, total, 0.01 * (i + 1))) for i in range(MOST_OUTPUTS)]
        return [*names, ("total", total)]

    written = check(normed(more), {"x": X}, {})
    assert max(map(len, written)) == MOST_OUTPUTS and sum(map(len, written)) == MOST_OUTPUTS + 3


def not_of_one_tensor(g: GraphBuilder, y: Value) -> list[tuple[str, Value]]:
    return [("z", g.add1(Binary("mul"), g.add1(Unary("exp"), y), g.constant(X)))]


def elsewhere(g: GraphBuilder, y: Value) -> list[tuple[str, Value]]:
    return [("z", g.add1(Unary("exp"), g.add1(Transpose((1, 0, 2)), y)))]


@pytest.mark.parametrize("more", [not_of_one_tensor, elsewhere])
def test_near_misses(more: Callable[[GraphBuilder, Value], list[tuple[str, Value]]]) -> None:
    """What reads a second tensor, and what reads at other places."""
    graph = normed(more)
    before, _ = kernels(graph)
    assert len(check(graph, {"x": X}, {})) == len(before)


@pytest.mark.parametrize("also", [False, True])
def test_attention_gives_codes_where_nothing_else_reads_it(also: bool) -> None:
    g = GraphBuilder()
    qkv = [g.input(name, TensorType(F32, (2, 3, 4, 16))) for name in "qkv"]
    y = g.add1(FusedAttention(0.25, out_layout="BSHD"), *qkv, None)
    flat = reshape(g, y, (2, 4, 48))
    outputs = [("q", codes(g, flat)), *([("y", y)] if also else [])]
    feeds = {n: RNG.standard_normal((2, 3, 4, 16)).astype(np.float32) for n in "qkv"}
    graph = g.finish([(n if n != "q" else "codes", v) for n, v in outputs])
    written = check(graph, feeds, {})
    assert written == ([["float32"], ["float8_e4m3fn"]] if also else [["float8_e4m3fn"]])


@pytest.mark.parametrize("late", [False, True])
def test_a_view_of_a_size_that_comes_later_is_read_by_its_own_kernel(late: bool) -> None:
    g = GraphBuilder()
    x, count = g.input("x", TensorType(F32, (12,))), g.input("count", TensorType(I64, (1,)))
    rows = g.read_size(g.add1(Unary("neg"), count), 0, 0, 12, "m") if late else 4
    y = g.add1(Unary("exp"), x)
    z = g.add1(Unary("neg"), reshape(g, y, (rows, 3)))
    before, parts = kernels(g.finish([("y", y), ("z", z)]))
    done = finished(before, parts, frozenset({y, z}))
    assert any({y, z} <= set(low.region.outputs) for low in done) != late
