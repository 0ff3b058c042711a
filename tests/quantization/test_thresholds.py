"""Calibration methods beside independent implementations, on the same histograms, bin for bin.

`histograms.npz` holds counts of |x| in 2048 bins: twelve made distributions and fifteen tensors of
real networks. `thresholds.json` has what others find in them: "second", "mse" and "percentile" are
the bins that the histogram calibrator of NVIDIA's ModelOpt 0.47 chooses (_u8: unsigned; _stride:
every 16th cut from 128 on), "first_128" that of PPQ 0.6.6's KL observer, which follows the
published pseudo-code with cuts at multiples of 128, without its mending of the first bins.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from braze.quantization.entropy import divergences, first_generation, second_generation
from braze.quantization.histogram import Histogram
from braze.quantization.thresholds import (
    METHODS,
    Method,
    Range,
    both_percentiles,
    find_range,
    mse_threshold,
    percentile_threshold,
)

Array = np.ndarray[Any, Any]
HERE = Path(__file__).parent
EXPECTED: dict[str, dict[str, float]] = json.loads((HERE / "thresholds.json").read_text())


@functools.cache
def _held() -> dict[str, Array]:
    with np.load(HERE / "histograms.npz") as file:
        return dict(file)


@pytest.mark.parametrize("name", EXPECTED)
def test_methods_choose_the_bins_that_others_choose(name: str) -> None:
    counts, want = _held()[name], EXPECTED[name]
    width = want["width"]
    edges = np.arange(len(counts) + 1) * width
    assert second_generation(counts, 1.0) == want["second"]
    assert second_generation(counts, 1.0, levels=256) == want["second_u8"]
    assert second_generation(counts, 1.0, stride=16) == want["second_stride"]
    found = first_generation(counts, 1.0, stride=128) - 0.5
    cuts, errors = divergences(counts.astype(np.float64), 128, 128)
    # theirs adds 1e-30 under the logarithm, so that a cut at an empty bin is not infinitely wrong
    at_empty_bin = errors[list(cuts).index(want["first_128"])] == np.inf
    assert found == want["first_128"] or at_empty_bin
    for share in (99.0, 99.9, 99.99, 99.999):
        found = percentile_threshold(counts, edges, share)
        assert found == edges[int(want[f"percentile_{share}"])]
    # their sums are of float32: a neighbour's error may be equal to its precision
    for name_, most in (("mse", 127), ("mse_u8", 255)):
        found = mse_threshold(counts, edges, most) / width - 0.5
        assert found == pytest.approx(want[name_], abs=0.01), name_


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("share", [99.0, 99.99, 99.999])
def test_percentiles_are_those_of_onnxruntime(symmetric: bool, share: float) -> None:
    calibrate = pytest.importorskip("onnxruntime.quantization.calibrate")
    rng = np.random.default_rng(3)
    batches = [rng.gamma(2, size=5000).astype(np.float32) - 1 for _ in range(4)]
    peer = calibrate.HistogramCollector("percentile", symmetric, 2048, 128, share, "same")
    peer.collect({"x": batches})
    low, high = peer.compute_percentile()["x"][:2]
    counts, edges = peer.histogram_dict["x"][:2]
    x = np.concatenate(batches)
    if symmetric:
        got = percentile_threshold(counts, edges, share)
        assert (max(-got, x.min()), min(got, x.max())) == (float(low), float(high))
    else:
        found = both_percentiles(counts, edges, share)
        assert (max(found[0], x.min()), min(found[1], x.max())) == (float(low), float(high))


def test_average_is_that_of_onnxruntime() -> None:
    """Its moving average of extremes, over batches of the same weight."""
    h = Histogram()
    batches = [np.array([-1.0, k, 3.0 * k], np.float32) for k in range(1, 5)]
    for batch in batches:
        h.add(batch)
    assert find_range(h, Method("average")) == Range(-1.0, np.mean([b.max() for b in batches]))
    assert find_range(h, Method("minmax")) == Range(-1.0, 12.0)


def test_divergence_is_that_of_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    bins = rng.integers(0, 5, 40).astype(np.float64)
    cuts, found = divergences(bins, 8, 1)
    for cut, got in zip(cuts, found, strict=True):
        p, q = list(bins[:cut]), [0.0] * int(cut)
        for level in range(8):
            members = [i for i in range(cut) if i * 8 // cut == level and bins[i]]
            for i in members:
                q[i] = sum(bins[j] for j in members) / len(members)
        p[-1] += bins[cut:].sum()
        a, b = np.array(p) / sum(p), np.array(q) / sum(q)
        if any(x and not y for x, y in zip(a, b, strict=True)):
            assert got == np.inf
        else:
            want = sum(x * np.log(x / y) for x, y in zip(a, b, strict=True) if x)
            assert got == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("symmetric", [True, False])
def test_ranges_lie_within_what_was_seen(name: str, symmetric: bool) -> None:
    rng = np.random.default_rng(1)
    for data in (rng.normal(size=9000), np.abs(rng.normal(size=9000)), np.zeros(5), np.ones(1)):
        h = Histogram()
        h.add(data.astype(np.float32))
        r = find_range(h, Method(name), symmetric)
        assert min(0, h.low) <= r.low <= r.high <= max(0, h.high)
    assert find_range(Histogram(), Method(name)) == Range(0.0, 0.0)
