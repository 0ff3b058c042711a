"""Dequantized bytes are multiplied as bytes: what the float product means, with fewer roundings."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F32, F64, DType, from_numpy
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.pointwise.elementwise import Unary
from braze.ops.product.conv import Conv
from braze.ops.product.matmul import MatMul
from braze.ops.quant.integer import IntegerConv, IntegerMatMul
from braze.ops.quant.linear import Dequantize
from braze.passes.base import PassContext
from braze.passes.rules.multiply_quantized import multiply_quantized
from tests.passes.rule_checks import Net

Array = np.ndarray[Any, Any]
N = sym("n")
BYTES = ("uint8", "int8")


def drawn(g: Net, shape: tuple[int, ...], kind: str) -> Array:
    info = np.iinfo(kind)
    return g.rng.integers(info.min, info.max + 1, shape).astype(kind)


def data(g: Net, shape: tuple[Any, ...], kind: str, feed: dict[str, Array], zero: bool) -> Value:
    """A dequantized input; its batch is 2."""
    q = g.tensor("x", *shape, dtype=from_numpy(np.dtype(kind)))
    feed["x"] = drawn(g, (2, *shape[1:]), kind)
    p = g.constant(drawn(g, (), kind)) if zero else None
    return g.add1(Dequantize(F32), q, g.const(0.031), p)


def weight(
    g: Net, shape: tuple[int, ...], kind: str, scales: tuple[int, ...], zeros: str, to: DType = F32
) -> Value:
    """A dequantized constant; scales: the shape of its scale."""
    t = g.constant(g.rng.uniform(0.001, 0.02, scales).astype(np.float32))
    q = None if zeros == "none" else g.constant(
        drawn(g, scales if zeros == "like" else (), kind)
    )  # fmt: skip
    return g.add1(Dequantize(to), g.constant(drawn(g, shape, kind)), t, q)


def same(g: Net, y: Value, feed: dict[str, Array], taken: bool) -> Graph:
    """Up to roundings of float32, where the float product has more of them; or left alone."""
    graph = g.finish([("y", y)])
    after = multiply_quantized(graph, PassContext())
    verify(after, graph)
    kinds = {type(n.op) for n in after.nodes}
    assert taken == bool(kinds & {IntegerConv, IntegerMatMul})
    if not taken:
        assert after is graph
        return graph
    assert not kinds & {Conv, MatMul}
    want = evaluate(graph, feed, float64=True)["y"]
    got = evaluate(after, feed)["y"]
    # the sum as float32, the product of scales and that of both: three roundings, relative to the
    # largest since constants were rounded as they were dequantized
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())
    return after


SCALES = {"number": (), "channels": (6, 1, 1, 1)}


@pytest.mark.parametrize("signs", [*itertools.product(BYTES, BYTES)])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("zeros", ["none", "like", "number"])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolution(signs: tuple[str, str], scales: str, zeros: str, groups: int) -> None:
    g, feed = Net(), dict[str, Array]()
    x = data(g, (N, 4, 5, 6), signs[0], feed, zeros != "none")
    w = weight(g, (6, 4 // groups, 3, 2), signs[1], SCALES[scales], zeros)
    y = g.add1(Conv((1, 2), (1, 1), (1, 0, 1, 1), groups), x, w)
    same(g, g.op1("neg", y), feed, True)


@pytest.mark.parametrize("signs", [*itertools.product(BYTES, BYTES)])
@pytest.mark.parametrize(
    ("left", "right", "scales"),
    [
        ((N, 7), (7, 5), (1, 5)), ((N, 3, 7), (7, 5), ()), ((N, 3, 7), (7, 5), (5,)),
        ((N, 2, 3, 4), (2, 4, 5), (1, 1, 5)),
    ],
)  # fmt: skip
def test_product(signs: tuple[str, str], left: Any, right: Any, scales: Any) -> None:
    for zeros in ("none", "like", "number"):
        g, feed = Net(), dict[str, Array]()
        x = data(g, left, signs[0], feed, True)
        same(g, g.add1(MatMul(), x, weight(g, right, signs[1], scales, zeros)), feed, True)


def test_views_on_the_way_move_bytes_and_weights_may_be_turned() -> None:
    g, feed = Net(), dict[str, Array]()
    x = data(g, (N, 3, 4), "uint8", feed, True)
    x = g.add1(Reshape((N, 12)), g.add1(Transpose((0, 2, 1)), x))
    w = g.add1(Transpose((1, 0)), weight(g, (5, 12), "int8", (5, 1), "none"))
    after = same(g, g.add1(MatMul(), x, w), feed, True)
    moved = [n for n in after.nodes if isinstance(n.op, (Reshape, Transpose))]
    assert all(n.output.dtype.bits == 8 for n in moved if n.inputs[0] is not None)


def test_parameters_too_long_to_be_folded_on_import() -> None:
    """They come as vectors behind a Reshape into the shape of their weight."""
    g, feed = Net(), dict[str, Array]()
    x = data(g, (N, 3, 4, 4), "int8", feed, False)
    scale = g.constant(g.rng.uniform(0.001, 0.02, 6).astype(np.float32))
    zero = g.constant(drawn(g, (6,), "int8"))
    scale, zero = (g.add1(Reshape((6, 1, 1, 1)), v) for v in (scale, zero))
    w = g.add1(Dequantize(F32), g.constant(drawn(g, (6, 3, 1, 1), "int8")), scale, zero)
    same(g, g.add1(Conv((1, 1), (1, 1), (0,) * 4, 1), x, w), feed, True)


def test_a_scale_that_the_run_gives() -> None:
    g, feed = Net(), {"s": np.asarray(0.05, np.float32)}
    q = g.tensor("x", N, 7, dtype=from_numpy(np.dtype("uint8")))
    feed["x"] = drawn(g, (2, 7), "uint8")
    x = g.add1(Dequantize(F32), q, g.tensor("s"), None)
    same(g, g.add1(MatMul(), x, weight(g, (7, 5), "int8", (1, 5), "none")), feed, True)


def near_misses() -> dict[str, Any]:
    """Makers of products that stay float."""

    def product(g: Net, feed: dict[str, Array], **changes: Any) -> Value:
        x = data(g, (N, 3, 8), "uint8", feed, True)
        given = {"shape": (8, 5), "kind": "int8", "scales": (1, 5), "zeros": "none"} | changes
        return g.add1(MatMul(), x, weight(g, **given))

    def of_rows(g: Net, feed: dict[str, Array]) -> Value:
        q = g.tensor("x", N, 3, 8, dtype=from_numpy(np.dtype("uint8")))
        scale = g.constant(g.rng.uniform(0.1, 1, (3, 1)).astype(np.float32))
        x = g.add1(Dequantize(F32), q, scale, None)
        return g.add1(MatMul(), x, weight(g, (8, 5), "int8", (), "none"))

    def of_the_run(g: Net, feed: dict[str, Array]) -> Value:
        x = data(g, (N, 3, 8), "uint8", feed, True)
        w = g.tensor("w", 8, 5, dtype=from_numpy(np.dtype("int8")))
        return g.add1(MatMul(), x, g.add1(Dequantize(F32), w, g.const(0.1), None))

    def behind_an_op(g: Net, feed: dict[str, Array]) -> Value:
        x = g.add1(Unary("exp"), data(g, (N, 3, 8), "int8", feed, True))
        return g.add1(MatMul(), x, weight(g, (8, 5), "int8", (), "none"))

    return {
        "scales along k": lambda g, f: product(g, f, scales=(8, 1)),
        "16 bits": lambda g, f: product(g, f, kind="int16"),
        "zero points along k": lambda g, f: product(g, f, scales=(8, 1), zeros="like"),
        "data scaled by rows": of_rows,
        "weight of the run": of_the_run,
        "data behind an op": behind_an_op,
    }


@pytest.mark.parametrize("case", near_misses())
def test_near_misses(case: str) -> None:
    g, feed = Net(), dict[str, Array]()
    same(g, near_misses()[case](g, feed), feed, False)


def test_float64_is_left() -> None:
    g = Net()
    q = g.tensor("x", N, 8, dtype=from_numpy(np.dtype("uint8")))
    x = g.add1(Dequantize(F64), q, g.const(0.1), None)
    same(g, g.add1(MatMul(), x, weight(g, (8, 5), "int8", (), "none", F64)), {}, False)
