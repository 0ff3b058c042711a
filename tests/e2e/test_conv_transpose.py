"""Transposed convolutions as plain ones: by phases, by tiles, and with zeros between pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import braze
from tests.e2e.models import make, rand

# name: input shape, weight shape, attributes
FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "vocoder": ((2, 6, 11), (6, 4, 16), {"strides": [8], "pads": [4, 4]}),
    "taps that do not divide": ((1, 6, 9), (6, 4, 5), {"strides": [3], "pads": [1, 0]}),
    "fewer taps than steps": ((1, 6, 9), (6, 4, 2), {"strides": [3]}),
    "more at the end": ((1, 6, 9), (6, 4, 4), {"strides": [3], "output_padding": [2]}),
    "beyond the phases": ((1, 6, 9), (6, 4, 4), {"strides": [4], "output_padding": [3]}),
    "plane": ((2, 5, 4, 7), (5, 3, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "uneven": ((1, 5, 4, 7), (5, 3, 5, 2), {"strides": [3, 1], "pads": [2, 0, 0, 1]}),
    "groups": ((1, 8, 4, 5), (8, 3, 5, 4), {"strides": [3, 2], "pads": [0, 1, 2, 0], "group": 4}),
    "3x3": ((1, 20, 5, 6), (20, 18, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "tiles": ((1, 5, 4, 7), (5, 3, 2, 2), {"strides": [2, 2]}),
    "dilated": ((1, 5, 4, 7), (5, 3, 2, 3), {"strides": [2, 2], "dilations": [2, 1]}),
}


def right(x: np.ndarray, w: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """In float64: every input element times every tap, added to the place it reaches."""
    rank, groups = x.ndim - 2, attributes.get("group", 1)
    ones, zeros = [1] * rank, [0] * rank
    steps, spread = attributes.get("strides", ones), attributes.get("dilations", ones)
    pads, more = attributes.get("pads", zeros * 2), attributes.get("output_padding", zeros)
    sizes = zip(x.shape[2:], steps, w.shape[2:], spread, more, strict=True)
    full = [(n - 1) * s + (k - 1) * d + 1 + extra for n, s, k, d, extra in sizes]
    y = np.zeros((x.shape[0], groups, w.shape[1], *full))
    parts = x.astype(np.float64).reshape(x.shape[0], groups, -1, *x.shape[2:])
    taps = w.astype(np.float64).reshape(groups, -1, *w.shape[1:])
    for at in np.ndindex(*x.shape[2:]):
        made = np.einsum("ngc,gck...->ngk...", parts[(..., *at)], taps)
        first = [i * s for i, s in zip(at, steps, strict=True)]
        reach = zip(first, w.shape[2:], spread, strict=True)
        y[(..., *(slice(i, i + (k - 1) * d + 1, d) for i, k, d in reach))] += made
    cut = (slice(lo, n - hi) for lo, hi, n in zip(pads[:rank], pads[rank:], full, strict=True))
    return y.reshape(x.shape[0], -1, *full)[(..., *cut)]


# with fixed sizes at both levels, with an open one at either in turn
@pytest.mark.parametrize(
    ("name", "dynamic", "levels"),
    [(name, False, (0, 2)) for name in FORMS]
    + [(name, True, (i % 2 * 2,)) for i, name in enumerate(FORMS)],
)
def test_forms(name: str, dynamic: bool, levels: tuple[int, ...]) -> None:
    shape, weight, attributes = FORMS[name]
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    filters = weight[1] * attributes.get("group", 1)
    weights = {"w": rand(*weight, seed=1), "b": rand(filters, seed=2)}
    declared = (*shape[:2], "l", *shape[3:]) if dynamic else shape
    options: dict[str, Any] = {}
    if dynamic:
        sizes = [(*shape[:2], n, *shape[3:]) for n in (1, shape[2], 12)]
        options["shapes"] = {"x": tuple(sizes)}
    model = make(nodes, {"x": declared}, ["y"], weights)
    x = {"x": rand(*shape, seed=3)}
    bias = weights["b"].reshape(-1, *[1] * (len(shape) - 2))
    want = np.maximum(right(x["x"], weights["w"], attributes) + bias, 0)
    for level in levels:
        got = braze.build(model, optimization_level=level, **options)(x)["y"]
        # sums of at most 180 products of normal values; F(4, 3) has four times the rounding error
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
