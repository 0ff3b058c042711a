"""What a caller binds on a GPU, by an engine that only notes it (tests/gpu have real ones)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from braze.cli.callers import GpuCaller, GpuOptions

Array = np.ndarray[Any, Any]
X = np.array([0.0, 2.0, 0.0, 3.0], np.float32)


class Noted:
    """An engine and its context: x [4] gives y [rows], which a run tells where rows is -1."""

    def __init__(self, rows: int) -> None:
        binding = {"dtype": "float32", "value": False}
        self.plan = SimpleNamespace(
            inputs=[SimpleNamespace(name="x", **binding)],
            outputs=[SimpleNamespace(name="y", **binding)],
        )
        self.shapes = {"x": (4,), "y": (rows,)}
        self.bound: dict[str, Array] = {}
        self.runs = 0

    def create_context(self, _profile: int | None) -> Noted:
        return self

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> None:
        assert self.shapes[name] == shape

    def shape(self, name: str) -> tuple[int, ...]:
        return self.shapes[name]

    def run(self, feed: dict[str, Array]) -> None:
        self.runs += 1
        self.shapes["y"] = (int(np.count_nonzero(feed["x"])),)

    def pinned_empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return np.empty(shape, dtype)

    def bind(self, name: str, memory: Array) -> None:
        self.bound[name] = memory


@pytest.mark.parametrize(("rows", "runs", "found"), [(-1, 1, 2), (4, 0, 4)])
def test_sizes_that_only_a_run_knows_are_asked_of_one(rows: int, runs: int, found: int) -> None:
    engine: Any = Noted(rows)
    GpuCaller(engine, {"x": X}, GpuOptions())
    assert engine.runs == runs
    assert engine.bound["y"].shape == (found,)
    np.testing.assert_array_equal(engine.bound["x"], X)
