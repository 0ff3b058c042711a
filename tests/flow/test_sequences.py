"""Sequences and optionals, which are gone when a model is imported."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.errors import BrazeError, UnsupportedOpError
from braze.frontend.onnx.importer import import_model
from tests.flow.models import check, model

X = np.arange(24, dtype=np.float32).reshape(2, 12)


def test_parts_of_a_tensor_are_taken_by_position() -> None:
    m = model("""
m (float[2, 12] x) => (float[2, 5] a, float[2, 12] b, int64 n, float[3, 2, 4] d, float[2] e)
<int64[3] sizes = {5, 3, 4}, int64 last = {-1}, int64 first = {0}, int64 four = {4}> {
  s = SplitToSequence <axis = 1> (x, sizes)
  a = SequenceAt(s, first)
  moved = SequenceInsert(s, a)
  shorter = SequenceErase(moved, first)
  b = ConcatFromSequence <axis = 1> (shorter)
  n = SequenceLength(shorter)
  even = SplitToSequence <axis = -1> (x, four)
  d = ConcatFromSequence <axis = 0, new_axis = 1> (even)
  columns = SplitToSequence <axis = 1, keepdims = 0> (x)
  e = SequenceAt(columns, last)
}""")
    check(m, {"x": X}, want=lambda x: {
        "a": x[:, :5], "b": np.concatenate([x[:, 5:], x[:, :5]], axis=1), "n": np.array(3),
        "d": np.stack([x[:, :4], x[:, 4:8], x[:, 8:]]), "e": x[:, -1],
    })  # fmt: skip


def test_a_loop_of_known_iterations_collects_a_sequence() -> None:
    m = model("""
m (float[2, 12] x) => (float[5, 2, 12] y) <int64 n = {5}, float two = {2}> {
  yes = Constant <value = bool {1}> ()
  empty = SequenceEmpty <dtype = 1> ()
  s, last = Loop (n, yes, empty, x) <
    body = b (int64 i, bool go, seq(float[2, 12]) all, float[2, 12] v)
        => (bool next, seq(float[2, 12]) more, float[2, 12] w) {
      next = Identity(go) w = Mul(v, two) more = SequenceInsert(all, w)
    }
  >
  y = ConcatFromSequence <axis = 0, new_axis = 1> (s)
}""")
    powers = np.float32(2) ** np.arange(1, 6, dtype=np.float32)
    check(m, {"x": X}, want=lambda x: {"y": x * powers[:, None, None]})


def test_optionals_that_are_there_and_that_are_not() -> None:
    m = model("""
m (float[2, 12] x) => (float[2, 12] y, bool b, bool c) {
  o = Optional(x)
  y = OptionalGetElement(o)
  b = OptionalHasElement(o)
  c = OptionalHasElement()
}""")
    check(m, {"x": X}, want=lambda x: {"y": x, "b": np.array(True), "c": np.array(False)})


@pytest.mark.parametrize(
    ("nodes", "what"),
    [
        ("s = SequenceConstruct(x, x) y = SequenceAt(s, k)", "known at run time only"),
        ("s = SequenceConstruct(x, x) y = Relu(s)", "does not take sequences"),
        ("s = SequenceConstruct(x, x) five = Constant <value_int = 5> () y = SequenceAt(s, five)",
         "position 5 is outside of 2 elements"),
    ],
)  # fmt: skip
def test_what_does_not_run_is_told(nodes: str, what: str) -> None:
    text = f"m (float[2, 12] x, int64 k) => (float[2, 12] y) {{ {nodes} }}"
    with pytest.raises(BrazeError, match=what) as caught:
        import_model(model(text, checked=False))
    assert isinstance(caught.value, UnsupportedOpError) or "position" in what
