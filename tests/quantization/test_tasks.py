"""The tasks of docs/accuracy.md run, and the page is made of what they give."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

pytest.importorskip("PIL")
pytest.importorskip("scipy")

from tests.models.networks import BY_NAME, DATA_OF, need
from tests.quantization.accuracy import page
from tests.quantization.tasks import TASKS, Task


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.network)
def test_samples_fit_the_network(task: Task) -> None:
    need(*DATA_OF.get(task.network, ()), "data/astronaut.png", "data/page.png")
    ranges = BY_NAME[task.network].ranges
    for feed in islice(task.samples(np.random.default_rng(0)), 3):
        assert feed.keys() == ranges.keys()
        for name, x in feed.items():
            low, _, high = ranges[name]
            assert all(a <= n <= b for a, n, b in zip(low, x.shape, high, strict=True))


def test_the_page_tells_what_stays_float_and_what_is_wrong() -> None:
    rows = [["Conv", "first", "float32", 0.5, None], ["Conv", "second", "int8", 0.001, 0.2]]
    result = {
        "network": "net", "method": "mse", "error": 0.004, "all_error": 0.51, "layers": 2,
        "kept": ["first"], "float": ["three lines", True], "int8": ["two lines", False],
        "rows": rows,
    }  # fmt: skip
    text = page([result])
    assert "| net | mse | 51.00% | 0.40% | 1 of 2 | three lines | **wrong**: two lines |" in text
    assert "0 of 1 keep their answer." in text
    assert "- **net**: `first`" in text
