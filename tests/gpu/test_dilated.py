"""Dilated convolutions whose windows begin before the image: indices of several small parts, some
of them negative, which compilers pack into pairs."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

import braze
from tests.meta import small_models

# three passes of TF32 over up to 225 products of numbers near 1, relative to the largest result
TOLERANCE = 2e-5


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("channels", [(3, 2), (3, 40), (8, 16)], ids=str)
@pytest.mark.parametrize(
    ("taps", "dilations", "pads"),
    [
        ((5, 3, 5), (1, 2, 1), (1, 0, 2, 1, 0, 2)),
        ((3, 3, 3), (2, 1, 2), (2, 1, 2, 2, 1, 2)),
        ((2, 5, 3), (1, 1, 2), (0, 2, 1, 1, 2, 3)),
        ((5, 5), (1, 2), (2, 3, 2, 4)),
        ((3, 7), (2, 1), (2, 3, 2, 3)),
        ((7,), (2,), (5, 6)),
    ],
    ids=str,
)
def test_windows_before_the_image(
    taps: tuple[int, ...], dilations: tuple[int, ...], pads: tuple[int, ...],
    channels: tuple[int, int], level: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(0)
    image = (1, channels[0], *(7, 20, 6)[: len(taps)])
    weight = rng.standard_normal((channels[1], channels[0], *taps)).astype(np.float32)
    weight /= np.float32(math.sqrt(weight[0].size))
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], dilations=dilations, pads=pads)
    inputs = {"x": (onnx.TensorProto.FLOAT, image)}
    model = small_models.model([node], inputs, ["y"], {"w": weight})
    x = rng.standard_normal(image).astype(np.float32)
    got = braze.build(model, target="cuda", optimization_level=level)({"x": x})["y"]
    want = braze.build(model, target="reference", optimization_level=level)({"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * float(np.abs(want).max()))
