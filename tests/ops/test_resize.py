"""Resize and Upsample by every rule, against onnx.reference and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F32
from braze.core.errors import ShapeError, UnsupportedOpError
from braze.expr.scalar import Expr
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.lowering import View
from braze.ops.sample.resize import Resize
from tests.ops.harness import check, import_node, ints, ramp

COORDINATES = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
]


def _floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_by_sizes(coordinate: str, mode: str, dynamic: bool) -> None:
    x = ramp(1, 2, 5, 4)
    for size in ((8, 7), (3, 2), (1, 9)):
        if size[0] == 1 and coordinate == "pytorch_half_pixel":
            continue  # onnx.reference takes -0.5 where the specification says 0
        check(
            "Resize",
            [x, None, None, ints(1, 2, *size)],
            constant=[3],
            dynamic=dynamic,
            mode=mode,
            coordinate_transformation_mode=coordinate,
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_by_scales(coordinate: str, mode: str, dynamic: bool) -> None:
    x = ramp(1, 2, 5, 4)
    for scales in ((2.0, 3.0), (0.6, 0.5), (1.3, 2.5)):
        check(
            "Resize",
            [x, None, _floats(1, 1, *scales)],
            constant=[2],
            dynamic=dynamic,
            mode=mode,
            coordinate_transformation_mode=coordinate,
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("coordinate", ["half_pixel", "asymmetric", "align_corners"])
def test_nearest_modes(nearest: str, coordinate: str) -> None:
    x = ramp(1, 1, 6, 5)
    for size in ((12, 10), (7, 9), (3, 5), (4, 3)):
        check(
            "Resize",
            [x, None, None, ints(1, 1, *size)],
            constant=[3],
            nearest_mode=nearest,
            coordinate_transformation_mode=coordinate,
        )


def test_nearest_half_pixel_26_to_64() -> None:
    """12 of 64 positions differ from floor(i * in / out)."""
    x = np.arange(26, dtype=np.float32).reshape(1, 1, 26)
    (y,) = check("Resize", [x, None, None, ints(1, 1, 64)], constant=[3])
    assert int((y.reshape(-1) != np.floor(np.arange(64) * 26 / 64)).sum()) == 12


def test_tf_half_pixel_for_nn() -> None:
    """floor((i + 0.5) * in / out)."""
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    want = [x[..., np.floor((np.arange(4) + 0.5) * 6 / 4).astype(int)]]
    check(
        "Resize",
        [x, _floats(), _floats(), ints(1, 1, 4)],
        want,
        opset=11,
        constant=[1, 2, 3],
        nearest_mode="floor",
        coordinate_transformation_mode="tf_half_pixel_for_nn",
    )


def test_linear_rules_differ() -> None:
    """On an NHWC-like tensor the four rules give four results."""
    x = ramp(1, 6, 5, 2)
    results = [
        check(
            "Resize",
            [x, None, None, ints(1, 9, 11, 2)],
            constant=[3],
            mode="linear",
            coordinate_transformation_mode=c,
            rtol=1e-4,
            atol=1e-4,
        )[0]
        for c in ("align_corners", "asymmetric", "half_pixel")
    ]
    for i in range(3):
        assert not np.allclose(results[i], results[i - 1])


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller", "stretch"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_axes_and_aspect_policy(policy: str, mode: str) -> None:
    check(
        "Resize",
        [ramp(2, 4, 6, 3), None, None, ints(7, 8)],
        constant=[3],
        axes=[2, 1],
        mode=mode,
        keep_aspect_ratio_policy=policy,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop_and_resize(mode: str) -> None:
    roi = _floats(0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7)
    check(
        "Resize",
        [ramp(1, 1, 4, 4), roi, None, ints(1, 1, 3, 3)],
        constant=[1, 3],
        mode=mode,
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=10.0,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("outside", [0, 1])
@pytest.mark.parametrize("scales", [(0.5, 0.4), (0.8, 1.7)])
def test_antialias_and_exclude_outside(mode: str, outside: int, scales: tuple[float, ...]) -> None:
    for antialias in (0, 1):
        check(
            "Resize",
            [ramp(1, 1, 8, 9), None, _floats(1, 1, *scales)],
            constant=[2],
            mode=mode,
            antialias=antialias,
            exclude_outside=outside,
            rtol=1e-4,
            atol=1e-4,
        )


def test_opset_10_and_upsample() -> None:
    x = ramp(1, 1, 2, 4)
    down = [x[:, :, [0]][..., [0, 2]]]
    check("Resize", [x, _floats(1, 1, 0.6, 0.6)], down, opset=10, constant=[1])
    up = [x.repeat(2, 2).repeat(3, 3)]
    check("Resize", [x, _floats(1, 1, 2, 3)], up, opset=10, constant=[1])
    check("Upsample", [x, _floats(1, 1, 2, 3)], up, opset=9, constant=[1])
    check("Upsample", [x], up, opset=7, scales=[1.0, 1.0, 2.0, 3.0])
    row = np.array([[[0, 2]]], np.float32)
    want = [np.array([[[0, 1, 2, 2]]], np.float32)]
    check("Upsample", [row], want, opset=7, scales=[1.0, 1.0, 2.0], mode="linear")


def test_pytorch_half_pixel_of_one_output_takes_the_first_pixel() -> None:
    x = ramp(1, 1, 4)
    for mode in ("linear", "cubic"):
        check(
            "Resize",
            [x, None, None, ints(1, 1, 1)],
            [x[..., :1]],
            constant=[3],
            mode=mode,
            coordinate_transformation_mode="pytorch_half_pixel",
        )


def test_empty_optional_inputs() -> None:
    """Roi and scales given as empty tensors."""
    empty = np.zeros(0, np.float32)
    x = ramp(1, 2, 4, 4)
    want = [x.repeat(2, 2).repeat(2, 3)]
    check("Resize", [x, empty, empty, ints(1, 2, 8, 8)], want, opset=13, constant=[1, 2, 3])


def test_whole_factor_is_a_division_of_the_index() -> None:
    """Doubling a symbolic size, given as scale or as size, divides the index by 2."""
    h = sym("h")
    g = GraphBuilder()
    x = TensorType(F32, (1, 2, h, 4))
    for scales in ((None,) * 4, (None, None, 2.0, None)):
        op = Resize("nearest", (1, 2, h * 2, 4), scales, "asymmetric", "floor")
        low = op.lower([x], op.infer([x], g))
        assert isinstance(low, View) and low.inside is None
        assert _ops(low.index[2]) == {"floordiv", "axis", "const"}
        assert _ops(low.index[3]) == {"axis"}
    op = Resize("nearest", (1, 2, h * 2, 4), (None,) * 4, "half_pixel", "floor")
    low = op.lower([x], op.infer([x], g))
    assert isinstance(low, View) and "div" in _ops(low.index[2])


def _ops(e: Expr) -> set[str]:
    return {e.op}.union(*(_ops(a) for a in e.args))


def test_integers_are_truncated() -> None:
    x = np.array([[[0, 5, 255]]], np.uint8)
    (y,) = check(
        "Resize",
        [x, None, None, ints(1, 1, 5)],
        [np.array([[[0, 2, 5, 130, 255]]], np.uint8)],
        constant=[3],
        mode="linear",
        coordinate_transformation_mode="align_corners",
    )
    assert y.dtype == np.uint8


@pytest.mark.parametrize(
    ("inputs", "attrs", "error"),
    [
        ([ints(1, 1, 8)], {"keep_aspect_ratio_policy": "not_bigger"}, UnsupportedOpError),
        ([ints(1, 8)], {}, ShapeError),
        ([ints(1, 1, 8)], {"mode": "lanczos"}, UnsupportedOpError),
        ([ints(1, 1, 8)], {"axes": [2]}, ShapeError),
    ],
)
def test_refusals(inputs: Any, attrs: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        import_node("Resize", [ramp(1, 1, 4), None, None, *inputs], opset=19, constant=[3], **attrs)
