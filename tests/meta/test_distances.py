"""The metric of the whole-network tests sees what each of its figures alone would not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.distances import assert_close, distance


def test_one_wrong_element_among_many_shows_in_worst_only() -> None:
    """3 % of the root mean square on one of 400,000: the L2 error stays under 5e-5."""
    want = np.random.default_rng(0).standard_normal(400_000)
    got = want.copy()
    got[1234] += 0.03
    d = distance(got, want)
    assert d.l2 < 5e-5
    assert d.worst > 5e-3
    assert d.place == (1234,)
    with pytest.raises(AssertionError, match="worst"):
        assert_close({"y": got}, {"y": want}, l2=5e-5, worst=1e-3)


def test_a_shift_of_everything_shows_in_l2() -> None:
    want = np.random.default_rng(1).standard_normal(1000)
    d = distance(want * (1 + 1e-4), want)
    assert d.l2 == pytest.approx(1e-4, rel=1e-3)
    assert d.worst < 1e-4


def test_small_elements_are_measured_by_their_tensor_and_large_ones_by_themselves() -> None:
    want = np.array([1e-12, 1.0, 1.0, 1.0])
    assert distance(want + np.array([1e-7, 0, 0, 0]), want).worst < 2e-7
    spiky = np.array([1e6, 1.0, 1.0, 1.0])
    assert distance(spiky * (1 + 1e-7), spiky).worst < 2e-7


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_must_be_where_they_belong(value: float) -> None:
    want = np.array([1.0, value, 2.0])
    assert distance(want, want).within(0, 0)
    assert distance(np.array([1.0, 0.0, 2.0]), want).worst == np.inf
    assert distance(np.array([value, value, 2.0]), want).l2 == np.inf


def test_shapes_names_and_empty_tensors() -> None:
    assert distance(np.ones((3, 1)), np.ones(3)).l2 == np.inf
    assert distance(np.ones(0), np.ones(0)).within(0, 0)
    assert distance(np.zeros(3), np.zeros(3)).within(0, 0)
    with pytest.raises(AssertionError):
        assert_close({}, {"y": np.ones(3)}, 1.0, 1.0)
