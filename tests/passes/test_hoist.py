"""What does not change in a loop leaves it."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.errors import BrazeError
from braze.core.trace import Trace
from braze.frontend.onnx.importer import import_model
from braze.ir.graph import Graph, bodies_of
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.passes.base import PassContext
from braze.passes.hoist import hoist_invariant
from tests.flow.models import check, model

TEXT = """
m (int64 n, float[4, 8] x, float[4] y, int64 k) => (float[4] r) <float[8, 4] w = {W}> {
  yes = Constant <value = bool {1}> ()
  r = Loop (n, yes, y) <
    body = b (int64 i, bool go, float[4] a) => (bool next, float[4] o) {
      next = Identity(go)
      NODES
    }
  >
}""".replace("{W}", "{" + ", ".join(str(i % 5 / 4) for i in range(32)) + "}")
FEED = {
    "n": np.array(3), "k": np.array(2), "y": np.arange(4, dtype=np.float32),
    "x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8),
}  # fmt: skip


def hoisted(nodes: str) -> tuple[Graph, list[str]]:
    """The graph of TEXT with these nodes in the loop, and the ops in front of it after the pass."""
    graph = import_model(model(TEXT.replace("NODES", nodes)))
    moved = hoist_invariant(graph, PassContext(trace=Trace()))
    verify(moved, None, "hoist")
    before, after = (evaluate(g, FEED)["r"] for g in (graph, moved))
    np.testing.assert_array_equal(before, after)
    return moved, [n.op.name for n in moved.nodes if not bodies_of(n)]


@pytest.mark.parametrize(
    ("nodes", "moved"),
    [
        ("p = MatMul(x, w) s = ReduceSum <keepdims = 0> (p) o = Add(a, s)",
         ["MatMul", "ReduceSum"]),
        ("t = Transpose <perm = [1, 0]> (x) p = MatMul(t, a) s = ReduceMax <keepdims = 0> (p) "
         "o = Mul(a, s)", []),  # a changes; the transposed x is a place in x
        ("t = Transpose <perm = [1, 0]> (x) p = MatMul(x, t) s = ReduceMax <keepdims = 0> (p) "
         "o = Mul(a, s)", ["Transpose", "MatMul", "ReduceMax"]),
        ("e = Exp(y) o = Sub(a, e)", ["Exp"]),
        ("g = Gather <axis = 1> (x, k) e = Exp(g) o = Sub(a, e)", []),  # k may be out of range
        ("f = Cast <to = 1> (i) e = Add(y, f) o = Sub(a, e)", []),
    ],
)  # fmt: skip
def test_what_moves_in_front_of_a_loop(nodes: str, moved: list[str]) -> None:
    assert hoisted(nodes)[1] == moved


def test_a_loop_in_a_loop_gives_to_both() -> None:
    nodes = """
      o = Loop (n, go, a) <
        body = bb (int64 j, bool on, float[4] c) => (bool onward, float[4] d) {
          onward = Identity(on) e = Exp(y) f = Tanh(a) g = Add(c, e) d = Mul(g, f)
        }
      >"""
    graph, outside = hoisted(nodes)
    assert outside == ["Exp"]
    (body,) = next(bodies_of(n) for n in graph.nodes if bodies_of(n))
    assert [n.op.name for n in body.nodes if not bodies_of(n)] == ["Tanh"]


def test_sizes_that_must_be_equal_are_asked_for_inside() -> None:
    """The verifier stopped a build: a node had moved without the guard of its body."""
    nodes = "flat = Reshape(x, eight) e = Exp(flat) s = ReduceSum <keepdims = 0> (e) o = Add(a, s)"
    text = TEXT.replace("NODES", nodes).replace("[4, 8] x", "[rows, 8] x")
    m = model(text.replace("<float[8, 4]", "<int64[1] eight = {8}, float[8, 4]"))
    graph = import_model(m)
    moved = hoist_invariant(graph, PassContext(trace=Trace()))
    verify(moved, None, "hoist")
    assert moved is graph
    fits, runs_not = {**FEED, "x": FEED["x"][:1]}, {**FEED, "n": np.array(0)}
    (engine, *_) = check(m, fits, dims={"rows": (1, 1, 4)})
    np.testing.assert_array_equal(engine(runs_not)["r"], FEED["y"])
    with pytest.raises(BrazeError, match=r"sizes 8\*rows and 8 must be equal"):
        engine(FEED)


def test_engines_agree() -> None:
    text = TEXT.replace("NODES", "p = MatMul(x, w) s = ReduceSum <keepdims = 0> (p) o = Add(a, s)")
    check(model(text), FEED, {**FEED, "n": np.array(0)})
