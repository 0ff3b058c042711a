"""Spelled-out LayerNorm and RMSNorm become one op; broadcasting scales stay outside.

Tolerance 2e-6 of the largest result: two float32 means of up to 24 elements and five roundings.
"""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F16
from braze.ir.graph import Value
from braze.ops.evaluator import evaluate
from braze.ops.reduce.reduce import Reduce
from braze.passes.base import PassContext
from braze.passes.rewrite import apply_rules
from braze.passes.rules.norms import RULES
from tests.passes.rule_checks import Net, apply, ops, refusals

RTOL = 2e-6


def mean(g: Net, x: Value, *axes: int, keepdims: bool = True) -> Value:
    return g.add1(Reduce("mean", axes, keepdims), x)


def over_root(g: Net, x: Value, square: Value, axes: tuple[int, ...], kind: str) -> Value:
    shifted = g.op2("add", mean(g, square, *axes), 1e-5)
    if kind == "power":
        return g.op2("mul", g.op2("pow", shifted, -0.5), x)
    root = g.op1("sqrt", shifted)
    if kind == "reciprocal":
        return g.op2("mul", x, g.op1("reciprocal", root))
    return g.op2("mul", x, g.op2("div", 1.0, root)) if kind == "inverse" else g.op2("div", x, root)


def layer_norm(
    g: Net, x: Value, axes: tuple[int, ...], kind: str = "div", other_axes: tuple[int, ...] = ()
) -> Value:
    d = g.op2("sub", x, mean(g, x, *axes))
    square = g.op2("mul", d, d) if kind == "inverse" else g.op2("pow", d, 2.0)
    return over_root(g, d, square, other_axes or axes, kind)


@pytest.mark.parametrize("kind", ["div", "power", "reciprocal", "inverse"])
@pytest.mark.parametrize("axes", [(2,), (1, 2)])
def test_layer_norm(kind: str, axes: tuple[int, ...]) -> None:
    g = Net()
    x = g.tensor("x", sym("n"), 3, 8)
    y = g.op2("add", g.random(8), g.op2("mul", layer_norm(g, x, axes, kind), g.random(8)))
    after, _ = apply(g, [y], RULES, rtol=RTOL)
    assert ops(after) == ["LayerNorm"]
    assert after.nodes[0].op.axis == axes[0] and len(after.nodes[0].inputs) == 3


@pytest.mark.parametrize("shape", [(8,), (1,), (), (1, 1, 8), (3, 8)])
def test_scales_that_broadcast_into_the_result(shape: tuple[int, ...]) -> None:
    g = Net()
    y = g.op2("mul", layer_norm(g, g.tensor("x", 2, 3, 8), (1, 2)), g.random(*shape))
    after, _ = apply(g, [y], RULES, rtol=RTOL)
    assert ops(after) == ["LayerNorm"]


@pytest.mark.parametrize("shape", [(1, 1, 1, 8), (2, 1, 8), (5, 1, 1, 1)])
def test_scales_that_do_not(shape: tuple[int, ...]) -> None:
    g = Net()
    y = g.op2("mul", layer_norm(g, g.tensor("x", 2, 3, 8), (1, 2)), g.random(*shape))
    after, ctx = apply(g, [y], RULES, rtol=RTOL)
    assert ops(after) == ["LayerNorm", "Mul"] and refusals(ctx)


def test_a_bias_without_scale_and_a_scale_behind_a_bias() -> None:
    g = Net()
    y = g.op2("add", layer_norm(g, g.tensor("x", 2, 8), (1,)), g.random(8))
    y = g.op2("mul", y, g.random(8))
    after, _ = apply(g, [y], RULES, rtol=RTOL)
    assert ops(after) == ["LayerNorm", "Mul"]


def test_half_precision_does_not_overflow() -> None:
    """The float16 sum of squares of large values overflows; the fused op has no such sum."""
    g = Net()
    x = g.tensor("x", 1, 256, dtype=F16)
    d = g.op2("sub", x, mean(g, x, 1))
    y = over_root(g, d, g.op2("mul", d, d), (1,), "div")
    graph = g.finish([("y", y)])
    after = apply_rules(graph, RULES, PassContext())
    assert ops(after) == ["LayerNorm"]
    values = (np.random.default_rng(0).standard_normal((1, 256)) * 400).astype(np.float16)
    got = evaluate(after, {"x": values})["y"].astype(np.float64)
    wide = values.astype(np.float64)
    want = (wide - wide.mean()) / wide.std()
    np.testing.assert_allclose(got, want, atol=2e-3)  # float16 near 3 has steps of 2e-3


@pytest.mark.parametrize("kind", ["div", "power", "reciprocal", "inverse"])
def test_rms_norm(kind: str) -> None:
    g = Net()
    x = g.tensor("x", sym("n"), 8)
    square = g.op2("mul", x, x) if kind == "div" else g.op2("pow", x, 2.0)
    y = g.op2("mul", g.random(8), over_root(g, x, square, (1,), kind))
    after, _ = apply(g, [y], RULES, rtol=RTOL)
    assert ops(after) == ["RMSNorm"]


def test_rms_norm_of_one_element_with_a_longer_scale() -> None:
    """x [1, 1] times a scale of 2 gives [1, 2]: the scale must stay outside."""
    g = Net()
    x = g.tensor("x", 1, 1)
    y = g.op2("mul", over_root(g, x, g.op2("mul", x, x), (1,), "div"), g.random(2))
    after, _ = apply(g, [y], RULES, rtol=RTOL)
    assert ops(after) == ["RMSNorm", "Mul"]


@pytest.mark.parametrize("case", ["axes differ", "leading axis", "sum", "cubed", "other x"])
def test_near_misses(case: str) -> None:
    g = Net()
    x = g.tensor("x", 4, 3, 8)
    if case == "axes differ":
        y = layer_norm(g, x, (2,), other_axes=(1, 2))
    elif case == "leading axis":
        y = layer_norm(g, x, (1,))
    else:
        d = g.op2("sub", x, mean(g, g.op1("neg", x) if case == "other x" else x, 2))
        square = g.op2("pow", d, 3.0 if case == "cubed" else 2.0)
        total = g.add1(Reduce("sum" if case == "sum" else "mean", (2,), True), square)
        root = g.op1("sqrt", g.op1("abs", g.op2("add", total, 1e-5)) if case == "cubed" else total)
        if case == "other x":
            root = g.op1("sqrt", g.op2("add", total, 1e-5))
        y = g.op2("div", d, root)
    # "axes differ" is an RMS norm of the centred values
    after, _ = apply(g, [y], RULES, rtol=RTOL)
    assert "LayerNorm" not in ops(after)


def test_visible_inner_values() -> None:
    g = Net()
    x = g.tensor("x", 4, 8)
    d = g.op2("sub", x, mean(g, x, 1))
    y = over_root(g, d, g.op2("mul", d, d), (1,), "div")
    after, ctx = apply(g, [y, g.op1("abs", d)], RULES, rtol=RTOL)
    # the centred value is needed by someone else; the norm of it is still an RMS norm
    assert ops(after) == ["ReduceMean", "Sub", "RMSNorm", "Abs"]
    assert "LayerNorm" not in ops(after) and any("another user" in r for r in refusals(ctx))
