"""Random graphs on reference engines: right against float64 bounds, rows alone and together alike.

`make fuzz` takes the reference as one of its targets; these numbers run always.
"""

from __future__ import annotations

import pytest

from tests.fuzz.checks import check
from tests.fuzz.graphs import make
from tests.fuzz.ways import Variant


@pytest.mark.parametrize("number", range(24))
def test_a_random_graph(number: int) -> None:
    # every third number compares rows, so all of these do
    outcome = check(make(number).case, 3 * number, (Variant(2 * (number % 2), "reference"),))
    assert outcome.status != "wrong", outcome.reason
