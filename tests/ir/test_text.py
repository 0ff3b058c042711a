"""Text form: parse(print(graph)) prints the same and means the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braze.core.dims import dmax, sym
from braze.core.dtypes import BF16, F16, F32
from braze.core.errors import ModelError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType
from braze.ir.text import parse_attribute, parse_graph, print_attribute, print_graph
from braze.ir.verify import verify
from braze.ir.weights import WeightStore
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.elementwise import Binary, Unary

OPS = {c.__name__: c for c in (Cast, Binary, Unary, Reshape, Transpose)}


def net() -> Graph:
    n = sym("n")
    g = GraphBuilder(bounds={"n": (1, 8)}, name='a "net"')
    x = g.input("x.1/in put", TensorType(F32, (n, 3, 2)))
    z = g.input("z", TensorType(F32, (sym("m"), 1)))
    g.origins = ('Mul "0"', "Mul, (1)")
    y = g.add1(Binary("mul"), x, g.constant(np.float32([[1.5, -0.0]]), "scale"))
    g.origins = ()
    r = g.add1(Reshape((dmax(n * 6, n * 6), 1)), y, name="r")
    s = g.add1(Binary("add"), r, z)
    h = g.add1(Cast(F16), g.add1(Transpose((1, 0)), s))
    big = g.constant(np.arange(40, dtype=np.float32).reshape(40, 1), "big")
    half = g.constant(np.uint16([1, 2]).view(BF16.numpy), "half")
    return g.finish([("out", h), ('y"', y), ("big", big), ("half", half), ("in", x)])


def test_round_trip() -> None:
    graph = net()
    text = print_graph(graph)
    again = parse_graph(text, OPS, graph.weights)
    assert print_graph(again) == text
    verify(again)
    assert [n.op for n in again.nodes] == [n.op for n in graph.nodes]
    assert again.nodes[0].origins == graph.nodes[0].origins
    assert again.guards == graph.guards and again.bounds == graph.bounds
    assert again.name == graph.name


def test_small_constants_need_no_store() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (4,)))
    c = g.constant(np.float32([-0.0, np.nan, np.inf, 1e-45]), "c")
    text = print_graph(g.finish([("y", g.add1(Binary("add"), x, c))]))
    again = parse_graph(text, OPS, WeightStore())
    (value,) = again.constants
    got = again.constant(value)
    np.testing.assert_array_equal(got, np.float32([-0.0, np.nan, np.inf, 1e-45]))
    assert math.copysign(1, got[0]) == -1
    verify(again)


@pytest.mark.parametrize(
    "text",
    [
        "%y: float32[2] = Nothing(%x)",
        '%y: float32[2] = Unary<op="exp">(%missing)',
        '%y: float33[2] = Unary<op="exp">()',
        "%y float32[2]",
        '%y: float32[2] = Unary<op=open("x")>()',
        'output "y" = %nothing',
    ],
)
def test_malformed_text_names_its_line(text: str) -> None:
    with pytest.raises(ModelError, match="line 2"):
        parse_graph('graph "g" {\n' + text + "\n}", OPS, WeightStore())


ATTRIBUTES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.sampled_from([F32, BF16, sym("n"), sym("n") * 2 - 3, sym("a") // 4]),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)  # fmt: skip


@given(ATTRIBUTES)
def test_attributes_round_trip(value: object) -> None:
    again = parse_attribute(print_attribute(value))
    assert again == value and repr(again) == repr(value)


def test_attributes_without_text_are_refused() -> None:
    with pytest.raises(ModelError, match="no text form"):
        print_attribute(np.zeros(3))
