"""If, Loop and Scan with conditions and trip counts that only the run knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
from braze.core.errors import ModelError, UnsupportedOpError
from braze.engine.steps import If, Loop
from braze.frontend.onnx.importer import import_model
from braze.ir.graph import bodies_of
from tests.flow.models import check, model

X = np.array([1.0, -2.0, 3.0], np.float32)
Y = np.array([0.5, 4.0, -1.0], np.float32)

# a weight, an input and a computed value in both branches and after; a branch is an output as well
BRANCHES = """
m (bool c, float[3] x, float[3] y) => (float[3] z, float[3] a)
<float[3] w = {2, 3, 4}> {
  k = Neg(x)
  a, b = If (c) <
    then_branch = t () => (float[3] ta, float[3] tb) { s = Mul(k, w) ta = Relu(s) tb = Add(y, w) },
    else_branch = e () => (float[3] ea, float[3] eb) { ea = Sub(k, y) eb = Exp(x) }
  >
  p = Add(a, b)
  z = Add(p, k)
}"""


def test_a_branch_reads_weights_inputs_and_values_that_are_read_elsewhere_too() -> None:
    feeds = [{"c": c, "x": X, "y": Y} for c in (True, False)]
    engine, *_ = check(model(BRANCHES), *feeds)
    assert [type(s) for s in engine.plan.steps].count(If) == 1
    assert len(engine.plan.bodies) == 2


@pytest.mark.parametrize("c", [True, False])
def test_a_known_condition_leaves_one_branch(c: bool) -> None:
    graph = import_model(model(BRANCHES), values={"c": np.array(c)})
    assert not any(bodies_of(n) for n in graph.nodes)


def test_branches_that_only_pass_on_values_or_constants() -> None:
    check(
        model("""
m (bool[1] c, float[3] x, float[3] y) => (float[3] a, float[3] b) {
  a, b = If (c) <
    then_branch = t () => (float[3] ta, float[3] tb) { ta = Identity(x) tb = Identity(x) },
    else_branch = e () => (float[3] ea, float[3] eb) {
      ea = Constant <value = float[3] {1, 2, 3}> () eb = Identity(y)
    }
  >
}"""),
        *({"c": [c], "x": X, "y": Y} for c in (True, False)),
    )


def test_branches_in_branches_and_a_condition_that_is_computed() -> None:
    check(
        model("""
m (float[3] x, float limit) => (float[3] z) {
  s = ReduceSum <keepdims = 0> (x)
  small = Less(s, limit)
  z = If (small) <
    then_branch = t () => (float[3] ta) {
      d = Add(s, limit)
      negative = Less(d, s)
      ta = If (negative) <
        then_branch = tt () => (float[3] tta) { tta = Mul(x, d) },
        else_branch = te () => (float[3] tea) { tea = Mul(x, s) }
      >
    },
    else_branch = e () => (float[3] ea) { ea = Neg(x) }
  >
}"""),
        *({"x": X, "limit": np.float32(v)} for v in (-10, 1, 3, -1.5)),
    )


# a is halved and grows by x and the number of the iteration; b alternates
LOOP = """
m (int64 n, bool c, float[3] x, float limit) => (float[3] ra, float[3] rb, float[3] z) {
  ra, rb = Loop (n, c, x, x) <
    body = b (int64 i, bool go, float[3] a, float[3] b) => (bool next, float[3] oa, float[3] ob) {
      half = Constant <value = float {0.5}> ()
      h = Mul(a, half) f = Cast <to = 1> (i) g = Add(h, f) oa = Add(g, x)
      ob = Sub(oa, b)
      s = ReduceSum <keepdims = 0> (oa) next = Less(s, limit)
    }
  >
  z = Add(ra, x)
}"""


def test_a_loop_ends_by_its_count_or_its_condition_and_may_not_run_at_all() -> None:
    feeds = [
        {"n": n, "c": c, "x": X, "limit": np.float32(limit)}
        for n in (-1, 0, 1, 2, 9)
        for c in (True, False)
        for limit in (2.5, 9.0, 1e9)
    ]
    engine, *_ = check(model(LOOP), *feeds)
    (loop,) = [s for s in engine.plan.steps if isinstance(s, Loop)]
    assert loop.condition is not None and loop.trip is not None


def test_a_while_loop_and_a_do_while_loop() -> None:
    text = """
m (bool c, float[3] x, float limit) => (float[3] r) {
  r = Loop ("", GO, x) <
    body = b (int64 i, bool go, float[3] a) => (bool next, float[3] o) {
      o = Add(a, x) s = ReduceMax <keepdims = 0> (o) next = Less(s, limit)
    }
  >
}"""
    feeds = [
        {"c": c, "x": np.abs(X), "limit": np.float32(v)} for c in (True, False) for v in (2, 50)
    ]
    check(model(text.replace("GO", "c")), *feeds)
    always = text.replace("  r = Loop", "  yes = Constant <value = bool {1}> ()\n  r = Loop")
    check(model(always.replace("GO", "yes")), *feeds)


def test_carried_values_that_change_places() -> None:
    check(
        model("""
