"""Patterns: operand orders, shared leaves, alternatives, and why a match is refused."""

from __future__ import annotations

import numpy as np

from braze.core.dtypes import F32
from braze.ir.builder import GraphBuilder
from braze.ir.editor import GraphEditor
from braze.ir.graph import Graph, TensorType
from braze.ir.pattern import Const, Match, MatchFailure, Var, call, match, one_of
from braze.ops.pointwise.elementwise import Binary, Unary

X = Var("x")


def is_mul(op: Binary) -> bool:
    return op.op == "mul"


# x * exp(neg x), in any order
PATTERN = call(Binary, X, call(Unary, call(Unary, X), name="outer"), where=is_mul, commutative=True)


def net(swap: bool = False, other: bool = False, kind: str = "mul") -> GraphBuilder:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (4,)))
    z = g.input("z", TensorType(F32, (4,)))
    e = g.add1(Unary("exp"), g.add1(Unary("neg"), x, name="n"), name="e")
    pair = (e, z if other else x)
    g.add1(Binary(kind), *(reversed(pair) if swap else pair), name="y")
    return g


def run(graph: Graph, pattern=PATTERN) -> Match | MatchFailure:
    editor = GraphEditor(graph)
    return match(pattern, graph.nodes[-1], editor)


def finish(g: GraphBuilder, *extra: int) -> Graph:
    outputs = [("y", g.nodes[-1].output)] + [(f"o{i}", g.nodes[i].output) for i in extra]
    return g.finish(outputs)


def test_matches_in_both_orders() -> None:
    for swap in (False, True):
        g = net(swap)
        found = run(finish(g))
        assert isinstance(found, Match)
        assert found["x"] is g.inputs[0]
        assert set(found.nodes) == set(g.nodes) and found.nodes[-1] is g.nodes[-1]
        assert found.calls["outer"].op == Unary("exp")


def test_a_shared_leaf_must_be_one_value() -> None:
    found = run(finish(net(other=True)))
    assert isinstance(found, MatchFailure) and found.structural


def test_where_rejects() -> None:
    assert isinstance(run(finish(net(kind="add"))), MatchFailure)


def test_inner_value_that_is_an_output_is_refused() -> None:
    found = run(finish(net(), 1))
    assert isinstance(found, MatchFailure) and not found.structural
    assert "graph output" in found.reason and found.node is not None


def test_inner_value_with_another_user_is_refused() -> None:
    g = net()
    y = g.nodes[-1].output
    g.add1(Unary("abs"), g.nodes[0].output)
    graph = g.finish([("y", y), ("a", g.nodes[-1].output)])
    found = match(PATTERN, graph.nodes[2], GraphEditor(graph))
    assert isinstance(found, MatchFailure) and "another user" in found.reason


def test_constants_bind_by_content() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, ()))
    half = g.constant(np.float32(0.5))
    same = g.constant(np.float32(0.5))
    g.add1(Binary("mul"), g.add1(Binary("add"), x, half), same)
    c = Const("c", lambda a: bool((a == 0.5).all()))
    pattern = call(Binary, call(Binary, X, c), c)
    assert isinstance(run(finish(g), pattern), Match)
    other = call(Binary, call(Binary, X, c), Const("c", lambda a: bool((a == 1).all())))
    assert isinstance(run(finish(g), other), MatchFailure)


def test_alternatives_backtrack() -> None:
    # the first alternative binds x to the exp result, which the second operand contradicts
    g = net(swap=True)
    pattern = call(Binary, X, one_of(call(Unary, X), call(Unary, call(Unary, X))))
    assert isinstance(run(finish(g), pattern), Match)
    rooted = one_of(call(Unary, X), PATTERN)
    assert isinstance(run(finish(g), rooted), Match)
