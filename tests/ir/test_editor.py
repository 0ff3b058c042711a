"""GraphEditor: replacing, redirecting and erasing keep a valid graph."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dtypes import F32
from braze.core.errors import VerifyError
from braze.ir.builder import GraphBuilder
from braze.ir.editor import GraphEditor
from braze.ir.graph import Graph, TensorType
from braze.ir.verify import verify
from braze.ops.pointwise.elementwise import Binary, Unary


def diamond() -> Graph:
    """y = exp(neg(x)) + neg(x)."""
    g = GraphBuilder(name="diamond")
    x = g.input("x", TensorType(F32, (4,)))
    g.origins = ("Neg_0",)
    n = g.add1(Unary("neg"), x, name="n")
    g.origins = ("Exp_0",)
    e = g.add1(Unary("exp"), n, name="e")
    g.origins = ("Add_0",)
    return g.finish([("y", g.add1(Binary("add"), e, n, name="y"))])


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def test_no_edit_returns_the_same_object() -> None:
    graph = diamond()
    editor = GraphEditor(graph)
    assert [n.op.name for n in editor.walk()] == ["Neg", "Exp", "Add"]
    assert editor.finish() is graph


def test_replace_redirects_every_user_and_keeps_origins() -> None:
    graph = diamond()
    editor = GraphEditor(graph)
    neg = graph.nodes[0]
    built = editor.rewriter([neg])
    minus_one = built.constant(np.float32([-1.0]), hint="n")
    new = built.add1(Binary("mul"), neg.inputs[0], minus_one, name="n")
    editor.commit(built, neg, {neg.output: new})
    after = editor.finish()
    verify(after)
    assert ops(after) == ["Mul", "Exp", "Add"]
    assert after.nodes[0].origins == ("Neg_0",)
    assert after.nodes[1].inputs == (new,) and after.nodes[2].inputs[1] is new
    assert ops(graph) == ["Neg", "Exp", "Add"]  # the old graph is untouched
    names = [v.name for v in (*after.constants, new)]
    assert len(set(names)) == 2 and "n" not in names


def test_replacing_an_output_keeps_its_public_name_and_erases_what_is_dead() -> None:
    graph = diamond()
    editor = GraphEditor(graph)
    add = graph.nodes[2]
    built = editor.rewriter(graph.nodes)
    new = built.add1(Unary("abs"), graph.inputs[0])
    editor.commit(built, add, {add.output: new})
    after = editor.finish()
    verify(after)
    assert ops(after) == ["Abs"]
    assert after.outputs == (("y", new),)
    assert after.nodes[0].origins == ("Neg_0", "Exp_0", "Add_0")


def test_erasing_stops_at_values_that_are_still_read() -> None:
    graph = diamond()
    editor = GraphEditor(graph)
    exp = graph.nodes[1]
    built = editor.rewriter([exp])
    editor.commit(built, exp, {exp.output: graph.nodes[0].output})
    after = editor.finish()
    verify(after)
    assert ops(after) == ["Neg", "Add"]
    assert after.nodes[1].inputs == (graph.nodes[0].output,) * 2


def test_replacement_of_another_type_is_refused() -> None:
    graph = diamond()
    editor = GraphEditor(graph)
    exp = graph.nodes[1]
    built = editor.rewriter([exp])
    wrong = built.constant(np.zeros(3, np.float32))
    with pytest.raises(VerifyError, match="another type"):
        editor.commit(built, exp, {exp.output: wrong})


def test_unused_constants_are_dropped_on_finish() -> None:
    graph = diamond()
    editor = GraphEditor(graph)
    built = editor.rewriter([])
    built.constant(np.zeros(3, np.float32))
    editor.set_inputs(graph.nodes[1], [graph.inputs[0]])
    assert not editor.finish().constants


def test_walk_sees_redirected_nodes_and_skips_erased_ones() -> None:
    graph = diamond()
    editor = GraphEditor(graph)
    seen = []
    for node in editor.walk():
        seen.append(node.op.name)
        if node.op.name == "Neg":
            built = editor.rewriter([node])
            editor.commit(built, node, {node.output: node.inputs[0]})
        if node.op.name == "Exp":
            assert node.inputs == (graph.inputs[0],)
    assert seen == ["Neg", "Exp", "Add"]


def test_ten_thousand_nodes_are_edited_in_linear_time() -> None:
    g = GraphBuilder()
    v = g.input("x", TensorType(F32, (1,)))
    for _ in range(10_000):
        v = g.add1(Unary("neg"), v)
    editor = GraphEditor(g.finish([("y", v)]))
    for node in editor.walk():
        built = editor.rewriter([node])
        editor.commit(built, node, {node.output: built.add1(Unary("abs"), node.inputs[0])})
    after = editor.finish()
    assert ops(after) == ["Abs"] * 10_000
    verify(after)
