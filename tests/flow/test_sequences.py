"""Sequences and optionals, which are gone when a model is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from braze.core.errors import BrazeError, UnsupportedOpError
from braze.frontend.onnx.importer import import_model
from tests.flow.models import check, model

Array = np.ndarray[Any, Any]
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


def appending(body: str, after: str, outputs: str) -> onnx.ModelProto:
    """A loop of as many iterations as the run says, and what is asked of the sequence it makes."""
    return model(f"""
m (float[2, 3] x, int64 n, int64 at) => ({outputs}) <float two = {{2}}> {{
  yes = Constant <value = bool {{1}}> ()
  empty = SequenceEmpty <dtype = 1> ()
  s, last = Loop (n, yes, empty, x) <
    body = b (int64 i, bool go, seq(float[2, 3]) all, float[2, 3] v)
        => (bool next, seq(float[2, 3]) more, float[2, 3] w) {{
      next = Identity(go) w = Mul(v, two) {body}
    }}
  >
  {after}
}}""")


def test_what_a_loop_appends_in_iterations_of_the_run_is_stacked() -> None:
    m = appending("more = SequenceInsert(all, w)", """
  a = ConcatFromSequence <axis = 0, new_axis = 1> (s)
  b = ConcatFromSequence <axis = -1, new_axis = 1> (s)
  c = ConcatFromSequence <axis = -1> (s)
  d = ConcatFromSequence <axis = 0> (s)
  e = SequenceAt(s, at)
  k = SequenceLength(s)
""", "float[k, 2, 3] a, float[2, 3, k] b, float[2, m] c, float[o, 3] d, float[2, 3] e, int64 k")

    def want(x: Array, n: Array, at: Array) -> Mapping[str, Array]:
        rows = [x * np.float32(2) ** np.float32(i + 1) for i in range(int(n))]
        return {
            "a": np.stack(rows), "b": np.stack(rows, axis=-1), "c": np.concatenate(rows, axis=-1),
            "d": np.concatenate(rows), "e": rows[int(at)], "k": np.array(int(n)),
        }  # fmt: skip

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    feeds = [{"x": x, "n": np.array(n), "at": np.array(at)} for n, at in ((1, 0), (4, -1), (11, 3))]
    engines = check(m, *feeds, want=want)
    with pytest.raises(BrazeError):
        engines[0]({"x": x, "n": np.array(4), "at": np.array(4)})


@pytest.mark.parametrize(
    ("body", "after", "why"),
    [
        ("more = SequenceInsert(all, w, i)", "y = SequenceLength(s)", "it carries a sequence"),
        ("u = SequenceInsert(all, w) more = SequenceInsert(u, v)", "y = SequenceLength(s)",
         "it carries a sequence"),
        ("more = SequenceInsert(all, w)", "t = SequenceErase(s) y = SequenceLength(t)",
         "the run tells how long the sequence is"),
        ("more = SequenceInsert(all, w)",
         "none = SequenceEmpty <dtype = 1> () t = SequenceMap (none, s) <"
         "body = c (float[2, 3] p, float[2, 3] q) => (float[2, 3] r) { r = Add(p, q) }> "
         "y = SequenceLength(t)",
         "the run tells how long the sequence is"),
    ],
)  # fmt: skip
def test_sequences_of_the_run_that_do_more_are_refused(body: str, after: str, why: str) -> None:
    with pytest.raises(UnsupportedOpError, match=why):
        import_model(appending(body, after, "int64 y"))


def test_parts_of_an_axis_of_open_size() -> None:
    """Sizes that a constant lists say how long it is: the run checks that."""
    m = model("""
m (float[N, 3] x) => (float[A, 3] y, int64 n) <int64[2] sizes = {1, 2}, int64 one = {1}> {
  s = SplitToSequence <axis = 0> (x, sizes)
  y = SequenceAt(s, one)
  n = SequenceLength(s)
}""")
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    for engine in check(m, {"x": x}, want=lambda x: {"y": x[1:], "n": np.array(2)}):
        with pytest.raises(BrazeError, match=r"SplitToSequence.*parts of \[1, 2\].*but they are 3"):
            engine({"x": x[:2]})
    whole = model("""
m (float[N, 3] x) => (int64 n) <int64 size = {2}> {
  s = SplitToSequence <axis = 0> (x, size)
  n = SequenceLength(s)
}""")
    with pytest.raises(UnsupportedOpError, match="how many elements the sequence has depends on N"):
        import_model(whole)
