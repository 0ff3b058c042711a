"""pairwise misses no pair of values, and is much shorter than a product."""

from __future__ import annotations

import itertools
import math

import pytest

from tests.pairs import pairwise

SIZES = [(2, 2, 2), (3, 4, 2, 7), (4, 1, 3), (2,) * 7, (5, 5, 5), (13, 6, 2, 3), (6, 1, 1, 1)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_pair_is_covered(sizes: tuple[int, ...]) -> None:
    lists = [[f"{i}{k}" for k in range(size)] for i, size in enumerate(sizes)]
    rows = pairwise(*lists)
    for i, j in itertools.combinations(range(len(sizes)), 2):
        met = {(row[i], row[j]) for row in rows}
        assert met == set(itertools.product(lists[i], lists[j]))
    assert all(v in own for row in rows for v, own in zip(row, lists, strict=True))
    assert len(set(rows)) == len(rows) and rows == pairwise(*lists)


def test_the_combinations_are_few() -> None:
    for sizes in SIZES:
        largest, second, *_ = sorted(sizes, reverse=True)
        rows = len(pairwise(*map(range, sizes)))
        assert largest * second <= rows <= max(1.5 * largest * second, largest * second + 4)
        assert rows <= math.prod(sizes)


def test_two_lists_are_a_product_and_an_empty_one_leaves_nothing() -> None:
    assert pairwise("ab", "cd") == list(itertools.product("ab", "cd"))
    assert pairwise([1, 2]) == [(1,), (2,)]
    assert pairwise([1, 2], [], [3]) == []
    assert pairwise([{}], [[1]], [2, 3]) == [({}, [1], 2), ({}, [1], 3)]  # values need no hash
