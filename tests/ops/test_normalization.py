"""Softmax family and normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
from braze.core.dtypes import F64
from braze.core.errors import BrazeError, ShapeError
from braze.ops.norm.batch_norm import BatchNorm
from braze.ops.norm.channel_norm import GroupNorm, InstanceNorm
from braze.ops.norm.local_norm import LpNormalize, Lrn
from braze.ops.norm.normalization import LayerNorm, RmsNorm
from braze.ops.reduce.softmax import Hardmax, Softmax
from tests.ops.check import run1, run_node, run_op
from tests.ops.one_node import one_node

NAN, INF = np.nan, np.inf
Array = np.ndarray[Any, Any]


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def softmax64(x: Array, axis: int) -> Array:
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("log", [False, True])
def test_softmax(axis: int, log: bool) -> None:
    x = normal(3, 4, 5) * 5
    want = softmax64(x, axis)
    got = run1(Softmax(axis, log), x)
    np.testing.assert_allclose(got, np.log(want) if log else want, rtol=2e-6, atol=1e-6)


def test_softmax_of_large_and_infinite_values() -> None:
    x = np.array([[1e4, 1e4], [-1e4, 0], [-INF, 0], [INF, 0], [-INF, -INF], [NAN, 0]], np.float32)
    got = run1(Softmax(1), x)
    np.testing.assert_allclose(got[:3], [[0.5, 0.5], [0, 1], [0, 1]])
    assert np.isnan(got[4:]).all() and np.isnan(got[3, 0])


def test_half_softmax_computes_in_float32() -> None:
    x = normal(4, 4096, dtype="float16")
    got = run1(Softmax(1), x, rtol=1e-3)
    # a float16 sum of 4096 terms would be off by percents; one rounding is 5e-4
    np.testing.assert_allclose(got, softmax64(x, 1), rtol=6e-4, atol=6e-8)


def test_hardmax_marks_the_first_largest() -> None:
    x = np.array([[1, 3, 3], [NAN, 5, 2], [-INF, -INF, -INF]], np.float32)
    np.testing.assert_array_equal(run1(Hardmax(1), x), [[0, 1, 0], [1, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_before_opset_13_the_tensor_is_flattened(name: str, axis: int) -> None:
    x = normal(2, 3, 4)
    (got,) = run_node(name, {"x": x}, 11, axis=axis)
    k = axis % 3
    flat = x.reshape(int(np.prod(x.shape[:k])), -1)
    want = softmax64(flat, 1)
    if name == "LogSoftmax":
        want = np.log(want)
    if name == "Hardmax":
        want = np.eye(flat.shape[1])[flat.argmax(1)]
    np.testing.assert_allclose(got, want.reshape(x.shape), rtol=2e-6, atol=1e-6)


def test_default_axes_of_both_forms() -> None:
    x = normal(2, 3, 4)
    (old,) = run_node("Softmax", {"x": x}, 11)
    np.testing.assert_allclose(old, softmax64(x.reshape(2, 12), 1).reshape(2, 3, 4), rtol=2e-6)
    (new,) = run_node("Softmax", {"x": x}, 13)
    np.testing.assert_allclose(new, softmax64(x, 2), rtol=2e-6)


def layer_norm64(x: Array, axis: int, eps: float) -> Array:
    axes = tuple(range(axis, x.ndim))
    wide = x.astype(np.float64)
    return (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + eps)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_layer_norm(axis: int, bias: bool) -> None:
    x, scale, shift = normal(3, 4, 5), normal(*(3, 4, 5)[axis:], seed=1), normal(5, seed=2)
    want = layer_norm64(x, axis, 1e-5) * scale + (shift if bias else 0)
    got = run1(LayerNorm(axis, 1e-5), x, scale, shift if bias else None, rtol=1e-5)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_layer_norm_scale_may_broadcast() -> None:
    x, scale = normal(2, 3, 4), normal(3, 1, seed=1)
    got = run1(LayerNorm(1, 1e-5), x, scale, None)
    np.testing.assert_allclose(got, layer_norm64(x, 1, 1e-5) * scale, rtol=1e-5, atol=1e-6)
    got = run1(LayerNorm(2, 1e-5), x, normal(2, 3, 4, seed=3), None)
    assert got.shape == x.shape
    with pytest.raises(ShapeError):
        run1(LayerNorm(1, 1e-5), x, normal(2, 1, 1, 1), None)


def test_layer_norm_without_operands() -> None:
    x = normal(2, 8)
    got = run1(LayerNorm(1, 0.0), x, None, None)
    np.testing.assert_allclose(got, layer_norm64(x, 1, 0), rtol=1e-5, atol=1e-6)


def test_layer_norm_statistics() -> None:
    x = normal(2, 3, 4) + 3
    y, mean, inverse = run_op(LayerNorm(1, 1e-3, statistics=True), x, np.ones(4, np.float32), None)
    np.testing.assert_allclose(mean, x.mean((1, 2), keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(x.var((1, 2), keepdims=True) + 1e-3), rtol=1e-5)
    assert y.shape == x.shape
    wide = run_op(LayerNorm(1, 1e-3, True, F64), x.astype(np.float64), np.ones(4), None)
    assert wide[1].dtype == np.float64


def test_layer_norm_of_half_does_not_overflow() -> None:
    x = (100 * normal(4, 256)).astype(np.float16)  # squares exceed float16
    got = run1(LayerNorm(1, 1e-5), x, np.ones(256, np.float16), None, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(got, layer_norm64(x, 1, 1e-5), rtol=1e-3, atol=1e-3)


def test_layer_norm_with_a_large_offset_does_not_cancel() -> None:
    x = normal(2, 64) + 1e4
    got = run1(LayerNorm(1, 1e-5), x, np.ones(64, np.float32), None, rtol=1e-3, atol=1e-3)
    # E[x^2] - E[x]^2 in float32 would be wrong by 100 percent here
    np.testing.assert_allclose(got, layer_norm64(x, 1, 1e-5), rtol=1e-3, atol=1e-3)


def test_rms_norm() -> None:
    x, scale = normal(2, 3, 8), normal(8, seed=1)
    want = x / np.sqrt((x.astype(np.float64) ** 2).mean(2, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(run1(RmsNorm(2, 1e-5), x, scale), want, rtol=1e-5, atol=1e-6)
    (got,) = run_node("RMSNormalization", {"x": x, "s": scale}, 23)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert run1(RmsNorm(1, 1e-5), x, None).shape == x.shape


def test_rms_norm_scale_may_have_another_type() -> None:
    x, scale = normal(2, 8, dtype="float16"), normal(8)
    want = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5) * scale
    got = run1(RmsNorm(1, 1e-5), x, scale, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-3)


def group_norm64(x: Array, groups: int, eps: float) -> Array:
    wide = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    y = (wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + eps)
    return y.reshape(x.shape)


def test_one_group_takes_statistics_over_channels_and_space() -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    one = np.ones(2, np.float32)
    got = run1(GroupNorm(1, 1e-5), x, one, 0 * one)
    assert got.flat[0] == pytest.approx(-1.5275, abs=1e-4)


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize("space", [(), (5,), (2, 3), (2, 1, 2)])
def test_group_norm_in_both_layouts(groups: int, space: tuple[int, ...]) -> None:
    x, scale, bias = normal(2, 6, *space), normal(6, seed=1), normal(6, seed=2)
    vector = (6,) + (1,) * len(space)
    want = group_norm64(x, groups, 1e-3) * scale.reshape(vector) + bias.reshape(vector)
    got = run1(GroupNorm(groups, 1e-3), x, scale, bias, symbolic=False, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    op = GroupNorm(groups, 1e-3, layout="NHWC")
    got = run1(op, last, scale, bias, symbolic=False, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.moveaxis(got, -1, 1), want, rtol=1e-4, atol=1e-4)


def test_group_norm_scale_per_group_in_opset_18_per_channel_in_21() -> None:
    x, scale, bias = normal(2, 4, 3), np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    (old,) = run_node("GroupNormalization", {"x": x, "s": scale, "b": bias}, 18, num_groups=2)
    wide = {"x": x, "s": scale.repeat(2), "b": bias.repeat(2)}
    (new,) = run_node("GroupNormalization", wide, 21, num_groups=2)
    np.testing.assert_allclose(old, new)
    with pytest.raises(BrazeError, match="scale"):
        run_node("GroupNormalization", {"x": x, "s": scale, "b": bias}, 21, num_groups=2)


def test_groups_that_do_not_divide_the_channels_are_refused() -> None:
    x, s = normal(2, 4, 3), np.ones(4, np.float32)
    with pytest.raises(ShapeError, match="groups"):
        run1(GroupNorm(3, 1e-5), x, s, s)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_instance_norm(layout: str) -> None:
    x, scale, bias = normal(2, 3, 4, 5), normal(3, seed=1), normal(3, seed=2)
    want = group_norm64(x, 3, 1e-5) * scale[:, None, None] + bias[:, None, None]
    data = x if layout == "NCHW" else np.ascontiguousarray(np.moveaxis(x, 1, -1))
    got = run1(InstanceNorm(1e-5, layout), data, scale, bias, rtol=1e-5, atol=1e-5)
    got = got if layout == "NCHW" else np.moveaxis(got, -1, 1)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("space", [(), (4,), (2, 3)])
def test_batch_norm(layout: str, dtype: str, space: tuple[int, ...]) -> None:
    x = normal(2, 3, *space, dtype=dtype)
    scale, bias, mean = (normal(3, seed=i, dtype=dtype) for i in (1, 2, 3))
    var = np.abs(normal(3, seed=4, dtype=dtype)) + np.asarray(0.5, dtype)
    at = (3,) + (1,) * len(space)
    s, b, m, v = (a.astype(np.float64).reshape(at) for a in (scale, bias, mean, var))
    want = (x - m) / np.sqrt(v + 1e-3) * s + b
    data = x if layout == "NCHW" else np.ascontiguousarray(np.moveaxis(x, 1, -1))
    tolerance = 3e-3 if dtype == "float16" else 1e-5
    got = run1(
        BatchNorm(1e-3, layout), data, scale, bias, mean, var, rtol=tolerance, atol=tolerance
    )
    got = got if layout == "NCHW" else np.moveaxis(got, -1, 1)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [np.inf, -np.inf, 3e38, 2e19, np.nan, 1e17])
def test_batch_norm_with_a_huge_scale_subtracts_the_mean_first(scale: float) -> None:
    """x * a + b with b = bias - mean * a was infinity minus infinity, which is NaN."""
    x = np.array([[0.5], [2.0], [3.0]], np.float32)
    constants = [np.float32([v]) for v in (scale, 1, 1, 4)]
    model = one_node(
        "BatchNormalization", [x, *constants], opset=15, constant=range(1, 5),
        attributes={"epsilon": 0.0},
    )  # fmt: skip
    with np.errstate(all="ignore"):
        want = (x - 1) * (np.float32(scale) / 2) + 1
    for level, target in ((0, "reference"), (1, "reference"), (2, "cpu")):
        got = braze.build(model, optimization_level=level, target=target)({"x0": x})["y0"]
        np.testing.assert_allclose(got, want, rtol=1e-6)  # a few roundings of float32


def test_batch_norm_with_constants_folds_them() -> None:
    x = normal(2, 3, 4, 4)
    constants = {
        "s": normal(3, seed=1),
        "b": normal(3, seed=2),
        "m": normal(3, seed=3),
        "v": np.abs(normal(3, seed=4)) + 0.5,
    }
    (folded,) = run_node("BatchNormalization", {"x": x}, 15, constants)
    (fed,) = run_node("BatchNormalization", {"x": x, **constants}, 9)
    np.testing.assert_allclose(folded, fed, rtol=1e-5, atol=1e-6)


def training_inputs(shape: tuple[int, ...], dtype: str) -> dict[str, np.ndarray]:
    channels = shape[1]
    # far from zero: E[x^2] - E[x]^2 would cancel
    x = normal(*shape) + 20 * np.arange(channels).reshape(-1, *(1,) * (len(shape) - 2))
    vectors = {k: np.abs(normal(channels, seed=i)) + 0.5 for i, k in enumerate("sbmv", 1)}
    return {"x": x.astype(dtype), **{k: v.astype(dtype) for k, v in vectors.items()}}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(1, 6, 9), (4, 3), (2, 3, 4, 5), (3, 2, 2, 3, 2)])
@pytest.mark.parametrize("constant", [False, True])
def test_batch_norm_in_training_mode(constant: bool, shape: tuple[int, ...], dtype: str) -> None:
    given = training_inputs(shape, dtype)
    inputs, constants = ({}, given) if constant else (given, {})
    # a mean near 100 carries a float32 rounding of 1e-5; float16 outputs round to 1e-3 of values
    # below 10, and to 0.06 of the mean
    loose, coarse = (4e-3, 0.15) if dtype == "float16" else (1e-4, 1e-4)
    attributes = {"training_mode": 1, "momentum": 0.75, "epsilon": 1e-3}
    attributes["lowering"] = (loose, loose)
    y, mean, var = run_node(
        "BatchNormalization", inputs, 15, constants, num_outputs=3, **attributes
    )
    axes = (0, *range(2, len(shape)))
    x, s, b, m, v = (a.astype("f8") for a in given.values())
    column = (-1, *(1,) * (len(shape) - 2))
    want_mean, want_var = x.mean(axes), x.var(axes)
    scaled = (x - want_mean.reshape(column)) / np.sqrt(want_var + 1e-3).reshape(column)
    np.testing.assert_allclose(
        y, scaled * s.reshape(column) + b.reshape(column), rtol=loose, atol=loose
    )
    np.testing.assert_allclose(mean, m * 0.75 + want_mean * 0.25, rtol=loose, atol=coarse)
    np.testing.assert_allclose(var, v * 0.75 + want_var * 0.25, rtol=loose, atol=loose)
    (alone,) = run_node("BatchNormalization", inputs, 14, constants, **attributes)
    np.testing.assert_array_equal(alone, y)


def test_batch_norm_of_old_training_and_of_elements_is_refused() -> None:
    x, s = normal(2, 3), np.ones(3, np.float32)
    inputs = {"x": x, "s": s, "b": s, "m": s, "v": s}
    with pytest.raises(BrazeError, match="training mode only"):
        run_node("BatchNormalization", inputs, 15, num_outputs=3)
    with pytest.raises(BrazeError, match="training mode only"):
        run_node("BatchNormalization", inputs, 9, num_outputs=5)
    with pytest.raises(BrazeError, match="spatial"):
        run_node("BatchNormalization", inputs, 7, spatial=0)
    with pytest.raises(BrazeError, match="batch axis"):
        run_node("BatchNormalization", {**inputs, "x": normal(3)}, 15, training_mode=1)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_lrn(size: int, layout: str) -> None:
    x = normal(2, 4, 3)
    before, after = (size - 1) // 2, size // 2
    total = np.zeros(x.shape)
    for c in range(4):
        window = x[:, max(0, c - before) : c + after + 1].astype(np.float64)
        total[:, c] = (window**2).sum(1)
    want = x / (2.0 + 0.3 / size * total) ** 0.6
    data = x if layout == "NCHW" else np.ascontiguousarray(np.moveaxis(x, 1, -1))
    got = run1(Lrn(size, 0.3, 0.6, 2.0, layout), data, rtol=1e-5)
    got = got if layout == "NCHW" else np.moveaxis(got, -1, 1)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_lp_normalization(p: int, axis: int) -> None:
    x = normal(3, 4)
    x[1] = 0
    norm = (np.abs(x.astype(np.float64)) ** p).sum(axis, keepdims=True) ** (1 / p)
    want = np.divide(x, norm, out=np.zeros(x.shape), where=norm != 0)
    np.testing.assert_allclose(run1(LpNormalize(axis, p), x), want, rtol=1e-6, atol=1e-7)
    (got,) = run_node("LpNormalization", {"x": x}, 22, axis=axis, p=p)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_mean_variance_normalization() -> None:
    x = normal(2, 3, 4, 5) + 100
    wide = x.astype(np.float64)
    want = (wide - wide.mean((0, 2, 3), keepdims=True)) / wide.std((0, 2, 3), keepdims=True)
    (got,) = run_node("MeanVarianceNormalization", {"x": x}, 13)
    # float32 input around 100 carries an error of 4e-6 of its deviation
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
