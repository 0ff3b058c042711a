"""Tensors of more elements than 31 bits count, in shapes that are known and in shapes that are not.

Rows repeat with a period that no power of two divides, so that an offset that has lost a bit reads
another row. Only some rows are compared: the first, the last, those around each 2**31st element.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from braze.core.dtypes import F16
from tests.codegen.cuda.bounds import Bound, bound

Array = np.ndarray[Any, Any]
HALF = TensorProto.FLOAT16
PERIOD = 1009
WIDE, ROWS = 1 << 16, 33_000  # 2.2e9 elements
LONG = 70_001  # rows of a product with 2**15 columns: 2.3e9 elements


@pytest.fixture(autouse=True)
def room() -> Iterator[None]:
    """The tensors of one test are gone before the next."""
    yield
    gc.collect()


def net(
    nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], weights: dict[str, Array]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def periodic(rows: int, columns: int) -> Array:
    """Row i has the values of row i % PERIOD of normal ones."""
    few = np.random.default_rng(0).standard_normal((PERIOD, columns)).astype(np.float16)
    x = np.empty((rows, columns), np.float16)
    for first in range(0, rows, PERIOD):
        x[first : first + PERIOD] = few[: rows - first]
    return x


def some_rows(rows: int, columns: int) -> Array:
    """Rows to compare."""
    around = [k * 2**31 // columns + i for k in (1, 2) for i in (-1, 0, 1)]
    return np.array(sorted({0, 1, rows // 2, rows - 2, rows - 1, *(r for r in around if r < rows)}))


def engine(model: onnx.ModelProto, sizes: dict[str, tuple[int, ...]], known: bool) -> braze.Engine:
    """An engine for these sizes, which it knows or finds out in a run."""
    shapes: dict[str, Any] = dict(sizes)
    if not known:
        shapes = {n: ((1, *s[1:]), s, s) for n, s in sizes.items()}
    return braze.build(model, target="cuda", shapes=shapes, optimization_level=2)


@pytest.mark.parametrize("known", [True, False])
def test_elementwise_and_rows(known: bool) -> None:
    """x + 1, and a softmax over it: a nest of elements and one with a reduction."""
    nodes = [
        helper.make_node("Add", ["x", "one"], ["a"]),
        helper.make_node("Softmax", ["a"], ["s"], axis=-1),
        helper.make_node("Sub", ["a", "s"], ["y"]),
    ]
    model = net(nodes, {"x": (HALF, ["n", WIDE])}, {"one": np.float16([1.0])})
    x = periodic(ROWS, WIDE)
    got = engine(model, {"x": x.shape}, known)({"x": x})["y"]
    rows = some_rows(ROWS, WIDE)
    # softmax is 1e-3 at most: what is rounded before it does not matter beside the unit of a
    Bound(2.0**-9, 2.0**-10).check(got[rows], x[rows].astype("f8") + 1)


@pytest.mark.parametrize("known", [True, False])
def test_products(known: bool) -> None:
    w = np.random.default_rng(1).standard_normal((64, 1 << 15)).astype(np.float16)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    model = net(nodes, {"x": (HALF, ["n", 64])}, {"w": w})
    x = periodic(LONG, 64)
    got = engine(model, {"x": x.shape}, known)({"x": x})["y"]
    rows = some_rows(LONG, 1 << 15)
    want = np.maximum(x[rows].astype("f8") @ w.astype("f8"), 0)
    bound(F16, 64).check(got[rows], want)


@pytest.mark.parametrize("known", [True, False])
def test_convolutions(known: bool) -> None:
    """Images of 8 x 512 x 512, and as many outputs."""
    images, size = 1100, (8, 512, 512)
    w = np.random.default_rng(1).standard_normal((8, 8, 3, 3)).astype(np.float16)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
    model = net(nodes, {"x": (HALF, ["n", *size])}, {"w": w})
    few = np.random.default_rng(0).standard_normal((7, *size)).astype(np.float16)
    x = np.empty((images, *size), np.float16)
    for i in range(images):
        x[i] = few[i % 7]
    built = engine(model, {"x": x.shape}, known)
    got = built({"x": x})["y"]
    want = braze.build(model, target="reference", shapes={"x": few.shape})({"x": few})["y"]
    for i in (0, 1, 1023, 1024, 1025, images - 2, images - 1):
        bound(F16, 72).check(got[i], want[i % 7])


@pytest.mark.parametrize("known", [True, False])
def test_gathers(known: bool) -> None:
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    model = net(nodes, {"x": (HALF, ["n", WIDE]), "i": (TensorProto.INT64, ["k"])}, {})
    x, i = periodic(ROWS, WIDE), some_rows(ROWS, WIDE)
    got = engine(model, {"x": x.shape, "i": i.shape}, known)({"x": x, "i": i})["y"]
    np.testing.assert_array_equal(got, x[i])
