"""Three hundred and sixty random graphs of fixed numbers, each in one of all ways of building;
`make fuzz` goes on where these stop, and builds each in two ways."""

from __future__ import annotations

import pytest

from tests.fuzz.checks import check
from tests.fuzz.graphs import FIRST_LATER, make
from tests.fuzz.shrink import as_test, shrink

GRAPHS = 300
LATER_GRAPHS = 60  # with the families that came later
STRETCH = 10  # graphs of one test, so that workers share them
SHRINK_SECONDS = 20.0


FIRSTS = [*range(0, GRAPHS, STRETCH), *range(FIRST_LATER, FIRST_LATER + LATER_GRAPHS, STRETCH)]


@pytest.mark.parametrize("first", FIRSTS)
def test_random_graphs(first: int) -> None:
    for number in range(first, first + STRETCH):
        case = make(number).case
        outcome = check(case, number, count=1)
        if outcome.status == "wrong":
            small = shrink(case, outcome, number, SHRINK_SECONDS)
            pytest.fail(f"graph {number}: {outcome.reason}\n{as_test(small, number, outcome)}")
