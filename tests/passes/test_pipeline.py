"""The pipeline as a whole: what the order of passes makes possible."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.config import BuildConfig
from braze.core.dims import sym
from braze.core.trace import Trace
from braze.ir.graph import Graph, Value
from braze.ops.evaluator import evaluate
from braze.ops.lowering import Decompose
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.pointwise.activation import Relu
from braze.ops.product.conv import Conv
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.reduce import Reduce
from braze.ops.reduce.softmax import Softmax
from braze.passes.base import PassContext
from braze.passes.pipeline import OPTIMIZE, run_pipeline
from tests.passes.rule_checks import Net, ops

N = sym("n")


def conv(g: Net, x: Value, channels: int, groups: int = 1) -> Value:
    w = g.random(channels, int(x.shape[1]) // groups, 3, 3)  # type: ignore[call-overload]
    y = g.add1(Conv((1, 1), (1, 1), (1, 1, 1, 1), groups), x, w)
    return g.op2("add", y, g.random(channels, 1, 1))


def check(g: Net, y: Value, level: int = 3, rtol: float = 5e-6) -> Graph:
    """rtol is relative to the largest result: float32 sums of some 100 products."""
    graph = g.finish([("y", y)])
    after = run_pipeline(graph, PassContext(BuildConfig(optimization_level=level)))
    for n in after.nodes:
        types = [None if v is None else v.type for v in n.inputs]
        assert not isinstance(n.op.lower(types, [v.type for v in n.outputs]), Decompose)
    feeds = {
        v.name: np.random.default_rng(1)
        .standard_normal([d if isinstance(d, int) else 2 for d in v.shape])
        .astype(np.float32)
        for v in graph.inputs
    }
    want, got = evaluate(graph, feeds)["y"], evaluate(after, feeds)["y"]
    np.testing.assert_allclose(got, want, rtol=0, atol=rtol * float(np.abs(want).max()))
    return after


def channel_norm(g: Net, x: Value) -> Value:
    """LayerNorm over the channels of [N, C, H, W], spelled out."""
    d = g.op2("sub", x, g.add1(Reduce("mean", (1,), True), x))
    variance = g.add1(Reduce("mean", (1,), True), g.op2("pow", d, 2.0))
    y = g.op2("div", d, g.op1("sqrt", g.op2("add", variance, 1e-6)))
    return g.op2("add", g.op2("mul", y, g.random(8, 1, 1)), g.random(8, 1, 1))


def test_norm_over_channels() -> None:
    g = Net()
    y = conv(g, channel_norm(g, conv(g, g.tensor("x", N, 3, 5, 6), 8)), 4)
    assert ops(check(g, y)) == [
        "Transpose", "Conv", "Add", "LayerNorm", "Conv", "Add", "Transpose",
    ]  # fmt: skip


def test_attention_over_pixels() -> None:
    g = Net()
    x = conv(g, g.tensor("x", 1, 3, 4, 5), 8)
    q, k, v = (g.add1(Reshape((1, 8, 20)), conv(g, x, 8)) for _ in range(3))
    scores = g.add1(MatMul(), g.add1(Transpose((0, 2, 1)), q), k)
    p = g.add1(Softmax(2), g.op2("mul", scores, 0.25))
    y = g.add1(MatMul(), p, g.add1(Transpose((0, 2, 1)), v))
    y = g.add1(Reshape((1, 8, 4, 5)), g.add1(Transpose((0, 2, 1)), y))
    after = check(g, conv(g, g.op2("add", x, y), 3))
    assert ops(after).count("FusedAttention") == 1
    assert ops(after).count("Transpose") == 2  # where the image enters and leaves


@pytest.mark.parametrize("level", range(6))
def test_every_level_gives_the_same_results(level: int) -> None:
    g = Net()
    y = channel_norm(g, conv(g, conv(g, g.tensor("x", N, 3, 5, 6), 8), 8, 2))
    after = check(g, g.op2("mul", y, g.op1("tanh", y)), level)
    assert ("LayerNorm" in ops(after)) == (level > 0)


def test_running_twice_changes_nothing() -> None:
    g = Net()
    x = conv(g, channel_norm(g, conv(g, g.tensor("x", N, 3, 5, 6), 8)), 4)
    once = check(g, x)
    twice = run_pipeline(once, PassContext())
    assert ops(twice) == ops(once)


def test_every_step_is_a_pass_of_its_own_with_a_text() -> None:
    """What moves Transposes after a convolution was converted shows as a stage of its own."""
    ctx = PassContext(BuildConfig(optimization_level=3), trace=Trace(dump=True))
    g = Net()
    y = conv(g, g.add1(Relu(), conv(g, g.tensor("x", N, 3, 5, 6), 8)), 4)
    run_pipeline(g.finish([("y", y)]), ctx)
    texts = {name.split("_", 1)[-1]: text for name, text in ctx.trace.stages}
    converted, sunk = texts["channels_last"], texts["sink_transposes"]
    assert converted.count("Transpose<") == 4 and sunk.count("Transpose<") == 2
    assert all(f"passes.{p.__name__}" in ctx.trace.seconds for p in OPTIMIZE)
