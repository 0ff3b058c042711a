"""Streaming histograms: growing ranges, bounded memory, odd numbers."""

from __future__ import annotations

import numpy as np

from braze.quantization.histogram import BINS, MOST_BINS, Histogram


def test_counts_are_those_of_all_numbers_at_once() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(0, 1 + k, 4000).astype(np.float32) for k in range(6)]
    h = Histogram()
    for batch in batches:
        h.add(batch)
    x = np.concatenate(batches)
    counts, edges = h.signed
    assert counts.sum() == x.size
    assert (h.low, h.high) == (x.min(), x.max())
    # a number that lies on an edge to float32's precision may be on either side of it
    want = np.histogram(x, edges.astype(np.float64))[0]
    assert np.abs(np.cumsum(counts) - np.cumsum(want)).max() <= 2
    sizes, ends = h.sizes
    assert sizes.sum() == x.size and len(sizes) <= BINS and ends[-1] >= np.abs(x).max()


def test_memory_is_bounded_however_far_the_range_grows() -> None:
    h = Histogram()
    for power in range(-20, 30):
        h.add(np.array([2.0**power, -(2.0**power)], np.float32))
        assert len(h.positive) == len(h.negative) <= MOST_BINS
    assert h.positive.sum() == h.negative.sum() == 50
    assert h.width * len(h.positive) >= 2.0**29


def test_zeros_first_and_odd_numbers() -> None:
    h = Histogram()
    h.add(np.zeros(7, np.float32))
    h.add(np.array([np.nan, np.inf, -np.inf], np.float32))
    h.add(np.zeros((0, 3), np.float32))
    h.add(np.array([2.0, np.nan, -1.0], np.float32))
    assert (h.odd, h.low, h.high) == (4, -1.0, 2.0)
    assert h.positive[0] == 7 and h.positive.sum() == 8 and h.negative.sum() == 1


def test_subnormal_numbers_have_a_width() -> None:
    h = Histogram()
    h.add(np.array([1e-40, -1e-42], np.float32))
    assert h.width > 0 and h.positive.sum() + h.negative.sum() == 2
