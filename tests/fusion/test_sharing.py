"""Kernels that differ in constant places alone become one, and still compute their own values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from braze.codegen.reference import run_kernel
from braze.core.dims import evaluate as size
from braze.core.dims import sym
from braze.core.dtypes import F32, I64
from braze.core.trace import Trace
from braze.fusion.kernel import Kernel
from braze.fusion.lower import LoweredRegion, lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.fusion.sharing import MIN_KERNELS
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ops.evaluator import evaluate
from braze.ops.index.gather import Gather
from braze.ops.move.shape import Reshape
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.pointwise.activation import Sigmoid
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.product.matmul import MatMul

STEPS = MIN_KERNELS + 2


def lowered(graph: Graph) -> tuple[LoweredRegion, ...]:
    low = lower_nodes(graph)
    return lower_all(graph, low, partition(graph, low, Trace()))


def distinct(graph: Graph) -> set[Kernel]:
    return {low.kernel for low in lowered(graph)}


def check(graph: Graph, feeds: dict[str, Any]) -> None:
    """Kernel by kernel in numpy, each with its own places, against op by op."""
    low = lower_nodes(graph)
    parts = partition(graph, low, Trace())
    env = {
        str(d): n
        for v in graph.inputs
        for d, n in zip(v.shape, feeds[v.name].shape, strict=True)
        if not isinstance(d, int)
    }
    memory: dict[Value, Any] = {v: feeds[v.name] for v in graph.inputs}
    memory |= {v: graph.constant(v) for v in graph.constants}

    def read(v: Value, shape: Sequence[Any]) -> Any:
        return memory[parts.base(v)].reshape([size(d, env) for d in shape])

    for done in lower_all(graph, low, parts):
        arrays = [read(v, s.shape) for v, s in zip(done.inputs, done.kernel.inputs, strict=True)]
        outs = run_kernel(done.kernel, arrays, {**env, **done.places})
        memory.update(zip(done.region.outputs, outs, strict=True))
    for name, want in evaluate(graph, feeds).items():
        got = read(dict(graph.outputs)[name], want.shape)
        # the same operations in float32; only sums of products may be ordered differently
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def step(g: GraphBuilder, x: Value, axis: int, at: int) -> Value:
    """x[:, at, :] or the like."""
    starts, sizes = [0] * 3, list(x.shape)
    starts[axis], sizes[axis] = at, 1
    kept = [d for i, d in enumerate(x.shape) if i != axis]
    return g.add1(Reshape(tuple(kept)), g.add1(Slice(tuple(starts), tuple(sizes), (1, 1, 1)), x))


def rand(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1])
def test_an_unrolled_recurrence_has_one_kernel(axis: int) -> None:
    g = GraphBuilder()
    shape = (STEPS, 2, 4) if axis == 0 else (2, STEPS, 4)
    x, h = g.input("x", TensorType(F32, shape)), g.input("h", TensorType(F32, (2, 4)))
    w = g.constant(rand(4, 4))
    for t in range(STEPS):
        h = g.add1(Binary("add"), g.add1(MatMul(), h, w), step(g, x, axis, t))
        h = g.add1(Unary("tanh"), h)
    graph = g.finish([("y", h)])
    assert len(distinct(graph)) == 1
    assert [low.places for low in lowered(graph)] == [{"place0": t} for t in range(STEPS)]
    check(graph, {"x": rand(*shape), "h": rand(2, 4)})


def test_places_that_move_together_are_one_size() -> None:
    """x[t] and x[t + 1] move together, y[-t] the other way; z[3] stays."""
    g = GraphBuilder()
    x, y, z = (g.input(n, TensorType(F32, (STEPS + 1, 2, 4))) for n in "xyz")
    total = g.input("h", TensorType(F32, (2, 4)))
    outputs = []
    for t in range(STEPS):
        a = g.add1(Binary("mul"), step(g, x, 0, t), step(g, x, 0, t + 1))
        b = g.add1(Binary("mul"), step(g, y, 0, STEPS - t), step(g, z, 0, 3))
        total = g.add1(Sigmoid(), g.add1(Binary("add"), g.add1(Binary("add"), a, b), total))
        outputs.append((f"y{t}", total))
    graph = g.finish(outputs)
    assert len(distinct(graph)) == 1
    assert [low.places for low in lowered(graph)] == [
        {"place0": t, "place1": STEPS - t} for t in range(STEPS)
    ]
    check(graph, {**{n: rand(STEPS + 1, 2, 4) for n in "xyz"}, "h": rand(2, 4)})


def test_windows_of_dynamic_tensors() -> None:
    """A size of the model may have the name that places would take."""
    g = GraphBuilder()
    n = sym("place0")
    x = g.input("x", TensorType(F32, (2 * STEPS, n)))
    outputs = []
    for t in range(STEPS):
        y = g.add1(Unary("exp"), g.add1(Slice((t, 0), (3, n), (2, 1)), x))
        outputs.append((f"y{t}", y))
    graph = g.finish(outputs)
    assert len(distinct(graph)) == 1
    assert lowered(graph)[1].places == {"_place0": 1}
    check(graph, {"x": rand(2 * STEPS, 5)})


def test_few_kernels_keep_their_constants() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (STEPS, 2, 4)))
    outputs = [(f"y{t}", g.add1(Unary("exp"), step(g, x, 0, t))) for t in range(MIN_KERNELS - 1)]
    graph = g.finish(outputs)
    assert len(distinct(graph)) == MIN_KERNELS - 1
    assert not any(low.places for low in lowered(graph))


def test_other_constants_are_not_places() -> None:
    """Factors, paddings and what is computed at a data-dependent index stay as they are."""
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (STEPS + 4, 4)))
    ids = g.input("i", TensorType(I64, (3,)))
    outputs = []
    for t in range(STEPS):
        factor = g.constant(np.float32(t + 2))
        outputs.append((f"a{t}", g.add1(Binary("mul"), x, factor)))
        padded = g.add1(Pad("constant", (t, 0), (STEPS - t, 0), 1.0), x)
        outputs.append((f"b{t}", g.add1(Unary("exp"), padded)))
        rows = g.add1(Slice((t, 0), (4, 4), (1, 1)), x)
        outputs.append((f"c{t}", g.add1(Unary("neg"), g.add1(Gather(0), rows, ids))))
    graph = g.finish(outputs)
    # what Gather reads is a copy of its rows: of those one kernel, and one of the Gathers
    assert len(distinct(graph)) == 2 * STEPS + 2
    check(graph, {"x": rand(STEPS + 4, 4), "i": np.array([3, 0, 1])})