m (int64 n, float[3] x, float[3] y, float[3] z) => (float[3] a, float[3] b, float[3] c) {
  a, b, c = Loop (n, "", x, y, z) <
    body = b (int64 i, bool go, float[3] p, float[3] q, float[3] r)
        => (bool next, float[3] np, float[3] nq, float[3] nr) {
      next = Identity(go) np = Identity(q) nq = Identity(r) nr = Add(p, q)
    }
  >
}"""),
        *({"n": n, "x": X, "y": Y, "z": X * Y} for n in (0, 1, 7)),
        want=rotated,
    )


def rotated(n: Any, x: Any, y: Any, z: Any) -> dict[str, Any]:
    """What that loop computes (onnx's evaluator runs no loop without a condition)."""
    for _ in range(int(n)):
        x, y, z = y, z, x + y
    return {"a": x, "b": y, "c": z}


def test_a_value_that_no_iteration_changes_is_not_carried() -> None:
    m = model("""
m (int64 n, bool c, float[3] x, float[3] y) => (float[3] a, float[3] b) {
  a, b = Loop (n, c, x, y) <
    body = b (int64 i, bool go, float[3] p, float[3] q) => (bool next, float[3] np, float[3] nq) {
      next = Identity(go) np = Add(p, q) nq = Identity(q)
    }
  >
}""")
    engine, *_ = check(m, *({"n": n, "c": True, "x": X, "y": Y} for n in (0, 3)))
    (loop,) = [s for s in engine.plan.steps if isinstance(s, Loop)]
    assert len(loop.carried) == 2  # the condition, and a


COUNTED = """
m (float[3] x) => (float[3] r, float[N, 3] s) <int64 n = {TRIPS}> {
  yes = Constant <value = bool {1}> ()
  r, s = Loop (n, yes, x) <
    body = b (int64 i, bool go, float[3] a) => (bool next, float[3] o, float[3] t) {
      next = Identity(go) o = Sub(a, x) f = Cast <to = 1> (i) t = Add(o, f)
    }
  >
}"""


@pytest.mark.parametrize("trips", [1, 8, 9, 300])
def test_a_known_trip_count_gives_slices_of_a_known_number(trips: int) -> None:
    engine, *_ = check(model(COUNTED.replace("TRIPS", str(trips))), {"x": X})
    loops = [s for s in engine.plan.steps if isinstance(s, Loop)]
    assert len(loops) == (0 if trips <= 8 else 1)


def test_no_iteration_gives_no_slices() -> None:
    engine = braze.build(model(COUNTED.replace("TRIPS", "0")), optimization_level=2)
    out = engine({"x": X})
    assert out["s"].shape == (0, 3) and np.array_equal(out["r"], X)


def test_slices_and_counts_of_symbolic_sizes() -> None:
    m = model("""
m (float[k, n] x) => (float[n] last, float[k, n] sums) {
  shape = Shape(x) zero = Constant <value_int = 0> () k = Gather(shape, zero)
  yes = Constant <value = bool {1}> ()
  n1 = Constant <value = int64[1] {1}> () n = Gather(shape, n1)
  start = ConstantOfShape <value = float[1] {0}> (n)
  last, sums = Loop (k, yes, start) <
    body = b (int64 i, bool go, float[n] a) => (bool next, float[n] o, float[n] t) {
      next = Identity(go) row = Gather(x, i) o = Add(a, row) t = Identity(o)
    }
  >
}""")
    shapes = {"x": ((0, 1), (5, 4), (40, 9))}
    rng = np.random.default_rng(1)
    sizes = ((1, 1), (5, 4), (40, 7))
    check(m, *({"x": rng.normal(size=s).astype("f")} for s in sizes), shapes=shapes)


def test_loops_in_loops_with_branches_that_read_what_is_carried() -> None:
    check(
        model("""
m (int64 outer, int64 inner, bool c, float[3] x, float limit) => (float[3] r, float[3] q) {
  yes = Constant <value = bool {1}> ()
  r, q = Loop (outer, yes, x, x) <
    body = b (int64 i, bool go, float[3] a, float[3] b)
        => (bool next, float[3] oa, float[3] ob) {
      next = Identity(go)
      oa = Loop (inner, go, a) <
        body = bb (int64 j, bool on, float[3] p) => (bool onward, float[3] op) {
          t = Add(i, j) f = Cast <to = 1> (t) u = Add(p, f) s = ReduceSum <keepdims = 0> (b)
          low = Less(s, limit)
          op = If (low) <
            then_branch = tb () => (float[3] to) { v = Add(u, b) to = Mul(v, x) },
            else_branch = eb () => (float[3] eo) { eo = Sub(u, a) }
          >
          onward = Identity(on)
        }
      >
      ob = Sub(a, b)
    }
  >
}"""),
        *(
            {"outer": m, "inner": n, "c": True, "x": X / 4, "limit": np.float32(0.4)}
            for m, n in ((0, 3), (3, 0), (2, 3), (4, 1))
        ),
    )


def test_a_scan_along_any_axis_from_either_end() -> None:
    m = model("""
m (float[2] s, float[2, 5] x, float[5, 2] y) => (float[2] r, float[2, 5] t, float[5, 2] u) {
  r, t, u = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
                  scan_output_axes = [1, -2], scan_output_directions = [0, 1],
    body = b (float[2] a, float[2] p, float[2] q) => (float[2] o, float[2] v, float[2] w) {
      o = Add(a, p) v = Mul(o, q) w = Sub(p, q)
    }
  > (s, x, y)
}""")
    rng = np.random.default_rng(3)
    feed = {k: rng.normal(size=s).astype("f") for k, s in (("s", 2), ("x", (2, 5)), ("y", (5, 2)))}
    check(m, feed, want=scanned)


def scanned(s: Any, x: Any, y: Any) -> dict[str, Any]:
    """What that Scan computes (onnx's evaluator scans the first axis from its start)."""
    p, q = x.T[::-1], y
    return {
        "r": s + p.sum(0),
        "t": np.stack([(s + p[: i + 1].sum(0)) * q[i] for i in range(5)], axis=1),
        "u": (p - q)[::-1],
    }


def test_products_in_a_body_have_packed_weights() -> None:
    """Also of a weight that the graph around it computes from constants."""
    m = model("""
m (int64 n, float[1, 16] x) => (float[1, 16] r) {
  shape = Constant <value = int64[2] {16, 16}> ()
  k = ConstantOfShape <value = float[1] {0.01}> (shape)
  w = Exp(k)
  yes = Constant <value = bool {1}> ()
  r = Loop (n, yes, x) <
    body = b (int64 i, bool go, float[1, 16] a) => (bool next, float[1, 16] o) {
      next = Identity(go) p = MatMul(a, w) o = Tanh(p)
    }
  >
}""")
    engine, *_ = check(m, *({"n": n, "x": np.ones((1, 16), "f")} for n in (0, 4)))
    assert [w.shape for w in engine.plan.weights] and not any(
        "Exp" in s.name for s in engine.plan.every_step
    )


def test_engines_with_bodies_are_saved_and_loaded(tmp_path: Any) -> None:
    engine = braze.build(model(LOOP), optimization_level=2)
    engine.save(tmp_path / "e")
    feed = {"n": np.array(4), "c": np.array(True), "x": X, "limit": np.array(1e9, "f")}
    again = braze.load(tmp_path / "e")
    assert all(np.array_equal(again(feed)[k], v) for k, v in engine(feed).items())
    assert "loop of body" in again.inspect()


def test_a_loop_of_ten_thousand_steps_allocates_nothing() -> None:
    m = model(LOOP)
    engine = braze.build(m, optimization_level=2)
    feed = {"n": np.array(10_000), "c": np.array(True), "x": X, "limit": np.array(1e9, "f")}
    once = engine(feed)
    assert all(np.array_equal(engine(feed)[k], v) for k, v in once.items())


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (LOOP.replace("oa = Add(g, x)", "oq = Add(g, x) oa = Cast <to = 11> (oq)").replace(
            "Sub(oa, b)", "Sub(x, b)"
        ).replace("(oa) next", "(x) next"), "keep its element type and rank"),
        (BRANCHES.replace("ea = Sub(k, y)", "ea = ReduceSum <keepdims = 0> (k)"),
         "its branches give"),
    ],
)  # fmt: skip
def test_what_is_not_there_yet_is_refused_by_name(text: str, what: str) -> None:
    with pytest.raises(UnsupportedOpError, match=what):
        import_model(model(text))


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("more", ["then", "else"])
def test_branches_give_as_many_outputs(more: str, constant: bool) -> None:
    """Also where the one that is taken is known, and where none reads what is too much."""
    two, one = "=> (r, s) { r = Neg(x) s = Abs(x) }", "=> (q) { q = Neg(x) }"
    first, second = (two, one) if more == "then" else (one, two)
    given = "<bool c = {1}>" if constant else ""
    text = (
        f"g (float[2] x{'' if constant else ', bool c'}) => (float[2] y) {given} "
        f"{{ y = If (c) <then_branch = a () {first}, else_branch = b () {second}> }}"
    )
    with pytest.raises(ModelError, match=r"If.*its branches have [12] and [12]"):
        import_model(model(text, checked=False))
