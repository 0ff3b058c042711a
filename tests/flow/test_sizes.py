"""Control flow that makes tensors of sizes which only the run knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
from braze.core.errors import BrazeError, ProfileError, ShapeError
from tests.flow.models import check, model

X = np.array([1.0, -2.0, 3.0], np.float32)
TARGETS = ("cpu", "reference")


def test_branches_of_two_sizes() -> None:
    m = model(
        """
m (bool c, float[3] x) => (float[n] y, float[n] z, int64[1] s, float t) {
  y = If (c) <
    then_branch = a () => (float[3] p) { p = Exp(x) },
    else_branch = b () => (float[7] q) { d = Neg(x) q = Concat <axis = 0> (x, d, one) }
  >
  z = Mul(y, y)
  s = Shape(z)
  t = ReduceSum <keepdims = 0> (z)
}""".replace("=> (float[n] y", "=> (float[n] y").replace(
            "int64[1] s, float t) {", "int64[1] s, float t) <float[1] one = {1}> {"
        )
    )
    check(m, *({"c": c, "x": X} for c in (True, False, True)))


def test_a_branch_that_passes_on_what_another_one_makes_larger() -> None:
    m = model("""
m (bool c, bool d, float[k, 3] x) => (float[n, 3] y) {
  y = If (c) <
    then_branch = a () => (float[i, 3] p) {
      p = If (d) <
        then_branch = aa () => (float[j, 3] pp) { pp = Concat <axis = 0> (x, x) },
        else_branch = ab () => (float[j, 3] pq) { pq = Identity(x) }
      >
    },
    else_branch = b () => (float[o, 3] q) { q = Concat <axis = 0> (x, x, x) }
  >
}""")
    rng = np.random.default_rng(0)
    feeds = [
        {"c": c, "d": d, "x": rng.normal(size=(k, 3)).astype("f")}
        for c in (True, False)
        for d in (True, False)
        for k in (1, 4)
    ]
    check(m, *feeds, shapes={"x": ((1, 3), (2, 3), (5, 3))})


GROW = """
m (int64 n, bool c, float[2, k] x, float limit) => (float[2, m] r, float[l, 2, 1] s, int64[2] t) {
  r, s = Loop (n, c, x) <
    body = b (int64 i, bool go, float[2, p] a) => (bool next, float[2, q] o, float[2, 1] v) {
      v = ReduceSum <keepdims = 1> (a, axis)
      o = Concat <axis = 1> (a, v)
      top = ReduceMax <keepdims = 0> (v) next = Less(top, limit)
    }
  >
  t = Shape(r)
}""".replace("int64[2] t) {", "int64[2] t) <int64[1] axis = {1}> {")


def test_a_carried_value_that_grows_and_slices_of_unknown_number() -> None:
    feeds = [
        {"n": n, "c": c, "x": np.abs(np.random.default_rng(k).normal(size=(2, k))).astype("f"),
         "limit": np.float32(limit)}
        for n in (1, 3, 12) for c in (True,) for limit in (2.0, 40.0, 1e9) for k in (1, 4)
    ]  # fmt: skip
    check(model(GROW), *feeds, shapes={"x": ((2, 1), (2, 2), (2, 6))}, want=grown)


def grown(n: Any, c: Any, x: Any, limit: Any) -> dict[str, Any]:
    """What that loop computes (onnx's evaluator concatenates slices)."""
    r, s, going = x, [], bool(c)
    while going and len(s) < n:
        s.append(r.sum(1, keepdims=True))
        r = np.concatenate([r, s[-1]], axis=1)
        going = s[-1].max() < limit
    return {"r": r, "s": np.stack(s), "t": np.array(r.shape)}


@pytest.mark.parametrize("target", TARGETS)
def test_no_iteration_at_all(target: str) -> None:
    engine = braze.build(model(GROW), shapes={"x": (2, 2)}, target=target, optimization_level=2)
    x = np.ones((2, 2), np.float32)
    for n, c in ((0, True), (5, False), (3, True)):
        out = engine({"n": np.array(n), "c": np.array(c), "x": x, "limit": np.float32(1e9)})
        done = n if c else 0
        assert out["r"].shape == (2, 2 + done) and out["s"].shape == (done, 2, 1)
        assert np.array_equal(out["t"], [2, 2 + done]) and np.array_equal(out["r"][:, :2], x)


def test_thousands_of_slices_are_stacked() -> None:
    m = model("""
m (int64 n, float[3] x) => (float[l, 3] s, float[3] last) {
  yes = Constant <value = bool {1}> ()
  last, s = Loop (n, yes, x) <
    body = b (int64 i, bool go, float[3] a) => (bool next, float[3] o, float[3] v) {
      next = Identity(go) f = Cast <to = 1> (i) o = Add(x, f) v = Neg(o)
    }
  >
}""")
    for target in TARGETS:
        engine = braze.build(m, target=target, optimization_level=2)
        for n in (5000, 3, 700):
            out = engine({"n": np.array(n), "x": X})
            wanted = -(X + np.arange(n, dtype="f")[:, None])
            np.testing.assert_allclose(out["s"], wanted, 1e-6)
            np.testing.assert_allclose(out["last"], -wanted[-1], 1e-6)


def test_loops_that_grow_in_loops_that_start_again() -> None:
    m = model(
        """
m (int64 n, float[1] x) => (float[k] r, float[m, 1] s) {
  yes = Constant <value = bool {1}> ()
  r, s = Loop (n, yes, x) <
    body = b (int64 i, bool go, float[p] a) => (bool next, float[q] o, float[1] v) {
      next = Identity(go)
      g, parts = Loop (i, go, x) <
        body = bb (int64 j, bool on, float[u] c) => (bool onward, float[w] d, float[1] e) {
          onward = Identity(on) d = Concat <axis = 0> (c, x) f = Cast <to = 1> (j)
          e = Add(x, f)
        }
      >
      t = ReduceSum <keepdims = 0> (parts) y = Unsqueeze(t, zero)
      o = Concat <axis = 0> (a, g, y)
      v = Identity(y)
    }
  >
}""".replace("float[m, 1] s) {", "float[m, 1] s) <int64[1] zero = {0}> {")
    )
    check(m, *({"n": n, "x": X[:1]} for n in (1, 4, 2)), want=nested)


def nested(n: Any, x: Any) -> dict[str, Any]:
    """What that loop computes."""
    r, s = [x], []
    for i in range(int(n)):
        sums = sum(x + np.float32(j) for j in range(i)) if i else np.zeros(1, np.float32)
        r += [np.concatenate([x] * (i + 1)), sums]
        s.append(sums)
    return {"r": np.concatenate(r), "s": np.stack(s)}


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_body_assumes_of_sizes_is_asked_when_it_runs(target: str) -> None:
    m = model("""
m (bool c, int64 n, float[i] x, float[j] y) => (float[i] r, float[i] s) {
  r = If (c) <
    then_branch = a () => (float[i] p) { p = Add(x, y) },
    else_branch = b () => (float[i] q) { q = Neg(x) }
  >
  s = Loop (n, "", x) <
    body = b (int64 k, bool go, float[i] v) => (bool next, float[i] w) {
      next = Identity(go) w = Add(v, y)
    }
  >
}""")
    shapes = {"x": ((1,), (2,), (4,)), "y": ((2,), (2,), (4,))}
    engine = braze.build(m, target=target, shapes=shapes, optimization_level=2)

    def run(c: bool, n: int, i: int, j: int) -> Any:
        x, y = np.arange(i, dtype="f"), np.ones(j, "f")
        return engine({"c": np.array(c), "n": np.array(n), "x": x, "y": y})

    assert np.array_equal(run(False, 0, 3, 2)["r"], [0, -1, -2])
    assert np.array_equal(run(True, 2, 3, 3)["r"], [1, 2, 3])
    assert np.array_equal(run(True, 2, 3, 3)["s"], [2, 3, 4])
    for c, n in ((True, 0), (False, 1)):
        with pytest.raises(ShapeError):
            run(c, n, 3, 2)


SQUEEZE = """
m (float[b, t] x, bool c) => (float[b, 3] y) <float[3, 1] w = {1, 2, 3}, int64[1] a = {2}> {
  u = Unsqueeze(x, a)
  u_t = Transpose <perm = [0, 2, 1]> (u)
  r = MatMul(w, u_t)
  s = Shape(r)
  i = Constant <value_int = 2> ()
  n = Gather <axis = 0> (s, i)
  one = Constant <value_int = 1> ()
  k = Equal(n, one)
  q = If (k) <
    then_branch = f () => (float[b, 3] p) { p = Squeeze(r, a) },
    else_branch = g () => (float[b, 3, t] p) { p = Identity(r) }
  >
  y = Add(q, q)
}"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("level", [0, 3])
def test_a_squeeze_where_there_is_one_element(target: str, level: int) -> None:
    """Branches of two ranks: what follows is written for the first, which is taken for good."""
    m = model(SQUEEZE, checked=False)
    engine = braze.build(m, target=target, optimization_level=level)
    for batch in (1, 4):
        x = np.random.default_rng(batch).standard_normal((batch, 1)).astype(np.float32)
        got = engine({"x": x, "c": np.array(True)})["y"]
        np.testing.assert_allclose(got, 2 * x * np.float32([1, 2, 3]), rtol=1e-6)
    with pytest.raises(ShapeError, match=r"taken for its rank: sizes t and 1 must be equal"):
        engine({"x": np.zeros((2, 5), np.float32), "c": np.array(True)})


def test_a_squeeze_in_a_branch_is_checked_where_it_runs() -> None:
    """The sizes of one branch do not refuse a run of the other."""
    inner = SQUEEZE[SQUEEZE.index("  u = ") : SQUEEZE.index("  y = Add")]
    text = SQUEEZE.replace(
        inner,
        "  q = If (c) < then_branch = h () => (float[b, 3] q0) {"
        + inner.replace("  q = If", "  q0 = If")
        + "}, else_branch = j () => (float[b, 3] q1) { z = ReduceSum <keepdims = 1> (x, last)"
        " wide = Transpose(w) q1 = Mul(z, wide) } >\n",
    ).replace("a = {2}", "a = {2}, int64[1] last = {1}")
    engine = braze.build(model(text, checked=False))
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    want = 2 * x.sum(1, keepdims=True) * np.float32([1, 2, 3])
    np.testing.assert_allclose(engine({"x": x, "c": np.array(False)})["y"], want, rtol=1e-5)
    got = engine({"x": x[:, :1], "c": np.array(True)})["y"]
    np.testing.assert_allclose(got, 2 * x[:, :1] * np.float32([1, 2, 3]), rtol=1e-6)
    with pytest.raises(ShapeError, match="taken for its rank"):
        engine({"x": x, "c": np.array(True)})


def test_two_ranks_by_data_are_refused() -> None:
    text = SQUEEZE.replace("q = If (k)", "q = If (c)")
    with pytest.raises(BrazeError, match="which one is taken is known at run time only"):
        braze.build(model(text, checked=False))


def test_opt_shapes_for_which_the_other_branch_runs() -> None:
    shapes = {"x": ((1, 1), (2, 4), (2, 8))}
    with pytest.raises(ProfileError, match="taken for its rank"):
        braze.build(model(SQUEEZE, checked=False), shapes=shapes)


def test_slices_of_sizes_of_the_run() -> None:
    """A Scan that stacks them made an engine which used a size before anything made it known."""
    m = model("""
m (float[4] x, int64[1] n) => (float[4, k] y) {
  y = Scan (x) <num_scan_inputs = 1,
    body = b (float v) => (float[j] w) { w = Expand(v, n) }
  >
}""", checked=False)  # fmt: skip
    x = np.arange(4, dtype=np.float32)
    check(m, *({"x": x, "n": np.array([n])} for n in (1, 3, 7)),
          want=lambda x, n: {"y": np.repeat(x[:, None], n[0], 1)})  # fmt: skip


@pytest.mark.parametrize("size", ["n", "k"])
def test_an_output_that_is_another_value_in_a_shape_of_the_run(size: str) -> None:
    """The value was made in the memory of the output, whose size was not known yet; k comes from
    the value itself."""
    m = model("""
m (float[6] x, int64[1] n) => (float[a, b] y) <int64[1] rest = {-1}> {
  z = Softmax(x)
  one = ReduceSum(z)
  two = Add(one, one)
  half = Round(two)
  k = Cast <to = 7> (half)
  shape = Concat <axis = 0> (SIZE, rest)
  y = Reshape(z, shape)
}""".replace("SIZE", size), checked=False)  # fmt: skip
    x = np.arange(6, dtype=np.float32) / 4
    check(m, *({"x": x, "n": np.array([n])} for n in ((1, 3, 6) if size == "n" else (1,))))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("level", [0, 3])
def test_what_a_run_refuses_is_said_of_the_model(target: str, level: int) -> None:
    """An axis that is not there to copy, and a window that does not fit."""
    copied = model("agraph (float[n] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }")
    engine = braze.build(copied, target=target, optimization_level=level)
    x = np.ones(6, np.float32)
    with pytest.raises(ShapeError, match=r"size 1 of the shape must not be 0, .* rank 1 does not"):
        engine({"x": x, "s": np.array([-1, 0])})
    assert engine({"x": x, "s": np.array([0, 1])})["y"].shape == (6, 1)
    pooled = model(
        "agraph (float[1, 1, l] x) => (float[1, 1, k] y) { y = MaxPool <kernel_shape = [5]> (x) }"
    )
    engine = braze.build(pooled, target=target, optimization_level=level)
    with pytest.raises(ShapeError, match="a window of 5 must fit size l on spatial axis 0"):
        engine({"x": np.ones((1, 1, 3), np.float32)})
    assert engine({"x": np.ones((1, 1, 5), np.float32)})["y"].shape == (1, 1, 1)
