"""Activations against float64 formulas written down independently."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from braze.core.dtypes import BF16
from braze.core.errors import BrazeError, DTypeError, ShapeError
from braze.ops.pointwise import activation as act
from tests.ops.check import as_float, bf16, run1, run_node

NAN, INF = np.nan, np.inf
FORMULAS: dict[act.Activation, Callable[[float], float]] = {
    act.Relu(): lambda x: max(x, 0),
    act.LeakyRelu(0.1): lambda x: x if x >= 0 else 0.1 * x,
    act.Clip(-1.0, 2.0): lambda x: min(max(x, -1), 2),
    act.Clip(None, 0.5): lambda x: min(x, 0.5),
    act.Clip(0.5, None): lambda x: max(x, 0.5),
    act.Clip(3.0, 1.0): lambda x: 1.0,
    act.Clip(None, None): lambda x: x,
    act.Sigmoid(): lambda x: 1 / (1 + math.exp(-x)),
    act.HardSigmoid(0.2, 0.5): lambda x: max(0, min(1, 0.2 * x + 0.5)),
    act.HardSwish(): lambda x: x * max(0, min(1, x / 6 + 0.5)),
    act.Gelu(): lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    act.Gelu("tanh"): lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    act.Silu(): lambda x: x / (1 + math.exp(-x)),
    act.Silu(1.7): lambda x: x / (1 + math.exp(-1.7 * x)),
    act.Elu(1.5): lambda x: x if x > 0 else 1.5 * math.expm1(x),
    act.Selu(): lambda x: act.SELU_GAMMA * (x if x > 0 else act.SELU_ALPHA * math.expm1(x)),
    act.Celu(0.7): lambda x: max(0, x) + min(0, 0.7 * math.expm1(x / 0.7)),
    act.Softplus(): lambda x: max(x, 0) + math.log1p(math.exp(-abs(x))),
    act.Softsign(): lambda x: x / (1 + abs(x)),
    act.ThresholdedRelu(1.0): lambda x: x if x > 1 else 0,
    act.Mish(): lambda x: x * math.tanh(max(x, 0) + math.log1p(math.exp(-abs(x)))),
    act.Shrink(0.5, 0.25): lambda x: x + 0.25 if x < -0.5 else x - 0.25 if x > 0.5 else 0,
}
POINTS = np.concatenate(
    [np.linspace(-12, 12, 97), [1e-6, -1e-6, 1e-3, -1e-3, 30.0, -30.0, 80.0, -80.0]]
).astype(np.float32)


@pytest.mark.parametrize("op", FORMULAS, ids=str)
def test_formula(op: act.Activation) -> None:
    want = np.array([FORMULAS[op](float(x)) for x in POINTS])
    got = run1(op, POINTS)
    # a few float32 roundings; formulas such as 1 + erf cancel, hence the absolute part
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=5e-7)


@pytest.mark.parametrize("op", FORMULAS, ids=str)
def test_float64_keeps_its_precision(op: act.Activation) -> None:
    x = POINTS.astype(np.float64)
    want = np.array([FORMULAS[op](float(v)) for v in x])
    np.testing.assert_allclose(run1(op, x, rtol=1e-13, atol=1e-14), want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("op", FORMULAS, ids=str)
def test_float16_is_the_rounded_float32_result(op: act.Activation) -> None:
    x = POINTS.astype(np.float16)
    want = run1(op, x.astype(np.float32)).astype(np.float16)
    # one float16 rounding may fall the other way where float32 results differ in the last bit
    np.testing.assert_allclose(run1(op, x, rtol=1e-3, atol=1e-6), want, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("op", FORMULAS, ids=str)
def test_bfloat16(op: act.Activation) -> None:
    x = bf16(POINTS)
    want = run1(op, as_float(x, BF16))
    got = run1(op, x, dtypes={0: BF16}, rtol=8e-3, atol=1e-6)
    # bfloat16 keeps 8 bits
    np.testing.assert_allclose(as_float(got, BF16), want, rtol=4e-3, atol=1e-6)


@pytest.mark.parametrize(
    "op",
    [f for f in FORMULAS if f not in (act.ThresholdedRelu(1.0), act.Shrink(0.5, 0.25))],
    ids=str,
)
def test_nan_stays_nan(op: act.Activation) -> None:
    got = run1(op, np.array([NAN, 1.0], np.float32))
    assert np.isnan(got[0]) and not np.isnan(got[1])


@pytest.mark.parametrize("op", FORMULAS, ids=str)
def test_infinities_lower_as_they_evaluate(op: act.Activation) -> None:
    run1(op, np.array([INF, -INF, 1e30, -1e30, 0.0, -0.0], np.float32))


def test_softplus_and_elu_keep_relative_precision_near_zero() -> None:
    x = np.array([-30.0, -20.0], np.float32)
    got = run1(act.Softplus(), x, atol=0)
    np.testing.assert_allclose(got, np.log1p(np.exp(x.astype(np.float64))), rtol=1e-6)
    x = np.array([-1e-5, -3e-4, -0.2, -0.35, -0.36], np.float32)
    got = run1(act.Elu(1.0), x, atol=0)
    np.testing.assert_allclose(got, np.expm1(x.astype(np.float64)), rtol=1e-6)


def test_integers() -> None:
    x = np.array([-3, 0, 5, 100], np.int32)
    np.testing.assert_array_equal(run1(act.Relu(), x), [0, 0, 5, 100])
    np.testing.assert_array_equal(run1(act.Clip(-1, 7), x), [-1, 0, 5, 7])
    np.testing.assert_array_equal(run1(act.Shrink(1.5, 1.0), x), [-2, 0, 4, 99])
    with pytest.raises(DTypeError):
        run1(act.Sigmoid(), x)


def test_prelu_broadcasts_one_way() -> None:
    x = np.linspace(-2, 2, 12).astype(np.float32).reshape(2, 3, 2)
    slope = np.array([[0.1], [0.2], [0.3]], np.float32)
    want = np.where(x < 0, x * slope, x)
    np.testing.assert_allclose(run1(act.PRelu(), x, slope), want)
    with pytest.raises(ShapeError):
        run1(act.PRelu(), x[:1], np.ones((2, 3, 2), np.float32))
    i = np.array([-2, 3], np.int32)
    np.testing.assert_array_equal(run1(act.PRelu(), i, np.array([3], np.int32)), [-6, 3])


# --------------------------------------------------------------------------- importers


@pytest.mark.parametrize(
    ("name", "attributes", "op"),
    [
        ("LeakyRelu", {}, act.LeakyRelu(0.01)),
        ("Elu", {"alpha": 2.0}, act.Elu(2.0)),
        ("Selu", {}, act.Selu()),
        ("Celu", {}, act.Celu(1.0)),
        ("HardSigmoid", {}, act.HardSigmoid(0.2, 0.5)),
        ("ThresholdedRelu", {}, act.ThresholdedRelu(1.0)),
        ("Shrink", {"lambd": 1.0}, act.Shrink(1.0, 0.0)),
        ("Gelu", {"approximate": "tanh"}, act.Gelu("tanh")),
        ("Swish", {"alpha": 2.0}, act.Silu(2.0)),
        ("Relu", {}, act.Relu()),
    ],
)
def test_importer_defaults(name: str, attributes: dict[str, object], op: act.Activation) -> None:
    (got,) = run_node(name, {"x": POINTS}, 24, **attributes)
    np.testing.assert_allclose(got, run1(op, POINTS), rtol=1e-6)


def test_clip_by_attributes_before_opset_11() -> None:
    x = np.array([-3.0, 0.5, 9.0], np.float32)
    (got,) = run_node("Clip", {"x": x}, 7, min=0.0, max=6.0)
    np.testing.assert_array_equal(got, [0, 0.5, 6])
    (got,) = run_node("Clip", {"x": x}, 10, max=6.0)
    np.testing.assert_array_equal(got, [-3, 0.5, 6])
    i = np.array([-3, 0, 1, 9], np.int32)
    (got,) = run_node("Clip", {"x": i}, 10, min=0.0, max=1.0)
    np.testing.assert_array_equal(got, [0, 0, 1, 1])
    with pytest.raises(BrazeError, match="whole number"):
        run_node("Clip", {"x": i}, 10, min=0.5)


def test_clip_inputs_may_be_absent_constant_or_computed() -> None:
    x = np.array([-3.0, 0.5, 9.0, NAN], np.float32)
    low, high = np.array(0.0, np.float32), np.array(6.0, np.float32)
    for constants, inputs in [
        ({"low": low, "high": high}, {"x": x}),
        ({}, {"x": x, "low": low, "high": high}),
        ({"high": high}, {"x": x, "low": low}),
    ]:
        (got,) = run_node("Clip", inputs, 13, constants)
        np.testing.assert_array_equal(got, [0, 0.5, 6, NAN])
    (got,) = run_node("Clip", {"x": x, "_low": low}, 13, {"high": high})
    np.testing.assert_array_equal(got, [-3, 0.5, 6, NAN])


def test_clip_bounds_that_are_not_scalars() -> None:
    x = np.ones((1, 3, 1, 1), np.float32)
    with pytest.raises(BrazeError, match=r"min .x1. has shape .3. but must be one number"):
        run_node("Clip", {"x": x, "low": np.zeros(3, np.float32)}, 13)
    (got,) = run_node("Clip", {"x": x, "low": np.full((1,), 2, np.float32)}, 13)
    assert got.shape == x.shape
    (got,) = run_node(
        "Clip", {"x": np.float32(1).reshape(())}, 13, {"low": np.full((1,), 2, np.float32)}
    )
    assert got.shape == () and got == 2


def test_clip_with_a_nan_bound_gives_nan() -> None:
    (got,) = run_node("Clip", {"x": np.ones(2, np.float32)}, 13, {"low": np.array(NAN, np.float32)})
    assert np.isnan(got).all()


def test_clip_on_integers() -> None:
    x = np.array([-5, 3, 2**40], np.int64)
    (got,) = run_node("Clip", {"x": x}, 13, {"low": np.array(0), "high": np.array(2**35)})
    np.testing.assert_array_equal(got, [0, 3, 2**35])


def test_gelu_rejects_other_approximations() -> None:
    with pytest.raises(BrazeError, match="none or tanh"):
        run_node("Gelu", {"x": POINTS}, 20, approximate="sigmoid")
