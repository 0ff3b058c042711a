"""Regions of large graphs: how many kernels, how large, and how much work it is to find them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dtypes import F32
from braze.core.target import PREFERENCES
from braze.core.trace import Trace
from braze.expr.guards import topological
from braze.expr.loops import LoopKernel
from braze.fusion import inline, legality
from braze.fusion.growth import Growth
from braze.fusion.lower import Lowerer
from braze.fusion.partition import lower_nodes, partition
from braze.fusion.region import Partition
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import Expand, Reshape, Transpose
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.pointwise.activation import Relu, Sigmoid
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.elementwise import Binary, Unary
from tests.fusion.test_lower import check

SHAPE = (4, 4)


def start(*shape: int) -> tuple[GraphBuilder, Value]:
    g = GraphBuilder()
    return g, g.input("x", TensorType(F32, shape or SHAPE))


def split(graph: Graph) -> Partition:
    return partition(graph, lower_nodes(graph), Trace())


def kernels(graph: Graph) -> list[LoopKernel]:
    lowered = lower_nodes(graph)
    parts = partition(graph, lowered, Trace())
    lower = Lowerer(graph, lowered, parts)
    found = []
    for region in parts.regions:
        done = lower(region)
        assert done is not None and isinstance(done.kernel, LoopKernel)
        found.append(done.kernel)
    return found


def size(kernel: LoopKernel) -> int:
    """Distinct expression nodes of a kernel."""
    stores = [s for nest in kernel.nests for s in nest.stores]
    return len(topological([s.expr for s in stores]))


def mixed(g: GraphBuilder, v: Value, i: int) -> Value:
    """One step of a chain: every kind of pointwise op and of view in turn; the shape stays."""
    other = g.constant(np.full(SHAPE, 0.5, np.float32))
    steps: list[Any] = [
        lambda: g.add1(Binary("add"), v, other),
        lambda: g.add1(Relu(), v),
        lambda: g.add1(Transpose((1, 0)), v),
        lambda: g.add1(Binary("mul"), other, v),
        lambda: g.add1(Sigmoid(), v),
        lambda: g.add1(Reshape(SHAPE), g.add1(Reshape((2, 8)), v)),
        lambda: g.add1(Cast(F32), v),
        lambda: g.add1(Where(), g.add1(Compare("lt"), v, other), v, other),
        lambda: g.add1(
            Pad("constant", (0, 1), (0, 0), 0.25), g.add1(Slice((0, 0), (4, 3), (1, 1)), v)
        ),
        lambda: g.add1(Unary("neg"), v),
        lambda: g.add1(Slice((3, 0), SHAPE, (-1, 1)), v),
        lambda: g.add1(Reshape(SHAPE), g.add1(Expand((1, *SHAPE)), v)),
        lambda: g.add1(Binary("max"), v, other),
    ]
    return steps[i % len(steps)]()


def chain(count: int) -> tuple[GraphBuilder, Value]:
    g, v = start()
    for i in range(count):
        v = mixed(g, v, i)
    return g, v


def test_three_thousand_steps_of_every_kind() -> None:
    """Deeper than Python's stack: kernels stay within their room, and the values are right."""
    g, v = chain(3000)
    graph = g.finish([("y", v)])
    found = kernels(graph)
    # a reshape that ends the rows otherwise is bytes again: one in 13 steps
    assert 3000 / PREFERENCES.max_cost <= len(found) <= 3000 / 12
    # index arithmetic of views adds to what the room counts
    assert max(map(size, found)) <= 6 * PREFERENCES.max_cost
    g, v = chain(3000)
    check(g, [v], {"x": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)})


def test_one_kernel_may_be_deeper_than_the_stack() -> None:
    g, v = start()
    for _ in range(PREFERENCES.max_cost - 1):
        v = g.add1(Unary("neg"), v)
    graph = g.finish([("y", v)])
    assert len(kernels(graph)) == 1


def test_costs_do_not_add_up_across_memory() -> None:
    """500 activations make as many kernels as their cost fills, each of about the same size."""
    g, v = start(64)
    ops: list[Any] = [Sigmoid(), Relu(), Unary("neg"), Unary("abs")]
    for i in range(500):
        v = g.add1(ops[i % 4], v)
    sizes = [len(r.nodes) for r in split(g.finish([("y", v)])).regions]
    assert 5 <= len(sizes) <= 15, sizes
    assert min(sizes[1:]) >= 40, sizes


def test_a_kernel_reads_a_bounded_number_of_tensors() -> None:
    g, v = start(8)
    for i in range(300):
        v = g.add1(Binary("add"), v, g.input(f"x{i}", TensorType(F32, (8,))))
    found = kernels(g.finish([("y", v)]))
    assert max(len(k.inputs) for k in found) <= PREFERENCES.max_reads
    assert len(found) <= 300 / (PREFERENCES.max_reads - 2) + 1


def test_shared_values_count_once_however_many_ways_lead_to_them() -> None:
    """x + f(x) again and again: 2**n ways, n values, one kernel."""
    g, v = start(8)
    for _ in range(60):
        v = g.add1(Binary("add"), v, g.add1(Unary("neg"), v))
    found = kernels(g.finish([("y", v)]))
    assert len(found) == 1 and size(found[0]) < 150


def test_values_needed_at_many_places_fill_the_kernel() -> None:
    """Neighbours of neighbours: each step needs its operand at one more place than the last."""
    g, v = start(200)
    for _ in range(40):
        n = int(v.shape[0]) - 1  # type: ignore[arg-type]
        ends = [g.add1(Slice((at,), (n,), (1,)), v) for at in (0, 1)]
        v = g.add1(Binary("add"), *ends)
    found = kernels(g.finish([("y", v)]))
    assert len(found) > 1
    assert max(map(size, found)) <= 6 * PREFERENCES.max_cost


def visits(build: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often fusion expands a value, walks an expression or asks for room."""
    count = 0

    def counted(f: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            return f(*args, **kwargs)

        return call

    with monkeypatch.context() as m:
        m.setattr(inline.Inliner, "_expansion", counted(inline.Inliner._expansion))
        m.setattr(legality, "leaves", counted(legality.leaves))
        m.setattr(Growth, "join", counted(Growth.join))
        kernels(build())
    return count


def deep(count: int) -> Graph:
    g, v = chain(count)
    return g.finish([("y", v)])


def wide(count: int) -> Graph:
    g, x = start(count, 4)
    parts = [g.add1(Slice((i, 0), (1, 4), (1, 1)), x) for i in range(count)]
    return g.finish([("y", g.add1(Concat(0), *reversed(parts)))])


def summed(count: int) -> Graph:
    g, v = start(8)
    for i in range(count):
        v = g.add1(Binary("add"), v, g.input(f"x{i}", TensorType(F32, (8,))))
    return g.finish([("y", v)])


@pytest.mark.parametrize("build", [deep, summed])
def test_work_grows_with_the_graph(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (visits(lambda n=n: build(n), monkeypatch) for n in (200, 800))
    assert large <= 4.5 * small, (small, large)


def test_work_grows_with_the_pieces_of_a_concat(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (visits(lambda n=n: wide(n), monkeypatch) for n in (15, 60))
    assert large <= 4.5 * small, (small, large)
