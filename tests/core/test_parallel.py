"""Threads for large arrays: results in order, errors as they are, no threads for little work."""

from __future__ import annotations

import threading

import pytest

from braze.core.parallel import MIN_BYTES, in_parallel


@pytest.mark.parametrize("num_bytes", [0, MIN_BYTES])
def test_results_come_in_order(num_bytes: int) -> None:
    assert in_parallel(lambda i: i * i, range(50), num_bytes) == [i * i for i in range(50)]
    assert in_parallel(lambda i: i, [], num_bytes) == []


@pytest.mark.parametrize("num_bytes", [0, MIN_BYTES])
def test_an_error_reaches_the_caller(num_bytes: int) -> None:
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda i: 1 // i, [2, 1, 0], num_bytes)


def test_little_work_stays_on_this_thread() -> None:
    used = in_parallel(lambda _: threading.get_ident(), range(8), MIN_BYTES - 1)
    assert set(used) == {threading.get_ident()}
