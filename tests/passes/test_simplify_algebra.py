"""Identities keep every bit: inputs include NaN, infinities, signed zeros and subnormals."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F32, I32
from braze.ir.graph import Value
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.reduce.reduce import Reduce
from braze.passes.base import PassContext
from braze.passes.rules.simplify_algebra import simplify_algebra
from tests.passes.rule_checks import Net, ops

SPECIAL = np.float32(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-40, 3e38, 1.0, -2.5, 0.3, 7.0, -1e-20, 1e20]
)


def check(g: Net, y: Value, expected: list[str], exact: bool = True) -> None:
    graph = g.finish([("y", y)])
    after = simplify_algebra(graph, PassContext())
    verify(after, graph)
    assert ops(after) == expected
    (x,) = graph.inputs
    data = SPECIAL if x.dtype is F32 else np.arange(-7, 7)
    feed = {x.name: np.stack([data, data[::-1]]).astype(x.dtype.numpy)}
    want, got = evaluate(graph, feed)["y"], evaluate(after, feed)["y"]
    if exact:
        assert got.dtype == want.dtype and got.shape == want.shape
        nan = np.isnan(want)
        np.testing.assert_array_equal(np.isnan(got), nan)
        assert got[~nan].tobytes() == want[~nan].tobytes()
    else:  # two roundings instead of one
        np.testing.assert_allclose(got, want, rtol=2.5e-7)


def net(dtype=F32) -> tuple[Net, Value]:
    g = Net()
    return g, g.tensor("x", sym("n"), 14, dtype=dtype)


@pytest.mark.parametrize(
    ("op", "c", "expected"),
    [
        ("mul", 1.0, []),
        ("div", 1.0, []),
        ("add", -0.0, []),
        ("sub", 0.0, []),
        ("pow", 1.0, []),
        ("add", 0.0, ["Add"]),  # -0.0 + 0.0 is 0.0
        ("sub", -0.0, ["Add"]),
        ("sub", 2.5, ["Add"]),
        ("div", 4.0, ["Mul"]),
        ("div", -0.125, ["Mul"]),
        ("div", 3.0, ["Div"]),
        ("div", 0.0, ["Div"]),
        ("div", 2.0**-127, ["Div"]),
        ("div", 2.0**127, ["Div"]),
        ("pow", 2.0, ["Mul"]),
        ("pow", -1.0, ["Reciprocal"]),
        ("pow", 0.5, ["Pow"]),  # pow(-inf, 0.5) is inf
        ("pow", 2.5, ["Pow"]),
    ],
)
def test_with_a_constant(op: str, c: float, expected: list[str]) -> None:
    g, x = net()
    check(g, g.op2(op, x, c), expected)


def test_cube() -> None:
    g, x = net()
    check(g, g.op2("pow", g.op2("mul", x, 1e-3), 3.0), ["Mul", "Mul", "Mul"], exact=False)


def test_root_of_something_that_is_not_negative() -> None:
    g, x = net()
    mean = g.add1(Reduce("mean", (1,), True), g.op2("mul", x, x))
    check(g, g.op2("pow", g.op2("add", mean, 1e-5), 0.5), ["Mul", "ReduceMean", "Add", "Sqrt"])


def test_neutral_constants_that_broadcast() -> None:
    g, x = net()
    check(g, g.op2("mul", x, g.const(np.ones((3, 1, 1)))), ["Mul"])  # the result is larger
    g, x = net()
    check(g, g.op2("mul", g.const(np.ones(14)), x), [])
    g, x = net()
    check(g, g.op2("mul", x, g.const([1.0] * 13 + [2.0])), ["Mul"])


def test_double_negation_and_integers() -> None:
    g, x = net()
    check(g, g.op1("neg", g.op1("neg", x)), [])
    g, x = net(I32)
    zero, one = g.const(0, "int32"), g.const(1, "int32")
    check(g, g.op2("sub", g.op2("mul", g.op2("add", x, zero), one), zero), [])
    g, x = net(I32)
    check(g, g.op2("sub", x, g.const(3, "int32")), ["Sub"])
    g, x = net(I32)
    check(g, g.op2("div", x, g.const(2, "int32")), ["Div"])
