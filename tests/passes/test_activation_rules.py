"""Spelled-out activations become one op.

Tolerances: float32 forms differ by a few roundings of values near the largest result (4e-7 of
it); float16 forms round every intermediate (5e-4 each, some ten of them).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from braze.core.dims import sym
from braze.core.dtypes import F16, F32, DType
from braze.ir.graph import Value
from braze.ops.pointwise.activation import Clip, HardSigmoid, Sigmoid
from braze.passes.rules.activations import RULES
from tests.passes.rule_checks import Net, apply, ops, refusals

TOLERANCE = {F32: 4e-7, F16: 5e-3}
Build = Callable[[Net, Value], Value]


def erf_gate(g: Net, x: Value, divide: bool = True) -> Value:
    t = g.op2("div", x, 2**0.5) if divide else g.op2("mul", 0.5**0.5, x)
    return g.op2("add", g.op1("erf", t), 1.0)


def cubic_gate(g: Net, x: Value, power: bool = True) -> Value:
    cube = g.op2("pow", x, 3.0) if power else g.op2("mul", x, g.op2("mul", x, x))
    inner = g.op2("mul", g.op2("add", x, g.op2("mul", 0.044715, cube)), 0.7978845608)
    return g.op2("add", 1.0, g.op1("tanh", inner))


def fast_gate(g: Net, x: Value) -> Value:
    poly = g.op2("add", g.op2("mul", g.op2("mul", 0.044715, x), x), 1.0)
    return g.op2("add", 1.0, g.op1("tanh", g.op2("mul", g.op2("mul", x, 0.7978845608), poly)))


def nested_gate(g: Net, x: Value) -> Value:
    cube = g.op2("mul", x, g.op2("mul", x, g.op2("mul", 0.044715, x)))
    inner = g.op2("mul", 0.7978845608, g.op2("add", x, cube))
    return g.op2("add", 1.0, g.op1("tanh", inner))


def relu6(g: Net, x: Value, shift: float = 3.0, hi: float = 6.0) -> Value:
    return g.add1(Clip(0.0, hi), g.op2("add", x, shift))


APPLIES: dict[str, tuple[str, Build]] = {
    "gelu 1": ("Gelu", lambda g, x: g.op2("mul", g.op2("mul", x, erf_gate(g, x)), 0.5)),
    "gelu 2": ("Gelu", lambda g, x: g.op2("mul", x, g.op2("mul", 0.5, erf_gate(g, x, False)))),
    "gelu 3": ("Gelu", lambda g, x: g.op2("mul", g.op2("mul", 0.5, x), erf_gate(g, x))),
    "gelu 4": ("Gelu", lambda g, x: g.op2("div", g.op2("mul", x, erf_gate(g, x)), 2.0)),
    "tanh 1": ("Gelu", lambda g, x: g.op2("mul", g.op2("mul", 0.5, x), cubic_gate(g, x))),
    "tanh 2": ("Gelu", lambda g, x: g.op2("mul", x, g.op2("mul", cubic_gate(g, x, False), 0.5))),
    "tanh 3": ("Gelu", lambda g, x: g.op2("mul", g.op2("mul", x, 0.5), fast_gate(g, x))),
    "tanh 4": ("Gelu", lambda g, x: g.op2("mul", x, g.op2("mul", 0.5, nested_gate(g, x)))),
    "silu": ("Silu", lambda g, x: g.op2("mul", g.add1(Sigmoid(), x), x)),
    "quick gelu": (
        "Silu",
        lambda g, x: g.op2("mul", x, g.add1(Sigmoid(), g.op2("mul", x, 1.702))),
    ),
    "swish 1": ("HardSwish", lambda g, x: g.op2("div", g.op2("mul", x, relu6(g, x)), 6.0)),
    "swish 2": ("HardSwish", lambda g, x: g.op2("mul", x, g.op2("div", relu6(g, x), 6.0))),
    "swish 3": ("HardSwish", lambda g, x: g.op2("mul", g.op2("mul", x, relu6(g, x)), 1 / 6)),
    "swish 4": ("HardSwish", lambda g, x: g.op2("mul", g.add1(HardSigmoid(1 / 6, 0.5), x), x)),
    "sigmoid": ("HardSigmoid", lambda g, x: g.op2("div", relu6(g, x), 6.0)),
}


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("case", APPLIES)
def test_applies(case: str, dtype: DType) -> None:
    name, build = APPLIES[case]
    g = Net()
    y = build(g, g.tensor("x", sym("n"), 7, dtype=dtype))
    after, _ = apply(g, [y], RULES, rtol=TOLERANCE[dtype], scale=3.0)
    assert ops(after) == [name]


MISSES: dict[str, Build] = {
    "wrong root": lambda g, x: g.op2(
        "mul", g.op2("mul", x, g.op2("add", g.op1("erf", g.op2("div", x, 1.5)), 1.0)), 0.5
    ),
    "two different values": lambda g, x: g.op2("mul", g.op1("neg", x), g.add1(Sigmoid(), x)),
    "clip to 5": lambda g, x: g.op2("div", g.op2("mul", x, relu6(g, x, hi=5.0)), 6.0),
    "shift 2": lambda g, x: g.op2("div", g.op2("mul", x, relu6(g, x, shift=2.0)), 6.0),
    "hard sigmoid of 0.2": lambda g, x: g.op2("mul", g.add1(HardSigmoid(0.2, 0.5), x), x),
    "divided by the sum": lambda g, x: g.op2("div", 0.5, g.op2("mul", x, erf_gate(g, x))),
}


@pytest.mark.parametrize("case", MISSES)
def test_near_misses(case: str) -> None:
    g = Net()
    y = MISSES[case](g, g.tensor("x", 2, 7))
    before = len(g.nodes)
    after, _ = apply(g, [y], RULES, rtol=0)
    assert len(after.nodes) == before


def test_visible_inner_values() -> None:
    g = Net()
    x = g.tensor("x", 2, 7)
    gate = erf_gate(g, x)
    y = g.op2("mul", g.op2("mul", x, gate), 0.5)
    after, ctx = apply(g, [y, gate], RULES, rtol=0)
    assert "Gelu" not in ops(after) and any("graph output" in r for r in refusals(ctx))

    g = Net()
    x = g.tensor("x", 2, 7)
    gate = g.add1(Sigmoid(), x)
    y = g.op2("mul", x, gate)
    after, ctx = apply(g, [y, g.op1("abs", gate)], RULES, rtol=0)
    assert "Silu" not in ops(after) and any("another user" in r for r in refusals(ctx))


def test_constant_of_larger_rank() -> None:
    g = Net()
    x = g.tensor("x", 7)
    half = g.const([[0.5]])
    y = g.op2("mul", g.op2("mul", x, erf_gate(g, x)), half)
    after, ctx = apply(g, [y], RULES, rtol=0)
    assert "Gelu" not in ops(after) and any("another shape" in r for r in refusals(ctx))
