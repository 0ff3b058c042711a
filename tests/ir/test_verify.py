"""verify refuses every broken invariant, naming the stage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F32, I64
from braze.core.errors import VerifyError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, Node, TensorType, Value
from braze.ir.verify import verify
from braze.ops.pointwise.elementwise import Binary, Unary


def chain() -> Graph:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (4,)))
    c = g.constant(np.ones(4, np.float32), "c")
    y = g.add1(Binary("add"), x, c)
    return g.finish([("z", g.add1(Unary("exp"), y))])


def test_a_good_graph_passes() -> None:
    verify(chain())


def test_order() -> None:
    g = chain()
    with pytest.raises(VerifyError, match=r"after shuffle: .*before it is made"):
        verify(replace(g, nodes=tuple(reversed(g.nodes))), stage="shuffle")


def test_dangling_operand_and_output() -> None:
    g = chain()
    with pytest.raises(VerifyError, match="before it is made"):
        verify(replace(g, nodes=g.nodes[1:]))
    with pytest.raises(VerifyError, match="nothing makes"):
        verify(replace(g, nodes=g.nodes[:1]))


def test_names_are_unique() -> None:
    g = chain()
    twin = Value("x", TensorType(F32, (4,)))
    nodes = (*g.nodes, Node(Unary("exp"), (g.inputs[0],), (twin,)))
    with pytest.raises(VerifyError, match="used by two values"):
        verify(replace(g, nodes=nodes))
    with pytest.raises(VerifyError, match="defined twice"):
        verify(replace(g, nodes=(*g.nodes, g.nodes[0])))
    with pytest.raises(VerifyError, match="same name"):
        verify(replace(g, outputs=g.outputs * 2))


def test_types_are_inferred_again() -> None:
    g = chain()
    last = g.nodes[1]
    wrong = Node(last.op, last.inputs, (Value("w", TensorType(F32, (5,))),))
    broken = replace(g, nodes=(g.nodes[0], wrong), outputs=(("z", wrong.output),))
    with pytest.raises(VerifyError, match="infers"):
        verify(broken)
    verify(broken, before=broken)  # nodes of a verified graph are not inferred again


def test_an_op_that_rejects_its_inputs_is_reported() -> None:
    g = chain()
    i = Value("i", TensorType(I64, (4,)))
    node = Node(Unary("exp"), (i,), (Value("w", TensorType(I64, (4,))),))
    with pytest.raises(VerifyError, match="does not accept"):
        verify(replace(g, inputs=(*g.inputs, i), nodes=(*g.nodes, node)))


def test_constants_are_stored_as_their_type_says() -> None:
    g = chain()
    (c,) = g.constants
    with pytest.raises(VerifyError, match="no stored content"):
        verify(replace(g, constants={c: "missing"}))
    other = g.weights.add(np.ones(5, np.float32))
    with pytest.raises(VerifyError, match="is stored as"):
        verify(replace(g, constants={c: other}))


def test_assumed_sizes_need_a_guard() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(F32, (sym("n"),)))
    y = b.input("y", TensorType(F32, (sym("m"),)))
    g = b.finish([("z", b.add1(Binary("add"), x, y))])
    assert len(g.guards) == 1
    verify(g)
    with pytest.raises(VerifyError, match="without a guard"):
        verify(replace(g, guards=()))
