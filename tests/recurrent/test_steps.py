"""Recurrences as loops over their steps: what runs where a backend has no kernel for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import braze
from braze.codegen.cpu.backend import CpuBackend
from braze.engine.steps import Loop
from braze.expr.loops import TensorSpec
from braze.ops.lowering import AnchorSpec, RecurrenceSpec
from tests.recurrent.cases import GATES, Case, draw
from tests.recurrent.test_nodes import compare, exact


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU without its kernel."""
    supports = CpuBackend.supports

    def without(
        self: CpuBackend, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        if isinstance(spec, RecurrenceSpec):
            return "not here"
        return supports(self, spec, inputs, constant)

    monkeypatch.setattr(CpuBackend, "supports", without)


@pytest.mark.parametrize("number", range(40))
def test_engines_are_right(number: int, refused: None) -> None:
    case = draw(number)
    engine = braze.build(case.model(), optimization_level=number % 3, threads=2)
    directions = 2 if case.attributes["direction"] == "bidirectional" else 1
    assert [type(s) for s in engine.plan.steps].count(Loop) == directions
    compare(engine(case.feed()), exact(case), case.dtype)


@pytest.mark.parametrize("op", sorted(GATES))
def test_lengths_and_batches_of_one_engine(op: str, refused: None) -> None:
    rng = np.random.default_rng(3)
    w, r = (rng.uniform(-0.5, 0.5, (1, GATES[op] * 5, k)).astype("f4") for k in (3, 5))
    x = rng.uniform(-1, 1, (6, 2, 3)).astype("f4")
    attributes = {"direction": "reverse", "hidden_size": 5}
    case = Case(op, (x, w, r), attributes, frozenset({1, 2}), 2, "float32")
    shapes = {"x0": ((0, 1, 3), (6, 2, 3), (9, 9, 3))}
    engine = braze.build(case.model(dynamic=True), shapes=shapes, optimization_level=1)
    for steps, batch in ((0, 1), (1, 4), (9, 9)):
        x = rng.uniform(-1, 1, (steps, batch, 3)).astype("f4")
        compare(engine({"x0": x}), exact(replace(case, inputs=(x, w, r))), "float32")


def test_the_kernel_stays_where_there_is_one() -> None:
    engine = braze.build(draw(0).model(), optimization_level=1)
    assert not any(isinstance(s, Loop) for s in engine.plan.every_step)
