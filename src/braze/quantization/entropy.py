"""Thresholds by relative entropy: where clipping loses least of what a histogram tells.

Both generations cut the histogram of |x| at every bin from `levels` on, quantize what is left to
`levels` levels, spread each level over its bins that are not empty, and compare that with the
histogram whose cut bins are counted in the last one left. They differ in what they leave open or
set right:

first: S. Migacz, "8-bit inference with TensorRT", GTC 2017, S7310, whose pseudo-code is followed to
the letter: the first of equal minima, and the middle of the bin behind the cut as threshold.

second: the calibrator that came with TensorRT 5.1 is published as the histogram calibrator of
NVIDIA's quantization toolkit for PyTorch (TensorRT 8 to 10, tools/pytorch-quantization, method
"entropy"): the bin at zero counts as much as its neighbour, since zeros cost nothing and hide the
rest; the last of equal minima; and the edge of the cut as threshold.

Where the number of bins is no multiple of `levels`, a level begins at each multiple of their ratio,
in both.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
LEVELS: Final = 128  # of int8 numbers for one sign


def first_generation(counts: Array, width: float, levels: int = LEVELS, stride: int = 1) -> float:
    """The threshold by TensorRT's first entropy calibration; see the module text."""
    cuts, found = divergences(np.asarray(counts, np.float64), levels, stride)
    return float((cuts[int(np.argmin(found))] + 0.5) * width)


def second_generation(counts: Array, width: float, levels: int = LEVELS, stride: int = 1) -> float:
    """The threshold by TensorRT's second entropy calibration; see the module text."""
    bins = np.asarray(counts, np.float64).copy()
    if len(bins) > 1:
        bins[0] = bins[1]
    cuts, found = divergences(bins, levels, stride)
    return float(cuts[len(found) - 1 - int(np.argmin(found[::-1]))] * width)


def divergences(bins: Array, levels: int, stride: int) -> tuple[Array, Array]:
    """(cuts, KL divergence in nats at each): cut i keeps the bins before i.

    A histogram of fewer bins than levels is not cut.
    """
    cuts = np.arange(min(levels, len(bins)), len(bins) + 1, stride)
    beyond = np.concatenate([np.cumsum(bins[::-1])[::-1], [0.0]])
    return cuts, np.array([_divergence(bins[:cut], beyond[cut], levels) for cut in cuts])


def _divergence(kept: Array, beyond: float, levels: int) -> float:
    """Between a cut histogram, with what was cut in its last bin, and itself quantized."""
    filled = kept != 0
    level = np.arange(len(kept)) * levels // len(kept)
    total = np.bincount(level, kept, levels)
    share = np.bincount(level, filled, levels)
    spread = np.divide(total, share, out=np.zeros(levels), where=share != 0)
    q = np.where(filled, spread[level], 0.0)
    p = kept.copy()
    p[-1] += beyond
    if not p.any():
        return 0.0
    if not q.any() or (beyond and not filled[-1]):
        return float("inf")
    p, q = p / p.sum(), q / q.sum()
    ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
    return float(np.sum(p * np.log(ratio)))
