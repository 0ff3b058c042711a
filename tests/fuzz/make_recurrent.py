"""Makers of recurrent networks: one node with what frameworks put around it, and two in a row."""

from __future__ import annotations

from typing import Any

from tests.fuzz.case import Fill
from tests.fuzz.make_anchors import Maker, weight
from tests.fuzz.make_pointwise import floating
from tests.fuzz.make_views import size
from tests.fuzz.sketch import Ref, Sketch, static

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_HIDDEN = (1, 2, 4, 5, 7, 8, 15, 16, 17, 33)
# Functions that neither grow without bound nor jump
_FUNCTIONS = ("Tanh", "Sigmoid", "Softsign", "HardSigmoid", "Relu", "LeakyRelu", "Elu")
_FIRST_LAYOUT = 14
_FIRST_BFLOAT16 = 22


def recurrent(op: str) -> Maker:
    """RNN, GRU or LSTM over a value of rank 3; Y without its direction axis, or a last state."""

    def make(s: Sketch, x: Ref) -> Ref:
        floating(s, x)
        s.need(x.rank == 3 and static(x.shape[2]) and size(x, 2) > 0)
        s.need(x.dtype.name != "bfloat16" or s.opset >= _FIRST_BFLOAT16)
        count = s.r.choice([1, 1, 2])
        hidden = s.r.choice(_HIDDEN)
        direction = "bidirectional" if count == 2 else s.r.choice(["forward", "reverse"])
        given = {"hidden_size": hidden, "direction": direction, **_attributes(s, op, count)}
        layout = s.r.choice([0, 0, 1]) if s.opset >= _FIRST_LAYOUT else 0
        if layout:
            given["layout"] = layout
        inputs = _inputs(s, op, x, (count, hidden, layout))
        outputs = s.add(op, x, *inputs, outputs=3 if op == "LSTM" else 2, **given)
        if s.r.random() < 0.3:
            return s.r.choice(outputs[1:])
        return _without_direction(s, outputs[0], layout, count, hidden)

    return make


def stacked(s: Sketch, x: Ref) -> Ref:
    """Two cells in a row; the second reads what the first has at every step."""
    ops = [s.r.choice(list(_GATES)) for _ in range(2)]
    for op in ops:
        x = recurrent(op)(s, x)
        s.need(x.rank == 3)
    return x


def _inputs(s: Sketch, op: str, x: Ref, form: tuple[int, int, int]) -> list[Ref | None]:
    """Weights, bias, lengths, states and peepholes; form: directions, hidden size, layout."""
    count, hidden, layout = form
    rows, constant = _GATES[op] * hidden, s.r.random() < 0.85
    k = size(x, 2)
    made: list[Ref | None] = [
        weight(s, x, (count, rows, k), k, constant),
        weight(s, x, (count, rows, hidden), 4 * hidden, constant),
        s.constant(x.dtype.name, (count, 2 * rows)) if s.r.random() < 0.6 else None,
    ]
    batch = x.shape[0 if layout else 1]
    fixed = static(batch)
    state = (int(batch), count, hidden) if layout and fixed else None
    if fixed and not layout:
        state = (count, int(batch), hidden)
    lens = fixed and s.r.random() < 0.4
    made.append(s.constant("int32", (int(batch),), Fill("integers", 0, 6)) if lens else None)
    for _ in range(2 if op == "LSTM" else 1):
        taken = state is not None and s.r.random() < 0.5
        made.append(s.input(x.dtype.name, state, made=False) if taken and state else None)
    if op == "LSTM" and s.r.random() < 0.4:
        made.append(s.constant(x.dtype.name, (count, 3 * hidden)))
    return made


def _attributes(s: Sketch, op: str, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if op == "GRU":
        found["linear_before_reset"] = s.r.choice([0, 1])
    if op == "LSTM" and s.r.random() < 0.3:
        found["input_forget"] = 1
    if s.r.random() < 0.3:
        found["clip"] = s.r.choice([0.5, 1.5])
    if s.r.random() < 0.3:
        names = {"RNN": 1, "GRU": 2, "LSTM": 3}[op] * count
        found["activations"] = [s.r.choice(_FUNCTIONS) for _ in range(names)]
    return found


def _without_direction(s: Sketch, y: Ref, layout: int, count: int, hidden: int) -> Ref:
    """[t, b, directions * unit] of Y, as frameworks write it."""
    if not layout:
        y = s.add1("Transpose", y, perm=[0, 2, 1, 3])
    return s.add1("Reshape", y, s.ints(0, 0, count * hidden))
