"""Anchors that a backend refuses become loop nests or subgraphs, with the reason on record."""

from __future__ import annotations

import numpy as np
import pytest

from braze.codegen.catalog import find_backend
from braze.core.dtypes import BF16, F16, F32, F64, I32, DType
from braze.core.errors import CompileError
from braze.core.trace import Trace
from braze.fusion.partition import lower_nodes
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType
from braze.ops.abilities import UNLIMITED
from braze.ops.index.topk import Select
from braze.ops.lowering import Anchor, Lowering, Nest
from braze.ops.product.attention import FusedAttention
from braze.ops.product.conv import Conv
from braze.ops.product.matmul import MatMul
from braze.passes.base import PassContext
from braze.passes.decompose import decompose
from tests.fusion.abilities import NO_TEMPLATES, NoTemplates

CPU = find_backend("cpu:avx2", 1)


def product(dtype: DType = F32, k: int = 4) -> Graph:
    g = GraphBuilder()
    x, y = g.input("x", TensorType(dtype, (3, k))), g.input("y", TensorType(dtype, (k, 5)))
    return g.finish([("z", g.add1(MatMul(), x, y))])


def convolution(axes: int = 2, constant: bool = True, dtype: DType = F32) -> Graph:
    g = GraphBuilder()
    x = g.input("x", TensorType(dtype, (1, *(6,) * axes, 3)))
    kernel = np.ones((2, 3, *(3,) * axes), np.float32)
    w = g.constant(kernel) if constant else g.input("w", TensorType(dtype, kernel.shape))
    ones = (1,) * axes
    return g.finish([("y", g.add1(Conv(ones, ones, (0,) * 2 * axes, layout="NHWC"), x, w))])


def attention(dtype: DType = F32) -> Graph:
    g = GraphBuilder()
    q, k, v = (g.input(n, TensorType(dtype, (1, 2, 3, 4))) for n in "qkv")
    return g.finish([("y", g.add1(FusedAttention(0.5), q, k, v))])


def lowering(graph: Graph, trace: Trace | None = None) -> Lowering:
    (low,) = lower_nodes(graph, CPU, trace).values()
    return low


@pytest.mark.parametrize(
    "graph", [product(), product(F64), convolution(1), convolution(2), convolution(3), attention()]
)
def test_what_has_a_template_stays(graph: Graph) -> None:
    trace = Trace()
    assert isinstance(lowering(graph, trace), Anchor)
    assert trace.decisions == []
    assert decompose(graph, PassContext(backend=CPU)) is graph


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (product(I32), "no product of int32"),
        (product(k=0), "no terms"),
        (convolution(constant=False), "weight is not constant"),
    ],
)
def test_what_has_none_becomes_a_loop_nest_with_the_reason(graph: Graph, why: str) -> None:
    trace = Trace()
    assert isinstance(lowering(graph, trace), Nest)
    (decision,) = trace.decisions
    assert decision["kind"] == "fallback" and why in decision["reason"]


@pytest.mark.parametrize("graph", [product(I32), product(BF16), convolution(3), attention(F16)])
def test_ops_ask_no_backend(graph: Graph) -> None:
    """Every anchor is there for the backend to see, whatever any template can do."""
    (low,) = lower_nodes(graph, UNLIMITED).values()
    assert isinstance(low, Anchor)


def test_attention_without_a_template_is_expanded_with_the_reason() -> None:
    trace = Trace()
    graph = decompose(attention(), PassContext(backend=NO_TEMPLATES, trace=trace))
    assert "FusedAttention" not in {n.op.name for n in graph.nodes}
    assert trace.decisions[0]["kind"] == "fallback"
    assert trace.decisions[0]["reason"] == "there are no templates"


def test_an_anchor_without_any_other_form_is_one_clear_error() -> None:
    g = GraphBuilder()
    graph = g.finish([("i", g.add1(Select(1, 2, True), g.input("x", TensorType(F32, (3, 5)))))])
    with pytest.raises(CompileError, match=r"Select.*there are no templates; use another target"):
        lower_nodes(graph, NoTemplates(selects=False))
