"""Ops of com.microsoft that stand alone: regions of images, n-grams, half spectra, inverses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
from braze.core.errors import BrazeError
from tests.contributed.peer import feeds_of, node_model, run_braze, run_peer

X = np.random.default_rng(0).standard_normal((2, 3, 7, 6)).astype("f")
# whole, a part, over the edge, upside down, a point
REGIONS = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.6, 0.7], [-0.3, 0.5, 0.5, 1.4], [0.9, 0.8, 0.2, 0.1],
                    [0.4, 0.3, 0.4, 0.3]], np.float32)  # fmt: skip
IMAGES = np.array([0, 1, 1, 0, 1], np.int32)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(2, 3), (1, 1), (7, 1)])
@pytest.mark.parametrize("constant", [(3,), ()])
def test_crop_and_resize(mode: str, size: tuple[int, int], constant: tuple[int, ...]) -> None:
    """The size is known to the build, or to the run alone."""
    inputs = [X, REGIONS, IMAGES, np.array(size, np.int32)]
    model = node_model("CropAndResize", inputs, constant=constant, mode=mode,
                       extrapolation_value=9.0, symbols={1: (0,), 2: (0,)})  # fmt: skip
    feeds = feeds_of(inputs, constant)
    [want] = run_peer(model, feeds)
    engines = [braze.build(model, target=t, optimization_level=1) for t in ("cpu", "reference")]
    for engine in engines:
        got = engine(feeds)["y0"]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, 1e-4, 1e-5)  # positions in float32
    none = {**feeds, "x1": REGIONS[:0], "x2": IMAGES[:0]}
    assert engines[0](none)["y0"].shape == (0, 3, *size)


TEXTS = [[1, 2, 3, 1, 2], [4, 4, 4, 4, 4], [1, 2, 3, 4, 0], [2, 1, 2, 1, 2]]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ngrams_that_would_be_repeated(size: int) -> None:
    text = np.array(TEXTS)
    scores = np.random.default_rng(1).standard_normal((4, 6)).astype("f")
    model = node_model("NGramRepeatBlock", [text, scores], symbols={0: (0, 1), 1: (0,)},
                       ngram_size=size)  # fmt: skip
    engines = [braze.build(model, target=t, optimization_level=1) for t in ("cpu", "reference")]
    for length in (5, 3, 1):
        feeds = {"x0": text[:, :length], "x1": scores}
        static = node_model("NGramRepeatBlock", list(feeds.values()), ngram_size=size)
        [want] = run_peer(static, feeds)
        found = [e(feeds)["y0"] for e in engines]
        found += [outputs[0] for outputs in run_braze(static, feeds, engine=False).values()]
        for got in found:
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 4, 4), (2, 3, 9, 9), (0, 3, 3)])
def test_inverses(shape: tuple[int, ...]) -> None:
    """Of matrices that need pivots: the first diagonal is 0."""
    x = np.random.default_rng(sum(shape)).standard_normal(shape).astype("f")
    if shape[-1] > 1:
        x[..., 0, 0] = 0
    model = node_model("Inverse", [x], symbols={0: (len(shape) - 2, len(shape) - 1)})
    want = np.linalg.inv(x.astype("f8"))
    # float32 loses as many digits as the condition number has
    worst = np.max(np.linalg.cond(x.astype("f8")), initial=1) * np.abs(want).max(initial=1)
    for target in ("cpu", "reference"):
        got = braze.build(model, target=target, optimization_level=1)({"x0": x})["y0"]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, 0, 4e-7 * worst)


@pytest.mark.parametrize("dtype", ["f2", "f8"])
def test_types_of_inverses(dtype: str) -> None:
    x = np.array([[0, 2, 1], [1, 1, 0], [3, 0, 1]], dtype)
    got = braze.build(node_model("Inverse", [x]), optimization_level=1)({"x0": x})["y0"]
    assert got.dtype == dtype
    limit = 1e-3 if dtype == "f2" else 1e-14  # one rounding to 11 bits; a dozen operations
    np.testing.assert_allclose(got, np.linalg.inv(x.astype("f8")), limit, limit)


def test_a_singular_matrix_has_no_finite_inverse() -> None:
    x = np.ones((2, 2), np.float32)
    got = braze.build(node_model("Inverse", [x]), optimization_level=1)({"x0": x})["y0"]
    assert not np.isfinite(got).any()


@pytest.mark.parametrize("shape", [(8,), (3, 7), (2, 4, 10)])
@pytest.mark.parametrize("axes", [1, 2])
def test_half_spectra(shape: tuple[int, ...], axes: int) -> None:
    if axes > len(shape):
        return
    x = np.random.default_rng(2).standard_normal(shape).astype("f")
    y = np.fft.rfftn(x, axes=range(-axes, 0))
    want = np.stack([y.real, y.imag], -1)
    options = {"normalized": 0, "onesided": 1, "signal_ndim": axes}
    for got in run_braze(node_model("Rfft", [x], **options), {"x0": x}).values():
        assert got[0].shape == want.shape
        np.testing.assert_allclose(got[0], want, 0, 2e-5)  # sums of 40 numbers around 1
    half = want.astype("f")
    # of an odd number of samples one less comes back, as the spectrum does not say which it was
    back = np.fft.irfftn(y, s=(*shape[-axes:-1], shape[-1] // 2 * 2), axes=range(-axes, 0))
    for got in run_braze(node_model("Irfft", [half], **options), {"x0": half}).values():
        assert got[0].shape == back.shape
        np.testing.assert_allclose(got[0], back, 0, 2e-5)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "why"),
    [
        ("CropAndResize", [X, REGIONS, IMAGES, np.array([2, 3], "i4")], {"mode": "cubic"}, "cubic"),
        ("NGramRepeatBlock", [np.array(TEXTS), np.zeros((4, 6), "f")], {"ngram_size": 0}, "1 or"),
        ("Rfft", [np.zeros(4, "f")], {"onesided": 0}, "two-sided"),
        ("Irfft", [np.zeros((4, 3), "f")], {}, "must be 2"),
        ("Inverse", [np.zeros((2, 3), "f")], {}, "sizes 3 and 2 differ"),
        ("Inverse", [np.zeros(3, "f")], {}, "no stack of matrices"),
    ],
)
def test_what_does_not_fit_is_refused(
    op: str, inputs: list[Any], attributes: dict[str, Any], why: str
) -> None:
    model = node_model(op, inputs, constant=range(3, len(inputs)), **attributes)
    with pytest.raises(BrazeError, match=why):
        braze.build(model)
