"""States of a Scan whose sizes have a name only, which the body takes to be what it knows."""

from __future__ import annotations

import numpy as np
import pytest

import braze
from braze.core.errors import ShapeError, UnsupportedOpError
from braze.frontend.onnx.importer import import_model
from tests.flow.models import check, model

R = np.random.default_rng(7)
STEP = """
  hn, ys = Scan (h, x) <num_scan_inputs = 1, body = step (float[B, H] a, float[B, 4] e)
      => (float[B, H] b, float[B, H] y) {
    w = Constant <value = float[4,4] {1,0,2,0, 0,1,0,1, 1,1,0,0, 0,2,1,0}> ()
    m = MatMul (a, w)
    s = Add (m, e)
    b = Tanh (s)
    y = Neg (b)
  }>
"""
RECURRENT = "rnn (float[B, H] h, float[T, B, 4] x) => (float[B, H] hn, float[T, B, H] ys) {"


def normal(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def test_a_product_tells_the_size_of_a_state() -> None:
    m = model(RECURRENT + STEP + "}")
    feeds = [{"h": normal(b, 4), "x": normal(t, b, 4)} for b, t in ((2, 3), (1, 1), (5, 2))]
    engines = check(m, *feeds)
    for engine in engines:
        with pytest.raises(ShapeError, match=r"Scan.*'h'.*sizes H and 4 must be equal"):
            engine({"h": normal(2, 5), "x": normal(3, 2, 4)})


def test_states_tell_each_other() -> None:
    m = model("""
two (float[G] g, float[H] h, float[T, 4] x) => (float[I] gn, float[J] hn) {
  gn, hn = Scan (g, h, x) <num_scan_inputs = 1, body = step (float[G] a, float[H] b, float[4] e)
      => (float[I] c, float[J] d) {
    c = Add (a, b)
    d = Add (b, e)
  }>
}""")
    check(m, {"g": normal(4), "h": normal(4), "x": normal(3, 4)})
    engine = braze.build(m, target="reference")
    for g, h in ((5, 4), (4, 5), (1, 4)):
        with pytest.raises(ShapeError, match="must be equal"):
            engine({"g": normal(g), "h": normal(h), "x": normal(3, 4)})


def test_in_a_branch() -> None:
    m = model(
        """
rnn (bool p, float[B, H] h, float[T, B, 4] x) => (float[B, K] y) {
  y = If (p) <
    then_branch = yes () => (float[B, H] hn) {"""
        + STEP
        + """},
    else_branch = no () => (float[B, H] same) { same = Neg (h) }>
}"""
    )
    for p in (True, False):
        check(m, {"p": np.array(p), "h": normal(2, 4), "x": normal(3, 2, 4)})


@pytest.mark.parametrize("change", ["Concat <axis = 0> (a, a)", "Concat <axis = 0> (a, e)"])
def test_a_state_that_changes_its_size_is_refused(change: str) -> None:
    m = model(
        f"""
grow (float[H] h, float[T, 4] x) => (float[I] hn) {{
  hn = Scan (h, x) <num_scan_inputs = 1, body = step (float[H] a, float[4] e)
      => (float[I] b) {{
    b = {change}
  }}>
}}""",
        checked=False,
    )
    with pytest.raises(UnsupportedOpError, match="keep its type"):
        import_model(m)
