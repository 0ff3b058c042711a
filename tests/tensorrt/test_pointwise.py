"""Activations, unary and element-wise layers, casts, select: every kind against numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from tests.tensorrt.networks import check, floats, new_network, plan_of

A, U, E = trt.ActivationType, trt.UnaryOperation, trt.ElementWiseOperation
erf = np.vectorize(math.erf)


def test_activations() -> None:
    x = floats(3, 4, 5) * 2
    a, b = np.float32(0.3), np.float32(0.7)
    low, high = np.float32(-0.5), np.float32(0.75)
    d = x.astype(np.float64)
    expected = {
        "RELU": np.maximum(d, 0),
        "SIGMOID": 1 / (1 + np.exp(-d)),
        "TANH": np.tanh(d),
        "LEAKY_RELU": np.where(d >= 0, d, a * d),
        "ELU": np.where(d >= 0, d, a * (np.exp(d) - 1)),
        "SELU": np.where(d > 0, b * d, b * (a * np.exp(d) - a)),
        "SOFTSIGN": d / (1 + np.abs(d)),
        "SOFTPLUS": a * np.log(np.exp(b * d) + 1),
        "CLIP": np.maximum(low, np.minimum(high, d)),
        "HARD_SIGMOID": np.maximum(0, np.minimum(1, a * d + b)),
        "SCALED_TANH": a * np.tanh(b * d),
        "THRESHOLDED_RELU": np.where(d > a, d, 0),
        "GELU_ERF": 0.5 * d * (1 + erf(d / math.sqrt(2))),
        "GELU_TANH": 0.5 * d * (1 + np.tanh(math.sqrt(2 / math.pi) * (d + 0.044715 * d**3))),
    }
    assert set(expected) == set(A.__members__)

    def make(network: Any, inputs: Any) -> Any:
        made = {}
        for kind in A:
            layer = network.add_activation(inputs["x"], kind)
            layer.alpha, layer.beta = (low, high) if kind is A.CLIP else (a, b)
            assert layer.type is kind
            made[kind.name] = layer.get_output(0)
        return made

    check(make, {"x": x}, {k: v.astype(np.float32) for k, v in expected.items()})


def test_unary_operations() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(0.05, 0.95, (2, 3, 4)).astype(np.float32)
    d = x.astype(np.float64)
    functions: dict[Any, Any] = {
        U.EXP: np.exp, U.LOG: np.log, U.SQRT: np.sqrt, U.RECIP: lambda v: 1 / v, U.ABS: np.abs,
        U.NEG: np.negative, U.SIN: np.sin, U.COS: np.cos, U.TAN: np.tan, U.SINH: np.sinh,
        U.COSH: np.cosh, U.ASIN: np.arcsin, U.ACOS: np.arccos, U.ATAN: np.arctan,
        U.ASINH: np.arcsinh, U.ACOSH: lambda v: np.arccosh(v + 1), U.ATANH: np.arctanh,
        U.CEIL: lambda v: np.ceil(v * 9 - 4), U.FLOOR: lambda v: np.floor(v * 9 - 4), U.ERF: erf,
        U.SIGN: lambda v: np.sign(v * 9 - 4), U.ROUND: lambda v: np.round(v * 9 - 4),
    }  # fmt: skip
    assert set(functions) | {U.NOT, U.ISINF, U.ISNAN} == set(U)
    shifted = {U.CEIL, U.FLOOR, U.SIGN, U.ROUND}

    def make(network: Any, inputs: Any) -> Any:
        one = network.add_constant((1, 1, 1), np.ones(1, np.float32)).get_output(0)
        nine = network.add_constant((1, 1, 1), np.array([9], np.float32)).get_output(0)
        four = network.add_constant((1, 1, 1), np.array([4], np.float32)).get_output(0)
        above = network.add_elementwise(inputs["x"], one, E.SUM).get_output(0)
        wide = network.add_elementwise(inputs["x"], nine, E.PROD).get_output(0)
        wide = network.add_elementwise(wide, four, E.SUB).get_output(0)
        made = {}
        for op in functions:
            source = wide if op in shifted else above if op is U.ACOSH else inputs["x"]
            made[op.name] = network.add_unary(source, op).get_output(0)
        return made

    expected = {op.name: f(d).astype(np.float32) for op, f in functions.items()}
    check(make, {"x": x}, expected, rtol=2e-5, atol=2e-6)  # ACOSH of 1.05 loses some bits


def test_unary_operations_that_ask() -> None:
    x = np.array([[1.0, np.inf, -np.inf], [np.nan, 0.0, -1.0]], np.float32)
    truth = np.array([[True, False, True], [False, False, True]])

    def make(network: Any, inputs: Any) -> Any:
        ops = (("x", U.ISINF), ("x", U.ISNAN), ("b", U.NOT))
        return {op.name: network.add_unary(inputs[n], op).get_output(0) for n, op in ops}

    expected = {"ISINF": np.isinf(x), "ISNAN": np.isnan(x), "NOT": ~truth}
    check(make, {"x": x, "b": truth}, expected)


def test_elementwise_operations_with_broadcasting() -> None:
    x, y = np.abs(floats(3, 4, 5)) + 0.5, floats(1, 4, 1, seed=1)
    functions = {
        E.SUM: np.add, E.PROD: np.multiply, E.MAX: np.maximum, E.MIN: np.minimum,
        E.SUB: np.subtract, E.DIV: np.divide, E.POW: np.power,
        E.FLOOR_DIV: lambda a, b: np.floor(a / b),
        E.EQUAL: np.equal, E.GREATER: np.greater, E.LESS: np.less,
    }  # fmt: skip
    assert set(functions) | {E.AND, E.OR, E.XOR} == set(E)

    def make(network: Any, inputs: Any) -> Any:
        other = network.add_constant(y.shape, y).get_output(0)
        return {
            op.name: network.add_elementwise(inputs["x"], other, op).get_output(0)
            for op in functions
        }

    expected = {op.name: f(x, y) for op, f in functions.items()}
    check(make, {"x": x}, expected, rtol=2e-5)


def test_elementwise_operations_of_bools_and_integers() -> None:
    p = np.array([[True, True], [False, False]])
    q = np.array([[True, False], [True, False]])
    i = np.array([[7, -7], [7, -7]], np.int32)
    j = np.array([[2, 2], [-2, -2]], np.int32)

    def make(network: Any, inputs: Any) -> Any:
        made = {
            op.name: network.add_elementwise(inputs["p"], inputs["q"], op).get_output(0)
            for op in (E.AND, E.OR, E.XOR)
        }
        for op in (E.FLOOR_DIV, E.DIV, E.SUB):
            made[op.name] = network.add_elementwise(inputs["i"], inputs["j"], op).get_output(0)
        return made

    expected = {
        "AND": p & q, "OR": p | q, "XOR": p ^ q, "FLOOR_DIV": i // j,
        "DIV": np.trunc(i / j).astype(np.int32), "SUB": i - j,
    }  # fmt: skip
    check(make, {"p": p, "q": q, "i": i, "j": j}, expected)


def test_casts_selects_and_slopes() -> None:
    x, y = floats(2, 3), floats(2, 3, seed=1)
    c = x > y

    def make(network: Any, inputs: Any) -> Any:
        identity = network.add_identity(inputs["x"])
        identity.set_output_type(0, trt.int32)
        assert identity.get_output(0).dtype == trt.int32 and identity.output_type_is_set(0)
        slopes = network.add_constant((1, 3), np.array([0.5, -1, 2], np.float32)).get_output(0)
        return {
            "cast": network.add_cast(inputs["x"], trt.float16).get_output(0),
            "select": network.add_select(inputs["c"], inputs["x"], inputs["y"]).get_output(0),
            "prelu": network.add_parametric_relu(inputs["x"], slopes).get_output(0),
            "identity": network.add_identity(inputs["y"]).get_output(0),
            "typed": identity.get_output(0),
        }

    slopes = np.array([0.5, -1, 2], np.float32)
    expected = {
        "cast": x.astype(np.float16), "select": np.where(c, x, y),
        "prelu": np.where(x < 0, x * slopes, x), "identity": y, "typed": x.astype(np.int32),
    }  # fmt: skip
    check(make, {"x": x, "y": y, "c": c}, expected)


def test_wrong_use() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    for wrong in (None, np.zeros(3), "x"):
        with pytest.raises(TypeError):
            network.add_activation(wrong, A.RELU)
    with pytest.raises(TypeError):
        network.add_activation(x, U.EXP)
    with pytest.raises(TypeError):
        network.add_activation(x, A.RELU).alpha = "big"
    assert network.add_input("x", trt.float32, (2, 3)) is None
    short = network.add_input("short", trt.float32, (3,))
    layer = network.add_elementwise(x, short, E.SUM)
    with pytest.raises(ValueError):
        _ = layer.get_output(0).shape
    network.mark_output(layer.get_output(0))
    assert plan_of(network) is None
    assert "2 and 1 axes" in log.errors[-1] and layer.name in log.errors[-1]
    layer.set_input(1, x)  # a layer that was wrong is looked at again
    assert tuple(layer.get_output(0).shape) == (2, 3) and plan_of(network) is not None


def test_floats_are_mixed_only_without_types_of_their_own() -> None:
    for flags in (0, 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)):
        network, log = new_network(flags)
        x = network.add_input("x", trt.float32, (2, 3))
        y = network.add_input("y", trt.float16, (2, 3))
        out = network.add_elementwise(x, y, E.SUM).get_output(0)
        network.mark_output(out)
        assert (plan_of(network) is None) == bool(flags)
        assert bool(log.errors) == bool(flags)
