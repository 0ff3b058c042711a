"""Codes that are dequantized and quantized again, or pooled in between, stay codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dtypes import F16, F32, F64, I8, U8, DType
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.pool.pool import MaxPool
from braze.ops.quant.linear import Dequantize, Quantize
from braze.passes.base import PassContext
from braze.passes.rules.keep_codes import keep_codes
from tests.passes.rule_checks import Net, ops

POOL = MaxPool((3, 2), (2, 1), (1, 1), (1, 0, 1, 1))
KINDS = pytest.mark.parametrize("dtype", [I8, U8])


def codes(dtype: DType) -> np.ndarray[Any, Any]:
    """All codes, in any order."""
    all_ = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    return np.random.default_rng(0).permutation(all_).reshape(1, 4, 8, 8)


def numbers(g: Net, dtype: DType, scale: float, zero: int | None, to: DType = F32) -> Value:
    x = g.tensor("x", 1, 4, 8, 8, dtype=dtype)
    return g.add1(Dequantize(to), x, g.const(scale), point(g, zero, dtype))


def point(g: Net, zero: int | None, dtype: DType) -> Value | None:
    return None if zero is None else g.constant(np.asarray(zero, dtype.numpy))


def same_bits(g: GraphBuilder, y: Value, dtype: DType) -> Graph:
    graph = g.finish([("y", y)])
    after = keep_codes(graph, PassContext())
    verify(after, graph)
    feed = {"x": codes(dtype)}
    np.testing.assert_array_equal(evaluate(after, feed)["y"], evaluate(graph, feed)["y"])
    return after


@KINDS
@pytest.mark.parametrize("zero", [None, 3])
@pytest.mark.parametrize("scale", [0.0371, 1e-9, 3e7, 1 / 3])
def test_one_grid(dtype: DType, zero: int | None, scale: float) -> None:
    g = Net()
    x = numbers(g, dtype, scale, zero)
    y = g.add1(Quantize(dtype, 8, F32), x, g.const(scale), point(g, zero, dtype))
    assert ops(same_bits(g, y, dtype)) == []


@KINDS
@pytest.mark.parametrize("zero", [None, 3])
def test_pools(dtype: DType, zero: int | None) -> None:
    g = Net()
    x = g.add1(POOL, numbers(g, dtype, 0.0371, zero))
    y = g.add1(Quantize(dtype, 8, F32), x, g.const(0.0371), point(g, zero, dtype))
    assert ops(same_bits(g, y, dtype)) == ["MaxPool"]
    g = Net()
    after = same_bits(g, g.add1(POOL, numbers(g, dtype, 0.0371, zero)), dtype)
    assert ops(after) == ["MaxPool", "Dequantize"]


def near_misses() -> dict[str, Any]:
    def again(g: Net, x: Value, scale: float = 0.05, zero: int | None = 3, **how: Any) -> Value:
        op = Quantize(**{"to": I8, "bits": 8, "division": F32, **how})
        return g.add1(op, x, g.const(scale), point(g, zero, how.get("to", I8)))

    def start(g: Net, scale: float = 0.05, to: DType = F32) -> Value:
        return numbers(g, I8, scale, 3, to)

    return {
        "another scale": lambda g: again(g, start(g), 0.06),
        "another zero point": lambda g: again(g, start(g), zero=4),
        "no zero point": lambda g: again(g, start(g), zero=None),
        "another type": lambda g: again(g, start(g), to=U8),
        "fewer bits": lambda g: again(g, start(g), bits=4),
        "another division": lambda g: again(g, start(g), division=F64),
        "numbers of half the bits": lambda g: again(g, start(g, to=F16)),
        "a scale without numbers": lambda g: again(g, start(g, 0.0), 0.0),
        "a scale that turns the order": lambda g: g.add1(POOL, start(g, -0.05)),
        "windows beyond the end": lambda g: g.add1(
            MaxPool((3, 3), (2, 2), (1, 1), (0, 0, 0, 0), ceil_mode=True), start(g)
        ),
        "places as well": lambda g: g.add(
            MaxPool((2, 2), (2, 2), (1, 1), (0, 0, 0, 0), with_indices=True), start(g)
        )[1],
    }


@pytest.mark.parametrize("case", near_misses())
def test_near_misses(case: str) -> None:
    g = Net()
    y = near_misses()[case](g)
    graph = g.finish([("y", y)])
    assert keep_codes(graph, PassContext()) is graph
