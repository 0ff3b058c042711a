"""Resize and grid sampling against numpy; fills and constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from tests.tensorrt.networks import check, floats, new_network, outputs_of

T, R, S = trt.ResizeCoordinateTransformation, trt.ResizeRoundMode, trt.SampleMode
M, F = trt.InterpolationMode, trt.FillOperation


def places(size: int, target: int, kind: Any) -> Any:
    """Which place of the input each element of the output reads."""
    at = np.arange(target, dtype=np.float64)
    if kind is T.ALIGN_CORNERS:
        return at * (size - 1) / (target - 1) if target > 1 else at * 0
    scale = target / size
    return at / scale if kind is T.ASYMMETRIC else (at + 0.5) / scale - 0.5


def weights(size: int, target: int, kind: Any, mode: Any, rounding: Any) -> Any:
    """The matrix of a resize of one axis."""
    rows = np.zeros((target, size))
    for row, at in zip(rows, places(size, target, kind), strict=True):
        if mode is M.NEAREST:
            whole = {
                R.HALF_UP: math.floor(at + 0.5), R.HALF_DOWN: math.ceil(at - 0.5),
                R.FLOOR: math.floor(at), R.CEIL: math.ceil(at),
            }[rounding]  # fmt: skip
            row[min(max(whole, 0), size - 1)] = 1
            continue
        low = math.floor(at)
        reach = (0, 1) if mode is M.LINEAR else (-1, 0, 1, 2)
        for step in reach:
            distance = abs(at - low - step)
            share = 1 - distance if mode is M.LINEAR else cubic(distance)
            row[min(max(low + step, 0), size - 1)] += share
    return rows


def cubic(t: float, a: float = -0.75) -> float:
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a


@pytest.mark.parametrize("mode", list(M), ids=lambda m: m.name)
def test_resizes(mode: Any) -> None:
    x = floats(1, 2, 5, 6)
    roundings = list(R) if mode is M.NEAREST else [R.FLOOR]
    targets = {"up": (8, 15), "down": (3, 4)}

    def make(network: Any, inputs: Any) -> Any:
        made = {}
        for name, target in targets.items():
            for kind in T:
                for rounding in roundings:
                    layer = network.add_resize(inputs["x"])
                    assert layer.coordinate_transformation is T.ASYMMETRIC
                    layer.shape, layer.resize_mode = (-1, 2, *target), mode
                    layer.coordinate_transformation = kind
                    layer.nearest_rounding = rounding
                    made[f"{name}_{kind.name}_{rounding.name}"] = layer.get_output(0)
        return made

    expected = {}
    for name, (h, w) in targets.items():
        for kind in T:
            for rounding in roundings:
                rows, columns = (weights(n, t, kind, mode, rounding) for n, t in ((5, h), (6, w)))
                result = np.einsum("hi,nciw,vw->nchv", rows, x.astype(np.float64), columns)
                expected[f"{name}_{kind.name}_{rounding.name}"] = result.astype(np.float32)
    check(make, {"x": x}, expected, rtol=1e-4, atol=1e-5, dynamic=mode is M.LINEAR)


def test_resizes_by_scales_and_by_tensors() -> None:
    x = floats(2, 3, 4, 5)

    def make(network: Any, inputs: Any) -> Any:
        scales, tensor = network.add_resize(inputs["x"]), network.add_resize(inputs["x"])
        scales.scales = [1, 1, 2, 2]
        assert scales.scales == [1, 1, 2, 2] and tensor.selector_for_single_pixel is not None
        shape = network.add_shape(inputs["x"]).get_output(0)
        factor = network.add_constant((4,), np.array([1, 1, 3, 1], np.int64)).get_output(0)
        wanted = network.add_elementwise(shape, factor, trt.ElementWiseOperation.PROD)
        tensor.set_input(1, wanted.get_output(0))
        return {"scales": scales.get_output(0), "tensor": tensor.get_output(0)}

    expected = {"scales": x.repeat(2, 2).repeat(2, 3), "tensor": x.repeat(3, 2)}
    check(make, {"x": x}, expected)


def read(x: Any, row: int, column: int, mode: Any) -> Any:
    """An element at a place, or what stands for it beyond the ends."""
    at = []
    for place, size in ((row, x.shape[1]), (column, x.shape[2])):
        if mode is S.FILL and not 0 <= place < size:
            return np.zeros(x.shape[0])
        at.append(min(max(place, 0), size - 1))
    return x[:, at[0], at[1]]


@pytest.mark.parametrize("aligned", [False, True])
def test_grid_samples(aligned: bool) -> None:
    x = floats(2, 3, 4, 5)
    grid = np.random.default_rng(1).uniform(-1.3, 1.3, (2, 3, 2, 2)).astype(np.float32)

    def make(network: Any, inputs: Any) -> Any:
        made = {}
        for mode in (S.FILL, S.CLAMP):
            layer = network.add_grid_sample(inputs["x"], inputs["grid"])
            assert layer.interpolation_mode is M.LINEAR and layer.sample_mode is S.FILL
            layer.sample_mode, layer.align_corners = mode, aligned
            made[mode.name] = layer.get_output(0)
        return made

    expected = {m.name: np.zeros((2, 3, 3, 2), np.float32) for m in (S.FILL, S.CLAMP)}
    sizes = np.array([5, 4])
    for n, i, j in np.ndindex(2, 3, 2):
        g = grid[n, i, j].astype(np.float64)
        at = (g + 1) / 2 * (sizes - 1) if aligned else ((g + 1) * sizes - 1) / 2
        low = np.floor(at).astype(int)
        share = at - low
        for mode in (S.FILL, S.CLAMP):
            total = np.zeros(3)
            for dy, dx in np.ndindex(2, 2):
                part = (share[0] if dx else 1 - share[0]) * (share[1] if dy else 1 - share[1])
                total += part * read(x[n], low[1] + dy, low[0] + dx, mode)
            expected[mode.name][n, :, i, j] = total
    check(make, {"x": x, "grid": grid}, expected, rtol=1e-4, atol=1e-5)


def test_fills() -> None:
    x = floats(3, 4)

    def make(network: Any, inputs: Any) -> Any:
        row = network.add_fill((5,), F.LINSPACE)
        row.alpha, row.beta = 2.0, 0.5
        whole = network.add_fill((4,), F.LINSPACE, trt.int32)
        whole.alpha, whole.beta = 3, 2
        assert whole.to_type is trt.int32 and whole.is_alpha_beta_int64
        plane = network.add_fill((1,), F.LINSPACE)
        plane.set_input(0, network.add_shape(inputs["x"]).get_output(0))
        plane.set_input(1, network.add_constant((), np.array([1], np.float32)).get_output(0))
        plane.set_input(2, network.add_constant((2,), np.array([10, 2], np.float32)).get_output(0))
        return {
            "row": row.get_output(0),
            "whole": whole.get_output(0),
            "plane": plane.get_output(0),
        }

    expected = {
        "row": 2 + 0.5 * np.arange(5, dtype=np.float32),
        "whole": 3 + 2 * np.arange(4, dtype=np.int32),
        "plane": (1 + 10 * np.arange(3)[:, None] + 2 * np.arange(4)).astype(np.float32),
    }
    check(make, {"x": x}, expected)


def test_random_fills_have_their_distribution() -> None:
    def make(network: Any, inputs: Any) -> Any:
        uniform, normal = (
            network.add_fill((4000,), F.RANDOM_UNIFORM),
            network.add_fill((4000,), F.RANDOM_NORMAL),
        )
        uniform.alpha, uniform.beta = -2.0, 3.0
        normal.alpha, normal.beta = 1.0, 0.5
        shift = network.add_elementwise(
            inputs["x"], uniform.get_output(0), trt.ElementWiseOperation.SUM
        )
        return {"uniform": shift.get_output(0), "normal": normal.get_output(0)}

    outputs = outputs_of(make, {"x": np.zeros(1, np.float32)}, dynamic=False)
    uniform, normal = outputs["uniform"], outputs["normal"]
    assert uniform.min() >= -2 and uniform.max() < 3
    assert uniform.std() == pytest.approx(5 / math.sqrt(12), rel=0.05)
    # 4000 samples: the mean is within 0.04 of its own, with a margin of five deviations
    assert normal.mean() == pytest.approx(1, abs=0.04) and normal.std() == pytest.approx(
        0.5, rel=0.06
    )


def test_constants() -> None:
    network, log = new_network()
    assert (
        network.add_constant((2, 2), np.ones(3, np.float32)) is None
        and "3 weights" in log.errors[-1]
    )
    layer = network.add_constant((2, 2), np.arange(4, dtype=np.float32))
    assert tuple(layer.shape) == (2, 2) and layer.weights.size == 4
    assert tuple(layer.get_output(0).shape) == (2, 2) and layer.get_output(0).dtype == trt.float32
    layer.shape, layer.weights = (1, 3), trt.Weights(np.arange(3, dtype=np.int32))
    assert tuple(layer.get_output(0).shape) == (1, 3) and layer.get_output(0).dtype == trt.int32
