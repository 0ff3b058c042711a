"""From a histogram to the range that is quantized: the calibration methods by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.core.errors import ConfigError
from braze.core.words import shown
from braze.quantization.entropy import LEVELS, first_generation, second_generation
from braze.quantization.histogram import Histogram

Array = np.ndarray[Any, Any]
METHODS: Final = ("entropy", "entropy1", "minmax", "average", "percentile", "mse")
FIRST_CUT: Final = 128  # bins that are never cut off when the squared error is searched


def in_range(value: object, low: float, high: float) -> bool:
    """Whether it is a number from `low` to `high`."""
    numbers = (int, float, np.integer, np.floating)
    return isinstance(value, numbers) and not isinstance(value, bool) and bool(low <= value <= high)


@dataclass(frozen=True, slots=True)
class Method:
    """How ranges are chosen. name: of METHODS; percentile: of `percentile`, from 0 to 100.

    entropy, entropy1: relative entropy, second and first generation (`entropy.py`);
    minmax: the extremes; average: the mean over batches of each batch's extremes (the moving
    average of ONNX Runtime's MinMaxCalibrater);
    percentile: the size that this share of all numbers does not exceed (TensorRT's legacy
    calibration; the formula is that of the histogram calibrator named in `entropy.py`);
    mse: the least squared error of the quantized histogram (`mse_threshold`).
    """

    name: str = "mse"
    percentile: float = 99.99

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in METHODS:
            raise ConfigError(
                f"calibration method {shown(self.name)} does not exist; use one of "
                f"{', '.join(METHODS)}"
            )
        if not in_range(self.percentile, 0, 100) or self.percentile == 0:
            raise ConfigError(f"percentile={shown(self.percentile)} is not above 0 and up to 100")


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that a grid covers; what lies outside is clipped."""

    low: float
    high: float

    @property
    def size(self) -> float:
        """The largest magnitude."""
        return max(-self.low, self.high)


def find_range(
    h: Histogram, method: Method, symmetric: bool = True, unsigned: bool = False
) -> Range:
    """The range by `method`: zero is in it, and else it is never wider than what was seen.

    symmetric: whether the grid will have its middle at zero; otherwise either end is clipped by
    itself where the method can do that (percentile), and the threshold clips both where it cannot.
    unsigned: whether numbers of one sign alone will have all levels of the grid.
    """
    if not h.seen:
        return Range(0.0, 0.0)
    if method.name == "average":
        return _with_zero(float(np.mean(h.lows)), float(np.mean(h.highs)))
    if method.name == "minmax":
        return _with_zero(h.low, h.high)
    if method.name == "percentile" and not symmetric:
        counts, edges = h.signed
        low, high = both_percentiles(counts, edges, method.percentile)
        return _with_zero(max(low, h.low), min(high, h.high))
    threshold = _threshold(h, method, unsigned and h.low >= 0)
    return _with_zero(max(-threshold, h.low), min(threshold, h.high))


def _with_zero(low: float, high: float) -> Range:
    return Range(min(low, 0.0), max(high, 0.0))


def _threshold(h: Histogram, method: Method, all_levels: bool) -> float:
    levels = 2 * LEVELS if all_levels else LEVELS
    counts, edges = h.sizes
    if method.name == "percentile":
        return percentile_threshold(counts, edges, method.percentile)
    if method.name == "mse":
        return mse_threshold(counts, edges, levels - 1)
    search = second_generation if method.name == "entropy" else first_generation
    return search(counts, float(edges[1]), levels)


def percentile_threshold(counts: Array, edges: Array, percentile: float) -> float:
    """The edge before the first bin up to whose end lie `percentile` of the numbers."""
    cumulative = np.cumsum(counts / counts.sum())
    return float(edges[np.searchsorted(cumulative, percentile / 100)])


def both_percentiles(counts: Array, edges: Array, percentile: float) -> tuple[float, float]:
    """The same for either end: half of the rest is cut at each (ONNX Runtime's calibrator)."""
    cumulative = np.cumsum(counts / counts.sum())
    cut = (100.0 - percentile) / 200.0
    low, high = np.searchsorted(cumulative, [cut, 1.0 - cut])
    return float(edges[low]), float(edges[high])


def mse_threshold(
    counts: Array, edges: Array, most: int, first: int = FIRST_CUT, stride: int = 1
) -> float:
    """The bin centre that, as the largest number, gives the least mean squared error.

    All numbers of a bin stand at its centre and are rounded to multiples of threshold / `most`, as
    in the histogram calibrator named in `entropy.py` (method "mse").
    """
    centres = (edges[1:] + edges[:-1]) / 2
    filled = counts > 0
    x, weight = centres[filled], counts[filled].astype(np.float64)
    best, least = float(centres[-1]), np.inf
    for threshold in centres[min(first, len(centres) - 1) :: stride]:
        scale = most / threshold
        rounded = np.clip(np.rint(x * scale), -most, most) / scale
        error = float(np.sum((rounded - x) ** 2 * weight))
        if error < least:
            best, least = float(threshold), error
    return best
