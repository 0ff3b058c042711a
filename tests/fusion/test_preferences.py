"""What pays is the backend's to say: passes and fusion follow it, and no answer changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from braze.core.dtypes import F32
from braze.core.target import PREFERENCES, Preferences
from braze.core.trace import Trace
from braze.fusion.partition import lower_nodes, partition
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType
from braze.ops.abilities import Unlimited
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.product.conv import Conv
from braze.passes.base import PassContext
from braze.passes.shapes.channels_last import channels_last


def kernels(graph: Graph, costs: Preferences) -> int:
    return len(partition(graph, lower_nodes(graph), Trace(), backend=Unlimited(costs)).regions)


def test_a_kernel_grows_as_far_as_the_backend_bears() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (64, 64)))
    for _ in range(30):
        x = g.add1(Binary("add"), x, g.constant(np.ones((64,), np.float32)))
    graph = g.finish([("y", x)])
    assert kernels(graph, PREFERENCES) == 1
    assert kernels(graph, replace(PREFERENCES, max_cost=10)) == 3


def test_cheap_means_what_the_backend_says() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (8,)))
    y = g.add1(Unary("exp"), x)
    a, b = g.add1(Unary("neg"), y), g.add1(Unary("abs"), y)
    graph = g.finish([("a", a), ("b", b)])
    assert kernels(graph, PREFERENCES) == 3  # exp is not computed twice
    assert kernels(graph, replace(PREFERENCES, cheap_cost=30)) == 2
    assert kernels(graph, replace(PREFERENCES, cheap_cost=30, small_elements=4)) == 3


def test_convolutions_keep_their_layout_where_nothing_reads_channels_last() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (1, 3, 8, 8)))
    w = g.constant(np.ones((4, 3, 3, 3), np.float32))
    graph = g.finish([("y", g.add1(Conv((1, 1), (1, 1), (0, 0, 0, 0)), x, w))])
    volumes_only = replace(PREFERENCES, channels_last=frozenset({3}))
    assert channels_last(graph, PassContext(backend=Unlimited(volumes_only))) is graph
    assert channels_last(graph, PassContext()) is not graph
