"""Infinities, NaN and huge numbers stay where they belong: in the outputs that see them.

Whatever a kernel adds for its own sake (padding, tails, masks, transforms, folded factors) must not
carry them further, and must not lose them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import braze
from tests.meta.small_models import model

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
FAR = (np.inf, -np.inf, np.nan, 1e9, -1e9)


def values(*shape: int, scale: float = 1.0) -> Array:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


Case = Callable[[], tuple[Array, list[Any], dict[str, Array]]]


def layer(op: str, x: tuple[int, ...], w: tuple[int, ...] = (), **attributes: Any) -> Case:
    """One op with a weight, between a factor and a rectifier."""

    def make() -> tuple[Array, list[Any], dict[str, Array]]:
        names = ["x", "w"] if w else ["x"]
        nodes = [
            helper.make_node(op, names, ["s"], **attributes),
            helper.make_node("Mul", ["s", "factor"], ["m"]),
            helper.make_node("LeakyRelu", ["m"], ["y"]),
        ]
        constants = {"factor": np.float32(1.5) * np.ones(1, np.float32)}
        return values(*x), nodes, constants | ({"w": values(*w, scale=0.2)} if w else {})

    return make


def attention() -> tuple[Array, list[Any], dict[str, Array]]:
    nodes = [
        helper.make_node("MatMul", ["x", "k"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["t"]),
        helper.make_node("Softmax", ["t"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    mask = np.where(RNG.random((11, 21)) < 0.3, -np.inf, 0).astype(np.float32)
    constants = {"k": values(1, 2, 16, 21), "v": values(1, 2, 21, 16), "mask": mask}
    return values(1, 2, 11, 16), nodes, constants


def masked_taps() -> tuple[Array, list[Any], dict[str, Array]]:
    weight = np.zeros((17, 20, 3, 3), np.float32)
    weight[:, :, 1, 1] = values(17, 20)
    return values(1, 20, 9, 9), [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], {
        "w": weight
    }  # fmt: skip


SAME = {"pads": [1] * 4}
CASES: dict[str, Case] = {
    "3x3": layer("Conv", (2, 16, 9, 10), (19, 16, 3, 3), **SAME),
    "3x3, wide": layer("Conv", (1, 40, 13, 12), (35, 40, 3, 3), **SAME),
    "3x3, three channels": layer("Conv", (1, 3, 14, 15), (8, 3, 3, 3), **SAME),
    "3x3, dilated": layer("Conv", (1, 20, 9, 9), (18, 20, 3, 3), dilations=[2, 2]),
    "taps of zeros": masked_taps,
    "stem": layer("Conv", (1, 3, 32, 33), (32, 3, 7, 7), pads=[3] * 4, strides=[2, 2]),
    "patches": layer("Conv", (1, 3, 32, 32), (32, 3, 4, 4), strides=[4, 4]),
    "1x1": layer("Conv", (2, 19, 7, 6), (17, 19, 1, 1)),
    "grouped": layer("Conv", (1, 24, 8, 9), (24, 6, 3, 3), group=4, **SAME),
    "depthwise": layer("Conv", (1, 35, 12, 13), (35, 1, 5, 5), group=35, pads=[2] * 4),
    "one axis": layer("Conv", (2, 5, 30), (9, 5, 5), pads=[2, 2]),
    "three axes": layer("Conv", (1, 3, 5, 6, 7), (7, 3, 3, 3, 3), pads=[1] * 6),
    "transposed": layer("ConvTranspose", (1, 20, 7, 8), (20, 17, 4, 4), strides=[2, 2], **SAME),
    "transposed, gaps": layer("ConvTranspose", (1, 6, 7, 8), (6, 5, 3, 3), strides=[4, 4]),
    "transposed, as 3x3": layer("ConvTranspose", (1, 20, 7, 8), (20, 17, 3, 3), **SAME),
    "product": layer("MatMul", (7, 333), (333, 29)),
    "average": layer("AveragePool", (2, 18, 9, 10), kernel_shape=[3, 3], **SAME),
    "maximum": layer("MaxPool", (2, 18, 9, 10), kernel_shape=[3, 3], strides=[2, 2], **SAME),
    "softmax": layer("Softmax", (3, 5, 37)),
    "attention": attention,
}  # fmt: skip


def pattern(x: Array) -> Array:
    """3 for NaN, 1 and 2 for the infinities, 0 for numbers."""
    return np.select([np.isnan(x), x == np.inf, x == -np.inf], [3, 1, 2])


@pytest.mark.parametrize("name", CASES)
def test_far_numbers_stay_where_they_belong(name: str) -> None:
    x, nodes, constants = CASES[name]()
    source: ModelProto = model(nodes, {"x": (TensorProto.FLOAT, x.shape)}, ["y"], constants)
    reference = braze.build(source, target="reference", optimization_level=0)
    engines = [braze.build(source, optimization_level=level, threads=2) for level in (0, 2)]
    plain = reference({"x": x})["y"]
    clean = [engine({"x": x})["y"] for engine in engines]
    room = 1e-4 * np.abs(plain).max()
    for value in FAR:
        for place in (0, x.size // 3, x.size - 1):
            given = x.copy()
            given.reshape(-1)[place] = value
            with np.errstate(all="ignore"):
                want = reference({"x": given})["y"]
            apart = np.isfinite(want) & (want == plain)
            for engine, before in zip(engines, clean, strict=True):
                got = engine({"x": given})["y"]
                np.testing.assert_array_equal(pattern(got), pattern(want), f"{value} at {place}")
                np.testing.assert_allclose(got[apart], before[apart], rtol=0, atol=room)
