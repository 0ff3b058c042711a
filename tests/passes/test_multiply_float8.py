"""Dequantized 8-bit floats are multiplied as they are stored, where the target does that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.codegen.catalog import find_backend
from braze.core.dims import sym
from braze.core.dtypes import F8E4M3FN, F8E5M2, F16, F32, DType
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.product.matmul import MatMul
from braze.ops.quant.float8 import Float8MatMul
from braze.passes.base import PassContext
from braze.passes.decompose import decompose
from braze.passes.rules.multiply_float8 import multiply_float8
from tests.passes.rule_checks import Net

Array = np.ndarray[Any, Any]
N = sym("n")


def drawn(g: Net, shape: tuple[int, ...], kind: DType) -> Array:
    return g.rng.standard_normal(shape).astype(np.float32).astype(kind.numpy)


def real(g: Net, codes: Value, scale: Value, to: DType = F32) -> Value:
    """As DequantizeLinear is imported."""
    return g.add1(Binary("mul"), g.add1(Cast(to), codes), scale)


def data(g: Net, shape: tuple[Any, ...], feed: dict[str, Array], kind: DType = F8E4M3FN) -> Value:
    """A dequantized input; its batch is 2."""
    feed["x"] = drawn(g, (2, *shape[1:]), kind)
    return real(g, g.tensor("x", *shape, dtype=kind), g.const(0.031))


def weight(
    g: Net, shape: tuple[int, ...], scales: tuple[int, ...] = (), kind: DType = F8E4M3FN
) -> Value:
    scale = g.constant(g.rng.uniform(0.001, 0.02, scales).astype(np.float32))
    return real(g, g.constant(drawn(g, shape, kind)), scale)


def same(g: Net, y: Value, feed: dict[str, Array], target: str = "cuda:sm_90") -> Graph | None:
    """The graph with the product, whose meaning is the same; None where it is left alone."""
    graph = g.finish([("y", y)])
    context = PassContext(backend=find_backend(target, 1))
    after = multiply_float8(graph, context)
    if after is graph:
        return None
    verify(after, graph)
    assert any(isinstance(n.op, Float8MatMul) for n in after.nodes)
    want = evaluate(graph, feed, float64=True)["y"]
    apart = decompose(after, PassContext(backend=find_backend("cpu:avx2", 1)))
    assert not any(isinstance(n.op, Float8MatMul) for n in apart.nodes)
    for done in (after, apart):
        got = evaluate(done, feed)["y"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())
    return after


@pytest.mark.parametrize("kind", [F8E4M3FN, F8E5M2])
@pytest.mark.parametrize(
    ("left", "right", "scales"),
    [((N, 64), (64, 48), ()), ((N, 3, 64), (64, 48), (48,)), ((N, 64), (64, 48), (1, 48))],
)
def test_products(left: Any, right: Any, scales: Any, kind: DType) -> None:
    g, feed = Net(), dict[str, Array]()
    y = g.add1(MatMul(), data(g, left, feed, kind), weight(g, right, scales, kind))
    assert same(g, g.op1("neg", y), feed) is not None


def test_views_on_the_way_move_codes_and_weights_may_be_turned() -> None:
    g, feed = Net(), dict[str, Array]()
    x = g.add1(Transpose((0, 2, 1)), data(g, (N, 8, 8), feed))
    x = g.add1(Reshape((N, 64)), x)
    w = g.add1(Transpose((1, 0)), weight(g, (48, 64), (48, 1)))
    after = same(g, g.add1(MatMul(), x, w), feed)
    assert after is not None
    moved = [n for n in after.nodes if isinstance(n.op, (Reshape, Transpose))]
    assert all(n.output.dtype is F8E4M3FN for n in moved) and len(moved) == 2


def test_the_scale_may_come_from_the_run_and_stand_first() -> None:
    g, feed = Net(), {"s": np.asarray(0.05, np.float32)}
    x = g.tensor("x", N, 64, dtype=F8E4M3FN)
    feed["x"] = drawn(g, (2, 64), F8E4M3FN)
    x = g.add1(Binary("mul"), g.tensor("s"), g.add1(Cast(F32), x))
    assert same(g, g.add1(MatMul(), x, weight(g, (64, 48))), feed) is not None


def near_misses() -> dict[str, Any]:
    def product(g: Net, feed: dict[str, Array], **how: Any) -> Value:
        kind = how.pop("data", F8E4M3FN)
        return g.add1(MatMul(), data(g, (N, 64), feed, kind), weight(g, (64, 48), **how))

    def of_rows(g: Net, feed: dict[str, Array]) -> Value:
        x = g.tensor("x", N, 3, 64, dtype=F8E4M3FN)
        scale = g.constant(g.rng.uniform(0.1, 1, (3, 1)).astype(np.float32))
        return g.add1(MatMul(), real(g, x, scale), weight(g, (64, 48)))

    def of_the_run(g: Net, feed: dict[str, Array]) -> Value:
        w = real(g, g.tensor("w", 64, 48, dtype=F8E4M3FN), g.const(0.1))
        return g.add1(MatMul(), data(g, (N, 64), feed), w)

    def in_halves(g: Net, feed: dict[str, Array]) -> Value:
        x = g.tensor("x", N, 64, dtype=F8E4M3FN)
        scale, w = g.const(0.5, "float16"), g.constant(drawn(g, (64, 48), F8E4M3FN))
        return g.add1(MatMul(), real(g, x, scale, F16), real(g, w, scale, F16))

    def behind_an_op(g: Net, feed: dict[str, Array]) -> Value:
        x = g.add1(Unary("exp"), data(g, (N, 64), feed))
        return g.add1(MatMul(), x, weight(g, (64, 48)))

    return {
        "scales along k": lambda g, f: product(g, f, scales=(64, 1)),
        "two types": lambda g, f: product(g, f, data=F8E5M2),
        "data scaled by rows": of_rows,
        "weight of the run": of_the_run,
        "rounded to float16 as written": in_halves,
        "data behind an op": behind_an_op,
        "a weight that is no matrix": lambda g, f: g.add1(
            MatMul(), data(g, (N, 64), f), weight(g, (64,))
        ),
    }


@pytest.mark.parametrize("case", near_misses())
def test_near_misses(case: str) -> None:
    g, feed = Net(), dict[str, Array]()
    assert same(g, near_misses()[case](g, feed), feed) is None


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512", "cuda:sm_80", "cuda:sm_86"])
def test_targets_without_them(target: str) -> None:
    g, feed = Net(), dict[str, Array]()
    y = g.add1(MatMul(), data(g, (N, 64), feed), weight(g, (64, 48)))
    assert same(g, y, feed, target) is None
