"""Branches whose results differ in rank: where what follows takes both, or one of them only."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import braze
from braze.core.errors import BrazeError, ShapeError

TARGETS = ["cpu", "reference"]
HEAD = '<ir_version: 9, opset_import: ["" : 17, "own" : 1]> g '
BRANCHES = """t, s = If(c) <
    then_branch = a () => (float[N,1,4] u, float[N,4] p) { u = Unsqueeze(x, one) p = Abs(x) },
    else_branch = b () => (float[N,4] v, float[N,4] q) { v = Neg(x) q = Identity(x) }>"""
HELD = "<int64[1] one = {1}, int64[1] flat = {-1}, float one_f = {1}>"


def network(body: str, result: str = "float[M] y", branches: str = BRANCHES) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"{HEAD} (float[N,4] x, bool c, float[4,3] w) => ({result}) {HELD} {{ {branches} {body} }}"
    )


def feeds(rows: int, first: bool) -> dict[str, np.ndarray]:
    r = np.random.default_rng(rows)
    return {"x": r.standard_normal((rows, 4)).astype("f"), "c": np.array(first),
            "w": r.standard_normal((4, 3)).astype("f")}  # fmt: skip


def compare(model: onnx.ModelProto) -> None:
    """Both branches at three sizes, beside onnxruntime."""
    peer = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    engines = [braze.build(model, target=t, optimization_level=1) for t in TARGETS]
    for rows in (3, 1, 0):
        for first in (True, False):
            feed = feeds(rows, first)
            used = {i.name: feed[i.name] for i in model.graph.input}
            names = [o.name for o in model.graph.output]
            want = dict(zip(names, peer.run(names, used), strict=True))
            for engine in engines:
                got = engine(feed)
                for name, y in want.items():
                    assert got[name].shape == y.shape
                    # sums of twelve numbers around 1
                    np.testing.assert_allclose(got[name], y, 1e-5, 1e-5)


def test_the_reader_takes_both() -> None:
    compare(network("y = Reshape(t, flat)"))


def test_readers_one_behind_the_other() -> None:
    """What stands between them, and an output of equal ranks, are read inside and outside."""
    body = """
      k = Exp(t) e = Cos(x) z = Mul(k, t) f = Sin(s) total = ReduceSum<keepdims = 0>(z)
      r = ReduceMax<keepdims = 0>(e) n = Add(total, r) h = Add(f, s) y = Add(h, n)"""
    compare(network(body, "float[N,4] y, float[N,4] f, float n"))


def test_two_branchings_that_meet() -> None:
    second = BRANCHES.replace("t, s", "t2, s2")
    for name in "abuvpq":
        second = second.replace(f" {name} ", f" {name}2 ").replace(f"] {name}", f"] {name}2")
    body = second + " m = Reshape(t, flat) m2 = Reshape(t2, flat) y = Sub(m, m2)"
    compare(network(body))


def test_in_a_branch_of_its_own() -> None:
    inner = BRANCHES.replace("t, s", "t0, s0")
    outer = f"""no = Not(c)
      y = If(no) <then_branch = o () => (float[M] y1) {{ {inner} y1 = Reshape(t0, flat) }},
                  else_branch = e () => (float[M] y2) {{ y2 = Reshape(x, flat) }}>"""
    compare(network("", branches=outer))


@pytest.mark.parametrize("target", TARGETS)
def test_the_reader_takes_one(target: str) -> None:
    """A Gemm takes matrices only: the second branch, and the run checks that it is that."""
    model = network("y = Gemm(t, w)", "float[N,3] y")
    engine = braze.build(model, target=target, optimization_level=1)
    for rows in (3, 0):
        feed = feeds(rows, False)
        np.testing.assert_allclose(engine(feed)["y"], -feed["x"] @ feed["w"], 1e-5, 1e-5)
        with pytest.raises(ShapeError, match="takes the rank of its second branch only"):
            engine(feeds(rows, True))
    np.testing.assert_allclose(engine(feed)["y"], -feed["x"] @ feed["w"], 1e-5, 1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_the_reader_takes_the_first(target: str) -> None:
    body = "axes = Squeeze(t, one) y = ReduceSum<keepdims = 0>(axes, one)"
    engine = braze.build(network(body), target=target, optimization_level=1)
    feed = feeds(2, True)
    np.testing.assert_allclose(engine(feed)["y"], feed["x"].sum(1), 1e-5, 1e-5)
    with pytest.raises(ShapeError, match="takes the rank of its first branch only"):
        engine(feeds(2, False))


@pytest.mark.parametrize(
    ("body", "result", "branches"),
    [
        ("y = Reshape(t, flat)", "float[M] y, float[] t", BRANCHES),
        ("y = Relu(t)", "float[] y", BRANCHES),
        # the name of the branch's tensor is one that the reader knows from outside
        ("k = Exp(w) m = Reshape(t, flat) n = ReduceSum<keepdims = 0>(k) y = Add(m, n)",
         "float[M] y", BRANCHES.replace("] u", "] k").replace("{ u", "{ k")),
        ("y = Gemm(t, w)", "float[N,3] y", BRANCHES.replace("v = Neg(x)", "v = Cast<to = 10>(x)")),
    ],
    ids=["it is an output", "so is what follows", "names are shadowed", "types differ"],
)  # fmt: skip
def test_near_misses_are_refused(body: str, result: str, branches: str) -> None:
    with pytest.raises(BrazeError, match=r"its branches give|also an input"):
        braze.build(network(body, result, branches))
