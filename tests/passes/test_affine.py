"""Factors and shifts fold into weights where they may, and only there.

Tolerance 3e-6 of the largest result: float32 sums of some 30 products, each with one or two more
roundings (6e-8) than before.
"""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F16
from braze.ir.graph import Value
from braze.ops.evaluator import evaluate
from braze.ops.norm.batch_norm import BatchNorm
from braze.ops.product.conv import Conv
from braze.ops.product.conv_transpose import ConvTranspose
from braze.ops.product.matmul import MatMul
from braze.passes.base import PassContext, run_passes
from braze.passes.pipeline import AFFINE
from braze.passes.rules.affine import RULES
from tests.passes.rule_checks import Net, apply, ops, refusals

RTOL = 3e-6


def conv(g: Net, x: Value, channels: int, groups: int = 1) -> Value:
    w = g.random(channels, int(x.shape[1]) // groups, 3, 3, dtype=x.dtype.name)
    return g.add1(Conv((1, 1), (1, 1), (1, 1, 1, 1), groups), x, w)


@pytest.mark.parametrize("op", ["mul", "div"])
@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1), (1,), (), (1, 1, 1)])
@pytest.mark.parametrize("biased", [False, True])
def test_factor_behind_conv(op: str, shape: tuple[int, ...], biased: bool) -> None:
    g = Net()
    y = conv(g, g.tensor("x", sym("n"), 4, 5, 6), 4, groups=2)
    if biased:
        y = g.op2("add", g.random(4, 1, 1), y)
    y = g.op2(op, y, g.random(*shape))
    after, _ = apply(g, [y], RULES, rtol=RTOL)
    assert ops(after) == (["Conv", "Add"] if biased else ["Conv"])


def test_factor_behind_grouped_transposed_conv() -> None:
    g = Net()
    w = g.random(4, 3, 2, 2)
    x = g.tensor("x", 2, 4, 5, 5)
    y = g.add1(ConvTranspose((2, 2), (1, 1), (0, 0, 0, 0), (0, 0), 2), x, w)
    y = g.op2("mul", g.op2("add", y, g.random(6, 1, 1)), g.random(6, 1, 1))
    after, _ = apply(g, [y], RULES, rtol=RTOL)
    assert ops(after) == ["ConvTranspose", "Add"]


def test_factor_behind_matmul() -> None:
    g = Net()
    y = g.add1(MatMul(), g.tensor("x", 2, 3, 8), g.random(8, 5))
    y = g.op2("add", g.op2("mul", g.op2("add", y, g.random(5)), g.random(5)), g.random(3, 1))
    after, _ = apply(g, [y], RULES, rtol=RTOL)
    assert ops(after) == ["MatMul", "Add"]


def test_chain_of_affine_blocks() -> None:
    g = Net()
    y = conv(g, g.tensor("x", 1, 3, 5, 6), 4)
    for shape in ((4, 1, 1), (1,), (4, 1, 1)):
        y = g.op2("add", g.op2("mul", y, g.random(*shape)), g.random(*shape))
    after, _ = apply(g, [y], RULES, rtol=RTOL)
    assert ops(after) == ["Conv", "Add"]


def near_miss(case: str) -> tuple[Net, list[Value]]:
    g = Net()
    dtype = F16 if case == "half" else None
    x = g.tensor("x", 1, 4, 4, 4, **({"dtype": dtype} if dtype else {}))
    y = conv(g, x, 4)
    factor = {
        "second user": (4, 1, 1), "output": (4, 1, 1), "half": (4, 1, 1),
        "per column": (4,), "larger rank": (1, 1, 4, 1, 1), "larger batch": (3, 1, 1, 1),
        "computed": (4, 1, 1),
    }[case]  # fmt: skip
    scale = g.random(*factor, dtype=y.dtype.name)
    if case == "computed":
        scale = g.tensor("scale", *factor)
    z = g.op2("mul", y, scale)
    extra = [g.op1("abs", y)] if case == "second user" else [y] if case == "output" else []
    return g, [z, *extra]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("second user", "another user"),
        ("output", "graph output"),
        ("half", "rounded"),
        ("per column", "more than the channels"),
        ("larger rank", "larger result"),
        ("larger batch", "larger result"),
        ("computed", None),
    ],
)
def test_near_misses(case: str, reason: str | None) -> None:
    g, outputs = near_miss(case)
    before = len(g.nodes)
    after, ctx = apply(g, outputs, RULES, rtol=0)
    assert len(after.nodes) == before
    found = refusals(ctx)
    assert [reason in r for r in found] == [True] if reason else not found, found


def test_overflowing_weights_are_refused() -> None:
    g = Net()
    y = g.add1(MatMul(), g.tensor("x", 2, 1), g.const([[1e30]]))
    y = g.op2("mul", y, 1e30)
    _, ctx = apply(g, [y], RULES, rtol=0, scale=1e-25)
    assert any("overflow" in r for r in refusals(ctx))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # results are infinite
def test_weights_that_overflow_beside_an_infinite_one_are_refused() -> None:
    """One infinity among them let all others become infinite."""
    g = Net()
    y = g.add1(MatMul(), g.tensor("x", 2, 2), g.const([[1e30, 1.0], [np.inf, 1.0]]))
    y = g.op2("mul", y, 1e30)
    _, ctx = apply(g, [y], RULES, rtol=0, scale=1e-25)
    assert any("overflow" in r for r in refusals(ctx))


def test_vanishing_weights_are_refused() -> None:
    """Large data times what is left of them is a number; small weights of a live channel may go."""
    g = Net()
    y = g.add1(MatMul(), g.tensor("x", 2, 4), g.const(np.eye(4)))
    after, ctx = apply(g, [g.op2("div", y, 3e38)], RULES, rtol=RTOL)
    assert ops(after) == ["MatMul", "Div"] and "vanish" in refusals(ctx)[0]
    g = Net()
    w = g.const([[1e-30, 0.5], [0.25, 0.0]])
    y = g.op2("mul", g.add1(MatMul(), g.tensor("x", 2, 2), w), g.const([1e-9, 0.0]))
    after, _ = apply(g, [y], RULES, rtol=RTOL)
    assert ops(after) == ["MatMul"]


def test_overflowing_shifts_are_refused() -> None:
    g = Net()
    y = g.op2("add", g.add1(MatMul(), g.tensor("x", 2, 4), g.const(np.eye(4))), 3e38)
    after, ctx = apply(g, [g.op2("add", y, 3e38)], RULES, rtol=RTOL)
    assert ops(after) == ["MatMul", "Add", "Add"] and "overflow" in refusals(ctx)[0]


@pytest.mark.parametrize("behind_conv", [True, False])
def test_batchnorm(behind_conv: bool) -> None:
    g = Net()
    x = g.tensor("x", sym("n"), 3, 5, 6)
    y = conv(g, x, 4) if behind_conv else x
    c = int(y.shape[1])
    var = g.const(np.abs(g.rng.standard_normal(c)) + 0.1)
    y = g.add1(BatchNorm(1e-5), y, g.random(c), g.random(c), g.random(c), var)
    graph = g.finish([("y", y)])
    after = run_passes(graph, AFFINE, PassContext())
    assert ops(after) == (["Conv", "Add"] if behind_conv else ["Mul", "Add"])
    feed = {"x": g.rng.standard_normal((2, 3, 5, 6)).astype(np.float32)}
    want = evaluate(graph, feed, float64=True)["y"]
    # the folded constants are float32: 6e-8 relative for each, sums of 27 products
    np.testing.assert_allclose(evaluate(after, feed)["y"], want, rtol=2e-5, atol=2e-5)
