"""Streaming histograms of tensors: what calibration keeps of all numbers that it saw.

Memory is bounded whatever the data is: a tensor costs `MOST_BINS` counts for either sign.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
BINS: Final = 2048  # over the sizes of the first batch
MOST_BINS: Final = 2 * BINS
LEAST_WIDTH: Final = float(np.finfo(np.float32).tiny)


@dataclass
class Histogram:
    """Counts of |x| in bins of one width from 0 on, for x < 0 and x >= 0 apart.

    The first numbers fill `bins` bins. Larger ones later append bins of the same width; where that
    would be more than `most`, neighbours are merged first, so that a bin is twice as wide.
    low, high: the extremes of all numbers; lows, highs: those of each batch; NaN and infinities
    are counted in `odd` and left out of all else.
    """

    bins: int = BINS
    most: int = MOST_BINS
    width: float = 0.0
    negative: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    positive: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    low: float = float("inf")
    high: float = float("-inf")
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    odd: int = 0

    def add(self, array: Array) -> None:
        """Count the numbers of one batch."""
        x = np.asarray(array, np.float32).reshape(-1)
        if not x.size:
            return
        low, high = float(x.min()), float(x.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            finite = x[np.isfinite(x)]
            self.odd += x.size - finite.size
            x = finite
            if not x.size:
                return
            low, high = float(x.min()), float(x.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.lows.append(low)
        self.highs.append(high)
        self._reach(max(-low, high))
        last = len(self.positive) - 1
        below = x < 0
        where = np.minimum(np.abs(x) / np.float32(self.width), last).astype(np.int64)
        self.negative += np.bincount(where[below], minlength=last + 1)
        self.positive += np.bincount(where[~below], minlength=last + 1)

    def _reach(self, size: float) -> None:
        """Make room for a number of this size."""
        if not self.width:
            if size:
                zeros = int(self.positive.sum())
                self.width = max(size / self.bins, LEAST_WIDTH)
                self.negative, self.positive = np.zeros((2, self.bins), np.int64)
                self.positive[0] = zeros
            elif not len(self.positive):
                self.negative, self.positive = np.zeros((2, 1), np.int64)
        if not self.width:
            self.width = LEAST_WIDTH  # nothing but zeros so far
        while size > self.width * self.most:
            self.negative, self.positive = _halved(self.negative), _halved(self.positive)
            self.width *= 2
        more = int(np.ceil(size / self.width)) - len(self.positive)
        if more > 0:
            self.negative, self.positive = (
                np.pad(a, (0, more)) for a in (self.negative, self.positive)
            )

    @property
    def sizes(self) -> tuple[Array, Array]:
        """Counts of |x| in at most `bins` bins, and the edges of these."""
        counts, width = self.negative + self.positive, self.width
        while len(counts) > self.bins:
            counts, width = _halved(counts), width * 2
        return counts, np.arange(len(counts) + 1) * width

    @property
    def signed(self) -> tuple[Array, Array]:
        """Counts and edges of x, from the least to the largest number."""
        edges = np.arange(len(self.positive) + 1) * self.width
        return (
            np.concatenate([self.negative[::-1], self.positive]),
            np.concatenate([-edges[:0:-1], edges]),
        )

    @property
    def seen(self) -> bool:
        """Whether there was any number."""
        return bool(self.highs)


def _halved(counts: Array) -> Array:
    """Neighbours merged."""
    even = np.pad(counts, (0, len(counts) % 2))
    return np.asarray(even.reshape(-1, 2).sum(1))
