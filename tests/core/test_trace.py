"""Trace: decisions in order, texts only when asked for, times that add up."""

from __future__ import annotations

import pytest

from braze.core.trace import Trace


def unwanted() -> str:
    raise AssertionError("a text nobody wants is not rendered")


def test_texts_are_rendered_only_when_dumping() -> None:
    silent, loud = Trace(), Trace(dump=True)
    silent.text("import", unwanted)
    loud.text("import", lambda: "graph")
    loud.text("plan", lambda: "steps")
    assert silent.stages == []
    assert loud.stages == [("import", "graph"), ("plan", "steps")]


def test_decisions_keep_their_order() -> None:
    trace = Trace()
    trace.decide("fusion", at="a")
    trace.decide("refusal", at="b", reason="c")
    assert trace.decisions == [
        {"kind": "fusion", "at": "a"},
        {"kind": "refusal", "at": "b", "reason": "c"},
    ]


def test_times_of_a_stage_add_up_also_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 3.0, 10.0, 14.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    trace = Trace()
    with trace.stage("passes"):
        pass
    with pytest.raises(ValueError, match="odd"), trace.stage("passes"):
        raise ValueError("odd")
    assert trace.seconds == {"passes": 6.0}


def test_progress_is_told_to_who_listens() -> None:
    heard: list[tuple[str, int, int]] = []
    Trace().report("tune", 1, 2)
    Trace(progress=lambda *a: heard.append(a)).report("tune", 1, 2)
    assert heard == [("tune", 1, 2)]
