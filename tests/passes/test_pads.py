"""A Pad joins a convolution or pool only when the op's own padding means the same.

Nothing is rounded differently, so results must be equal (rtol=0).
"""

from __future__ import annotations

import math

import pytest

from braze.core.dims import sym
from braze.ir.graph import Value
from braze.ops.move.slice_pad import Pad
from braze.ops.pool.pool import AveragePool, LpPool, MaxPool
from braze.ops.product.conv import Conv
from braze.passes.rules.pads import RULES
from tests.passes.rule_checks import Net, apply, ops, refusals


def padded(g: Net, value: float = 0.0, begins=(0, 0, 1, 0), ends=(0, 0, 2, 1)) -> Value:
    x = g.tensor("x", sym("n"), 2, 6, 7)
    return g.add1(Pad("constant", begins, ends, value), x)


def conv(g: Net, x: Value, layout: str = "NCHW") -> Value:
    return g.add1(Conv((2, 1), (1, 1), (0, 1, 1, 0), layout=layout), x, g.random(3, 2, 3, 3))


def pool(kind: type, *fields: object) -> object:
    return kind((3, 2), (1, 1), (1, 1), *fields)


NONE, ONE = (0, 0, 0, 0), (1, 0, 0, 0)


def test_conv() -> None:
    g = Net()
    after, _ = apply(g, [conv(g, padded(g))], RULES, rtol=0)
    assert ops(after) == ["Conv"] and after.nodes[0].op.pads == (1, 1, 3, 1)


def test_channels_last_conv() -> None:
    g = Net()
    x = g.tensor("x", 1, 6, 7, 2)
    x = g.add1(Pad("constant", (0, 1, 0, 0), (0, 2, 1, 0), 0.0), x)
    after, _ = apply(g, [conv(g, x, "NHWC")], RULES, rtol=0)
    assert ops(after) == ["Conv"] and after.nodes[0].op.pads == (1, 1, 3, 1)


@pytest.mark.parametrize(
    ("op", "value"),
    [
        (pool(MaxPool, ONE), -math.inf),
        (pool(LpPool, ONE), 0.0),
        (pool(AveragePool, NONE), 0.0),
        (pool(AveragePool, ONE, False, "NCHW", True), 0.0),
    ],
)
def test_pools(op: object, value: float) -> None:
    g = Net()
    after, _ = apply(g, [g.add1(op, padded(g, value))], RULES, rtol=0)
    assert ops(after) == [type(op).__name__]


@pytest.mark.parametrize(
    ("op", "value", "reason"),
    [
        (pool(MaxPool, NONE), 0.0, "the padding is 0.0"),
        (pool(AveragePool, NONE), 1.0, "the padding is 1.0"),
        (pool(AveragePool, ONE), 0.0, "not its own padding"),
        (pool(AveragePool, NONE, True), 0.0, "ceil_mode"),
    ],
)
def test_pools_that_must_not(op: object, value: float, reason: str) -> None:
    g = Net()
    after, ctx = apply(g, [g.add1(op, padded(g, value))], RULES, rtol=0)
    assert ops(after)[0] == "Pad" and any(reason in r for r in refusals(ctx))


@pytest.mark.parametrize(
    ("begins", "ends", "reason"),
    [
        ((0, 0, -1, 0), (0, 0, 0, 0), "negative"),
        ((1, 0, 0, 0), (0, 0, 1, 0), "batch"),
        ((0, 0, 0, 0), (0, 0, sym("n"), 0), "symbolic"),
    ],
)
def test_pads_that_must_not(begins, ends, reason: str) -> None:
    g = Net()
    after, ctx = apply(g, [conv(g, padded(g, 0.0, begins, ends))], RULES, rtol=0)
    assert ops(after) == ["Pad", "Conv"] and any(reason in r for r in refusals(ctx))


def test_channel_padding_and_other_modes() -> None:
    g = Net()
    x = g.tensor("x", 1, 1, 6, 7)
    y = conv(g, g.add1(Pad("constant", (0, 1, 0, 0), (0, 0, 0, 0), 0.0), x))
    z = conv(g, g.add1(Pad("edge", (0, 0, 1, 0), (0, 0, 0, 0)), g.tensor("z", 1, 2, 6, 7)))
    after, _ = apply(g, [y, z], RULES, rtol=0)
    assert ops(after).count("Pad") == 2


def test_visible_padded_tensor() -> None:
    g = Net()
    x = padded(g)
    after, ctx = apply(g, [conv(g, x), x], RULES, rtol=0)
    assert ops(after) == ["Pad", "Conv"] and any("graph output" in r for r in refusals(ctx))
