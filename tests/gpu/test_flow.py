"""Conditions, loops and sizes that only the run knows, and recurrences, on a GPU: the host decides
between segments of work."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import braze
from braze.core.errors import BindingError, ExecutionError
from tests.e2e.test_data_sizes import compare as compare_picked
from tests.e2e.test_data_sizes import picked, picking, picking_feed
from tests.flow import models, test_control_flow, test_sequences, test_sizes
from tests.flow.models import model
from tests.recurrent.cases import draw
from tests.recurrent.test_nodes import compare, exact

MODULES = (test_control_flow, test_sequences, test_sizes)
CASES = [
    f
    for m in MODULES
    for name, f in vars(m).items()
    if name.startswith("test_") and not inspect.signature(f).parameters
]

# y = x + 1 + 2 + ... while the sum stays below `limit`, each step picked from a table
WALK = """
m (int64 n, float[4] x, float limit, int64[8] order) => (float[4] y, float[k, 4] each) {
  one = Constant <value = bool {1}> ()
  y, each = Loop (n, one, x) <
    body = b (int64 i, bool go, float[4] a) => (bool next, float[4] oa, float[4] row) {
      at = Gather(order, i)
      f = Cast <to = 1> (at)
      oa = Add(a, f)
      s = ReduceMax <keepdims = 0> (oa)
      next = Less(s, limit)
      row = Neg(oa)
    }
  >
}"""


def walked(n: int, x: np.ndarray, limit: float, order: np.ndarray) -> dict[str, np.ndarray]:
    rows = []
    for i in range(n):
        x = x + np.float32(order[i])
        rows.append(-x)
        if not x.max() < limit:
            break
    return {"y": x, "each": np.array(rows, np.float32).reshape(-1, 4)}


def feed(n: int, limit: float, order: Any = tuple(range(8))) -> dict[str, np.ndarray]:
    return {
        "n": np.array(n),
        "x": np.array([0.5, 1, -2, 0], np.float32),
        "limit": np.array(limit, np.float32),
        "order": np.array(order),
    }


@pytest.fixture(scope="module")
def walking() -> braze.Engine:
    return braze.build(model(WALK, checked=False), target="cuda", optimization_level=2)


@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_cases_of_cpu_engines(case: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "TARGETS", (("cuda", 2),))
    case()


@pytest.mark.parametrize("level", [0, 2])
def test_sizes_change_from_run_to_run(level: int) -> None:
    engine = braze.build(picking(), target="cuda", optimization_level=level)
    for share in (0.5, 0, 1, 0.2, 0.9, 0):
        given = picking_feed(share)
        compare_picked(engine(given), picked(given))


def test_loops_end_by_number_and_by_condition(walking: braze.Engine) -> None:
    for n, limit in ((8, 100), (8, 4), (0, 100), (1, -5), (5, 8)):
        given = feed(n, limit)
        got, want = walking(given), walked(n, given["x"], limit, given["order"])
        for name, array in want.items():
            np.testing.assert_array_equal(got[name], array)  # few sums of small integers


def test_an_index_out_of_range_in_a_loop_raises_and_leaves_the_context_well(
    walking: braze.Engine,
) -> None:
    context = walking.create_context()
    for _ in range(3):
        with pytest.raises(ExecutionError, match="out of range"):
            context.run(feed(9, 1000))  # the table has eight
        given = feed(8, 1000)
        want = walked(8, given["x"], 1000, given["order"])
        np.testing.assert_array_equal(context.run(given)["each"], want["each"])


def test_outputs_stay_on_the_gpu_where_inputs_are(walking: braze.Engine) -> None:
    given = feed(6, 100)
    x = walking.device_empty((4,))
    x.copy_from(given["x"])
    got = walking({**given, "x": x})
    want = walked(6, given["x"], 100, given["order"])
    assert all(hasattr(v, "__dlpack__") and not isinstance(v, np.ndarray) for v in got.values())
    for name, array in want.items():
        np.testing.assert_array_equal(got[name].numpy(), array)


def test_profiles_steps_one_by_one_and_streams(walking: braze.Engine) -> None:
    context, given = walking.create_context(), feed(5, 100)
    spent = context.profile(given)
    assert len(spent) == len(walking.plan.every_step) and sum(spent) > 0
    want = walked(5, given["x"], 100, given["order"])
    for name, array in given.items():
        context.bind(name, array)
    y, each = np.empty(4, np.float32), np.empty((5, 4), np.float32)
    context.bind("y", y)
    context.bind("each", each)
    for graph in (True, False):
        y[:], each[:] = 0, 0
        context.execute(graph=graph)
        np.testing.assert_array_equal(y, want["y"])
        np.testing.assert_array_equal(each, want["each"])
    with pytest.raises(ExecutionError, match="host decides"):
        context.enqueue(0)
    context.bind("each", np.empty((2, 4), np.float32))
    with pytest.raises(BindingError, match="larger"):
        context.execute()


@pytest.mark.parametrize("number", range(12))
def test_recurrences(number: int) -> None:
    case = draw(number)
    engine = braze.build(case.model(), target="cuda", optimization_level=2)
    compare(engine(case.feed()), exact(case), case.dtype)
