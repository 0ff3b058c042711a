"""Few combinations of parameters that hold every pair of their values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

Chosen = tuple[int, int]  # a list and the number of a value in it


def pairwise(*lists: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Tuples of one value of each list: any value of a list meets any value of any other one.

    A full product finds a fault that only three values together have; most need two, and a product
    of many lists runs each pair many times. The same lists give the same tuples in the same order.
    """
    if len(lists) < 3:
        return list(itertools.product(*lists))
    if not all(lists):
        return []
    # a dict keeps the order, and what stands first is met first
    missing = dict.fromkeys(
        ((i, a), (j, b))
        for i, j in itertools.combinations(range(len(lists)), 2)
        for a, b in itertools.product(range(len(lists[i])), range(len(lists[j])))
    )
    found = []
    while missing:
        row = dict(next(iter(missing)))
        for place in range(len(lists)):
            if place not in row:
                row[place] = _best(place, len(lists[place]), row, missing)
        for pair in itertools.combinations(sorted(row.items()), 2):
            missing.pop(pair, None)
        found.append(tuple(values[row[i]] for i, values in enumerate(lists)))
    return found


def _best(
    place: int, count: int, row: dict[int, int], missing: dict[tuple[Chosen, Chosen], None]
) -> int:
    """The value at `place` with the most missing pairs: with those of `row`, then with any."""

    def gain(value: int) -> tuple[int, int]:
        own = (place, value)
        near = sum(((own, c) if own < c else (c, own)) in missing for c in row.items())
        return near, sum(own in pair for pair in missing)

    return max(range(count), key=gain)
