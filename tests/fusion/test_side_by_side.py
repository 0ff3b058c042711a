"""Small kernels that do not read each other become one, and all values stay what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.codegen.reference import run_kernel
from braze.core.dims import sym
from braze.core.dtypes import F32, I64
from braze.core.trace import Trace
from braze.expr.loops import LoopKernel
from braze.fusion import side_by_side as module
from braze.fusion.lower import LoweredRegion, lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.fusion.region import Partition
from braze.fusion.side_by_side import side_by_side
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ops.evaluator import evaluate
from braze.ops.move.concat_split import Concat
from braze.ops.move.slice_pad import Slice
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.product.matmul import MatMul

X = np.random.default_rng(0).standard_normal((1, 8)).astype(np.float32)


def kernels(graph: Graph) -> tuple[tuple[LoweredRegion, ...], Partition]:
    low = lower_nodes(graph)
    parts = partition(graph, low, Trace())
    return lower_all(graph, low, parts), parts


def check(graph: Graph, feeds: dict[str, Any]) -> list[list[str]]:
    """The joined kernels in numpy against op by op; what each of them writes."""
    before, parts = kernels(graph)
    done = side_by_side(before, parts)
    memory: dict[Value, Any] = {v: feeds[v.name] for v in graph.inputs}
    memory |= {v: graph.constant(v) for v in graph.constants}
    for low in done:
        arrays = [
            memory[parts.base(v)].reshape(s.shape)
            for v, s in zip(low.inputs, low.kernel.inputs, strict=True)
        ]
        outs = run_kernel(low.kernel, arrays, {})
        memory.update(zip(low.region.outputs, outs, strict=True))
    for name, want in evaluate(graph, feeds).items():
        got = memory[parts.base(dict(graph.outputs)[name])].reshape(want.shape)
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)
    nodes = [n for low in before for n in low.region.nodes]
    assert sorted(map(id, nodes)) == sorted(id(n) for low in done for n in low.region.nodes)
    return [[v.name for v in low.region.outputs] for low in done]


def chains(rows: Any = 1) -> Graph:
    """Two chains from one product: a slice, its halves turned, and another product."""
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (rows, 8)))
    y = g.add1(MatMul(), x, g.constant(np.ones((8, 24), np.float32) * X.T))
    outputs = []
    for i in range(2):
        part = g.add1(Slice((0, 12 * i), (rows, 12), (1, 1)), y)
        low, high = (g.add1(Slice((0, 6 * k), (rows, 6), (1, 1)), part) for k in range(2))
        turned = g.add1(Concat(1), g.add1(Unary("neg"), high), low)
        last = g.add1(MatMul(), turned, g.constant(np.full((12, 4), i + 1.0, np.float32)))
        outputs += [(f"part{i}", part), (f"y{i}", last)]
    return g.finish(outputs)


def test_steps_of_two_chains_share_their_kernels() -> None:
    graph = chains()
    before, _ = kernels(graph)
    done = check(graph, {"x": X})
    assert [len(names) for names in done] == [1, 2, 2, 1, 1]
    assert len(before) == 7


def test_a_joint_kernel_has_the_nests_and_slots_of_both() -> None:
    before, parts = kernels(chains())
    joint = side_by_side(before, parts)[2]
    assert isinstance(joint.kernel, LoopKernel) and joint.region.producer is None
    assert len(joint.kernel.nests) == 4 and len(joint.kernel.outputs) == 2
    assert len(joint.inputs) == len(joint.kernel.inputs)
    assert {s.slot for n in joint.kernel.nests for s in n.stores} == {0, 1}
    assert joint.region.reason == "small kernels side by side"


@pytest.mark.parametrize(("limit", "value"), [("LARGEST", 23), ("MOST_NESTS", 1), ("WINDOW", 1)])
def test_limits(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, limit, value)
    graph = chains()
    done = check(graph, {"x": X})
    joint = [names for names in done if len(names) > 1]
    assert len(joint) < 2


def test_sizes_that_depend_on_inputs_keep_their_kernels() -> None:
    before, parts = kernels(chains(sym("n")))
    assert side_by_side(before, parts) == before


def test_a_chain_stays_a_chain() -> None:
    g = GraphBuilder()
    y = g.input("x", TensorType(F32, (1, 8)))
    outputs = []
    for i in range(4):
        y = g.add1(Concat(1), g.add1(Slice((0, 4), (1, 4), (1, 1)), y),
                   g.add1(Slice((0, 0), (1, 4), (1, 1)), y))  # fmt: skip
        outputs.append((f"y{i}", y))
    graph = g.finish(outputs)
    assert [len(names) for names in check(graph, {"x": X})] == [1, 1, 1, 1]


def test_what_uses_a_size_of_the_run_stays_behind_it() -> None:
    """It reads nothing of the kernel that computes the size, and would be beside it."""
    g = GraphBuilder()
    x, k = g.input("x", TensorType(F32, (12,))), g.input("k", TensorType(I64, (1,)))
    count = g.add1(Binary("add"), k, g.constant(np.array([1])))
    m = g.read_size(count, 0, 1, 12, "m")
    last = g.add1(Unary("neg"), g.add1(Slice((m - 1,), (1,), (1,)), x))
    other = g.add1(Unary("exp"), x)
    graph = g.finish([("count", count), ("last", last), ("other", other)])
    before, parts = kernels(graph)
    assert len(before) == 3 and len(side_by_side(before, parts)) == 1
    joined = side_by_side(before, parts, graph.sizes)
    assert [set(low.region.outputs) for low in joined] == [{count, other}, {last}]
