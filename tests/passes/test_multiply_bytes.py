"""Zero points leave products of bytes, and not a bit of a result changes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from braze.codegen.catalog import find_backend
from braze.core.config import BuildConfig
from braze.core.dims import sym
from braze.core.dtypes import I8, U8, from_numpy
from braze.core.target import PREFERENCES, Preferences
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.abilities import Unlimited
from braze.ops.evaluator import evaluate
from braze.ops.quant.integer import IntegerConv, IntegerMatMul
from braze.passes.base import PassContext
from braze.passes.pipeline import run_pipeline
from braze.passes.rules.multiply_bytes import multiply_bytes
from tests.passes.rule_checks import Net

Array = np.ndarray[Any, Any]
BYTES = ("uint8", "int8")
N = sym("n")


@dataclass(frozen=True)
class Signed(Unlimited):
    """A backend that multiplies signed bytes."""

    preferences: Preferences = field(default_factory=lambda: Preferences(unsigned_bytes=False))


@dataclass(frozen=True)
class Zeros(Unlimited):
    """A backend that multiplies signed bytes and pads with zeros alone."""

    preferences: Preferences = field(
        default_factory=lambda: Preferences(unsigned_bytes=False, fills=False)
    )


def drawn(g: Net, shape: tuple[int, ...], kind: str) -> Array:
    info = np.iinfo(kind)
    return g.rng.integers(info.min, info.max + 1, shape).astype(kind)


def zero_of(g: Net, form: str, kind: str, columns: int, feed: dict[str, Array]) -> Value | None:
    """none, number, run (a value of the run) or columns (one each)."""
    if form == "none":
        return None
    shape = (columns,) if form == "columns" else ()
    if form == "middle":
        return g.constant(np.asarray(128 if kind == "uint8" else 0, kind))
    if form == "run":
        feed["p"] = drawn(g, (), kind)
        return g.tensor("p", dtype=from_numpy(np.dtype(kind)))
    return g.constant(drawn(g, shape, kind))


def same(g: Net, y: Value, feed: dict[str, Array], ctx: PassContext) -> Graph:
    graph = g.finish([("y", y)])
    want = evaluate(graph, feed)["y"]
    after = multiply_bytes(graph, ctx)
    verify(after, graph)
    assert np.array_equal(evaluate(after, feed)["y"], want)
    return after


def factors(graph: Graph) -> list[tuple[str, ...]]:
    """The element types that products are made of, with the zero points that are left."""
    wanted = (IntegerMatMul, IntegerConv)
    return [
        tuple(v.dtype.name for v in node.inputs if v is not None)
        for node in graph.nodes
        if isinstance(node.op, wanted)
    ]


FORMS = [*itertools.product(("none", "number", "run"), ("none", "number", "middle", "columns"))]


@pytest.mark.parametrize("signs", [*itertools.product(BYTES, BYTES)])
@pytest.mark.parametrize(("p", "q"), FORMS)
@pytest.mark.parametrize("backend", [Unlimited(), Signed()], ids=["unsigned", "signed"])
def test_products(signs: tuple[str, str], p: str, q: str, backend: Unlimited) -> None:
    for left, right in (((N, 7), (7, 5)), ((N, 3, 9), (9, 4)), ((N, 2, 3, 6), (2, 6, 5))):
        g = Net()
        kinds = [from_numpy(np.dtype(s)) for s in signs]
        x = g.tensor("x", *left, dtype=kinds[0])
        feed = {"x": drawn(g, (2, *left[1:]), signs[0])}
        w = g.constant(drawn(g, right, signs[1]))
        zeros = zero_of(g, p, signs[0], 0, feed), zero_of(g, q, signs[1], right[-1], feed)
        y = g.add1(IntegerMatMul(), x, w, *zeros)
        after = same(g, y, feed, PassContext(backend=backend))
        data = "uint8" if backend.preferences.unsigned_bytes else "int8"
        assert factors(after) == [(data, "int8")]


@pytest.mark.parametrize("signs", [*itertools.product(BYTES, BYTES)])
@pytest.mark.parametrize("p", ["none", "number", "run"])
@pytest.mark.parametrize("q", ["none", "number", "columns"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("backend", [Unlimited(), Zeros()], ids=["filled", "zeros"])
def test_convolutions(
    signs: tuple[str, str], p: str, q: str, padded: bool, backend: Unlimited
) -> None:
    for rank, groups in ((1, 1), (2, 1), (2, 2), (3, 1)):
        g = Net()
        spatial = (6, 5, 4)[:rank]
        x = g.tensor("x", N, *spatial, 4, dtype=from_numpy(np.dtype(signs[0])))
        feed = {"x": drawn(g, (2, *spatial, 4), signs[0])}
        w = g.constant(drawn(g, (6, 4 // groups, *(3, 2, 2)[:rank]), signs[1]))
        weight_zero = zero_of(g, q, signs[1], 6, feed)
        if q == "columns":
            weight_zero = g.constant(drawn(g, (6, *(1,) * (rank + 1)), signs[1]))
        zeros = zero_of(g, p, signs[0], 0, feed), weight_zero
        pads = ((1, 0, 1) [:rank] + (0, 2, 1)[:rank]) if padded else (0,) * 2 * rank
        op = IntegerConv((1,) * rank, (1,) * rank, pads, groups, "NHWC")
        after = same(g, g.add1(op, x, w, *zeros), feed, PassContext(backend=backend))
        # a padding must be known, and windows of groups have no sums of their own
        left = (padded and p == "run") or (groups > 1 and (q != "none" or signs[1] == "uint8"))
        data = "uint8" if backend.preferences.unsigned_bytes else "int8"
        taken = [f == (data, "int8") for f in factors(after)]
        filled = [n.op.fill for n in after.nodes if isinstance(n.op, IntegerConv)]
        assert backend.preferences.fills or not any(filled)
        assert all(taken) != left


def test_sums_of_taps_inside_follow_steps_and_distances() -> None:
    g = Net()
    x = g.tensor("x", N, 9, 8, 3, dtype=U8)
    w = g.constant(drawn(g, (5, 3, 3, 2), "uint8"))
    zeros = g.constant(np.uint8(77)), g.constant(drawn(g, (5, 1, 1, 1), "uint8"))
    op = IntegerConv((2, 3), (2, 1), (3, 1, 2, 4), 1, "NHWC")
    feed = {"x": drawn(g, (2, 9, 8, 3), "uint8")}
    after = same(g, g.add1(op, x, w, *zeros), feed, PassContext(backend=Zeros()))
    assert all(f == ("int8", "int8") for f in factors(after))


def test_places_of_the_run_leave_a_padding_that_is_not_zero_alone() -> None:
    for zero, taken in ((128, True), (77, False)):  # moved by 128
        g = Net()
        x = g.tensor("x", 1, N, 8, 3, dtype=U8)
        w = g.constant(drawn(g, (5, 3, 3, 3), "int8"))
        op = IntegerConv((1, 1), (1, 1), (1, 1, 1, 1), 1, "NHWC")
        y = g.add1(op, x, w, g.constant(np.uint8(zero)), None)
        feed = {"x": drawn(g, (1, 6, 8, 3), "uint8")}
        after = same(g, y, feed, PassContext(backend=Zeros()))
        assert (factors(after) == [("int8", "int8")]) == taken


def test_sums_wrap_as_32_bits_do() -> None:
    """Corrections of 70,000 terms leave the range of int32 and come back."""
    g = Net()
    k = 70_000
    x = g.tensor("x", 1, k, dtype=I8)
    w = g.constant(np.full((k, 1), 127, np.int8))
    y = g.add1(IntegerMatMul(), x, w, g.constant(np.int8(-128)), None)
    same(g, y, {"x": np.full((1, k), 127, np.int8)}, PassContext())


def test_a_weight_of_the_run_and_layouts_without_templates_are_left() -> None:
    g = Net()
    x, w = g.tensor("x", 2, 4, dtype=U8), g.tensor("w", 4, 3, dtype=I8)
    feed = {"x": drawn(g, (2, 4), "uint8"), "w": drawn(g, (4, 3), "int8")}
    graph = g.finish([("y", g.add1(IntegerMatMul(), x, w, g.constant(np.uint8(3)), None))])
    assert multiply_bytes(graph, PassContext()) is graph
    assert evaluate(graph, feed)["y"].dtype == np.int32

    g = Net()
    x = g.tensor("x", 1, 4, 3, 3, dtype=U8)
    op = IntegerConv((1, 1), (1, 1), (0,) * 4)
    y = g.add1(op, x, g.constant(drawn(g, (2, 4, 2, 2), "int8")), None, None)
    graph = g.finish([("y", y)])
    assert multiply_bytes(graph, PassContext()) is graph


@pytest.mark.parametrize("groups", [1, 8])
def test_the_pipeline_leads_a_convolution_to_a_template(groups: int) -> None:
    """On the CPU; a depthwise one has none and runs as floats, exactly."""
    g = Net()
    x = g.tensor("x", 1, 8, 6, 6, dtype=I8)
    w = g.constant(drawn(g, (8, 8 // groups, 3, 3), "int8"))
    op = IntegerConv((1, 1), (1, 1), (1, 1, 1, 1), groups)
    feed = {"x": drawn(g, (1, 8, 6, 6), "int8")}
    graph = g.finish([("y", g.add1(op, x, w, g.constant(np.int8(5)), None))])
    after = run_pipeline(graph, PassContext(BuildConfig(), find_backend("cpu", 2)))
    assert factors(after) == ([("uint8", "int8")] if groups == 1 else [])
    assert np.array_equal(evaluate(after, feed)["y"], evaluate(graph, feed)["y"])
    assert PREFERENCES.unsigned_bytes
